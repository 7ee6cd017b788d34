package console

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
)

// folded shows lines of ranks in turn, as a viewer does, and returns the output of both streams,
// sorted.
func folded(t *testing.T, above, ranks int, line func(rank, turn int) string) (stdout, stderr []string) {
	t.Helper()
	var out, err bytes.Buffer
	c := New(&out, &err)
	c.Fold(above)
	v := NewViewer(c, func(rank int) string { return fmt.Sprintf("[r%d n1] ", rank) })
	v.SetWorldSize(ranks)
	for turn := range 3 {
		for rank := range ranks {
			for _, s := range []Stream{Stdout, Stderr} {
				v.Add(t.Context(), Source{0, rank, s}, []byte(line(rank, turn)))
			}
		}
	}
	v.Close(t.Context())
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	return sorted(out.String()), sorted(err.String())
}

func sorted(text string) []string {
	return slices.Sorted(slices.Values(strings.Split(strings.TrimSuffix(text, "\n"), "\n")))
}

func TestFolding(t *testing.T) {
	line := func(rank, turn int) string {
		if rank == 3 && turn == 2 {
			return "step 2 loss=nan\n"
		}
		return fmt.Sprintf("step %d loss=0.4%d\n", turn, rank)
	}
	want := []string{
		"[r0-5 -r3] step 2 loss=0.40..0.45", "[r0-5] step 0 loss=0.40..0.45", "[r0-5] step 1 loss=0.40..0.45", "[r3] step 2 loss=nan",
	}
	out, err := folded(t, 1, 6, line)
	if !slices.Equal(out, want) || !slices.Equal(err, want) {
		t.Errorf("stdout %q\nstderr %q", out, err)
	}
	out, _ = folded(t, 8, 6, line)
	if len(out) != 18 || out[0] != "[r0 n1] step 0 loss=0.40" {
		t.Errorf("of few ranks it shows %q", out)
	}
}

// TestFoldingIsVisible: folded text is no copy of a file, so it must not control a terminal.
func TestFoldingIsVisible(t *testing.T) {
	out, _ := folded(t, 1, 3, func(int, int) string { return "a\x1b]0;title\ab\a\u202ec\x1b[31md\n" })
	if len(out) == 0 || out[0] != "[r0-2] ab^G\uFFFDcd" {
		t.Errorf("%q", out)
	}
}

// TestFoldingOfAttempts: the same lines of different attempts stay apart.
func TestFoldingOfAttempts(t *testing.T) {
	var out, err bytes.Buffer
	c := New(&out, &err)
	c.Fold(1)
	v := NewViewer(c, func(rank int) string { return fmt.Sprintf("[r%d n1] ", rank) })
	v.SetWorldSize(3)
	for rank := range 3 {
		for _, attempt := range []int{0, 1, 125} {
			v.Add(t.Context(), Source{attempt, rank, Stdout}, []byte("loading\n"))
			v.Add(t.Context(), Source{attempt, rank, Stderr}, []byte("warning\n"))
		}
	}
	v.Close(t.Context())
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), strings.Repeat("[r0-2] loading\n", 3); got != want {
		t.Errorf("stdout %q", got)
	}
	if got, want := err.String(), strings.Repeat("[r0-2] warning\n", 3); got != want {
		t.Errorf("stderr %q", got)
	}
}

// TestFoldingWithoutPrefix: lines without a prefix are not folded, because nothing says which rank
// a line is from.
func TestFoldingWithoutPrefix(t *testing.T) {
	var out bytes.Buffer
	c := New(&out, io.Discard)
	c.Fold(1)
	v := NewViewer(c, func(int) string { return "" })
	for rank := range 3 {
		v.Add(t.Context(), Source{0, rank, Stdout}, []byte("same\n"))
	}
	if err := c.Close(); err != nil || out.String() != "same\nsame\nsame\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// TestFoldingOfRelayedLines: relayed lines are folded by the prefixes of another process. Lines
// without a prefix stay unchanged.
func TestFoldingOfRelayedLines(t *testing.T) {
	var out bytes.Buffer
	c := New(&out, io.Discard)
	c.Fold(1)
	in := "[r0 n1] hello 1.5\n[r1 n1] hello 2.5\n[r2 n2] hello 3.5\nhello\n[r3 n2] \x1b[31mhello\x1b[0m 4.5\n[rx n2] hello\n[r4] no end"
	if err := c.Relay(strings.NewReader(in), Stdout); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	want := []string{"[r0 n1] hello 1.5", "[r1-3] hello 2.5..4.5", "[r4] no end", "[rx n2] hello", "hello"}
	if got := sorted(out.String()); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
