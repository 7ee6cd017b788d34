package hostlist

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// entry draws an entry of a list, and makes its names one after another.
func entry(t *rapid.T, suffix bool) (string, []string) {
	text := rapid.StringMatching(`[a-zA-Z_][a-z0-9._-]{0,3}`).Draw(t, "prefix")
	names := []string{text}
	groups := rapid.IntRange(0, 2).Draw(t, "groups")
	for g := range groups {
		spans, numbers := brackets(t)
		text += "[" + spans + "]"
		part := ""
		if g+1 < groups || suffix {
			part = rapid.StringMatching(`[a-z0-9._-]{0,3}`).Draw(t, "part")
		}
		text += part
		var longer []string
		for _, name := range names {
			for _, number := range numbers {
				longer = append(longer, name+number+part)
			}
		}
		names = longer
	}
	return text, names
}

// brackets draws the text between brackets, and its numbers.
func brackets(t *rapid.T) (string, []string) {
	var spans, numbers []string
	for range rapid.IntRange(1, 3).Draw(t, "spans") {
		low, width := rapid.OneOf(rapid.IntRange(0, 12), rapid.IntRange(95, 1002)).Draw(t, "low"), rapid.IntRange(0, 4).Draw(t, "width")
		high := low + rapid.IntRange(0, 12).Draw(t, "more")
		span := fmt.Sprintf("%0*d", width, low)
		if high > low || rapid.Bool().Draw(t, "ranged") {
			span += fmt.Sprintf("-%0*d", rapid.IntRange(0, 4).Draw(t, "width of the last"), high)
		}
		spans = append(spans, span)
		for n := low; n <= high; n++ {
			numbers = append(numbers, fmt.Sprintf("%0*d", width, n))
		}
	}
	return strings.Join(spans, ","), numbers
}

// list is the text of a host list with the hosts that it means.
type list struct {
	text  string
	names []string
}

// lists draws lists, with text behind the last brackets if Slurm need not read them.
func lists(suffix bool) *rapid.Generator[list] {
	return rapid.Custom(func(t *rapid.T) list {
		var texts, names []string
		for range rapid.IntRange(1, 4).Draw(t, "entries") {
			text, more := entry(t, suffix)
			texts, names = append(texts, text), append(names, more...)
		}
		return list{strings.Join(texts, ","), names}
	})
}

// neighbours draws names, many of which are consecutive or nearly so.
func neighbours(prefixes ...string) *rapid.Generator[[]string] {
	return rapid.Custom(func(t *rapid.T) []string {
		var names []string
		for range rapid.IntRange(1, 12).Draw(t, "runs") {
			prefix := rapid.SampledFrom(prefixes).Draw(t, "prefix")
			low := rapid.SampledFrom([]int{0, 1, 2, 8, 9, 10, 98, 99, 100, 614}).Draw(t, "low")
			width := rapid.IntRange(0, 4).Draw(t, "width")
			suffix := rapid.SampledFrom([]string{"", "", "", "", ".x"}).Draw(t, "suffix")
			for n := range rapid.IntRange(1, 4).Draw(t, "names") {
				names = append(names, fmt.Sprintf("%s%0*d%s", prefix, width, low+n, suffix))
			}
		}
		return names
	})
}

func TestExpandCountsLikeLoops(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := lists(true).Draw(t, "list")
		if got, err := Expand(l.text); err != nil || !slices.Equal(got, l.names) {
			t.Errorf("%s:\ngot  %v, %v\nwant %v", l.text, got, err, l.names)
		}
	})
}

func TestExpandUndoesCompress(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.OneOf(
			neighbours("n", "n1-", "", "18446744073709551"),
			rapid.SliceOfN(rapid.StringMatching(`[a-zA-Z0-9_][a-zA-Z0-9._-]{0,30}`), 1, 10),
			rapid.Map(lists(true), func(l list) []string { return l.names }),
		).Draw(t, "names")
		undone(t, names)
	})
}

func undone(t interface{ Errorf(string, ...any) }, names []string) {
	text := Compress(names)
	if got, err := Expand(text); err != nil || !slices.Equal(got, names) {
		t.Errorf("%s:\ngot  %v, %v\nwant %v", text, got, err, names)
	}
}

// For any text the answer is bounded: either names that can be written and read again, or one short
// line.
func FuzzExpand(f *testing.F) {
	for _, text := range []string{
		"gpu[001-004,007],login1", "n", "", ",", "n[8-11]", "n[098-101]", "r[1-2]n[01-03]-ib", "a[1-2]b[1-2]c[1-2]", "n[1-999999999]",
		"n[0-18446744073709551615]", "n[18446744073709551615]", "n[00-7]",
		"n[3-1]", "n[1-", "n]", "n[[1]]", "n[,]", "n[1]x[2]\x00", "-a", "é[1-2]",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		names, err := Expand(text)
		switch {
		case err != nil && (names != nil || len(err.Error()) > 1000 || strings.Contains(err.Error(), "\n")):
			t.Errorf("got %d names and the error %v", len(names), err)
		case err == nil && (len(names) < 1 || len(names) > Max):
			t.Errorf("got %d names", len(names))
		case len(names) < 10_000:
			for _, name := range names {
				if !valid.MatchString(name) {
					t.Errorf("got the name %q", name)
				}
			}
			if err == nil {
				undone(t, names)
			}
		}
	})
}

var valid = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,252}$`)
