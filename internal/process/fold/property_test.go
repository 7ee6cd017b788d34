package fold

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestMain makes enough worlds, which are small, for rare cases.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "2000"); err != nil {
		panic(err)
	}
	flag.Parse()
	os.Exit(m.Run())
}

// vocabulary has formats of lines with a rank and a number. Lines of different ranks may be equal.
var vocabulary = []string{
	"step %[2]d loss=0.4%[2]d", "rank %[1]d of 8", "pid 77%[1]d%[2]d", "step %[2]d loss=nan", "Traceback (most recent call last):", "  File \"a.py\", line %[2]d",
	"    x = y", "ValueError: %[2]d", "", "plain", "%[2]d %[1]d", "\x1b[31mred %[2]d\x1b[0m", "took %[2]d%[1]dms", "took 1m%[2]ds", "at 12:00:0%[2]d,%[1]d", "\xff\x00\x80",
	"host-%[1]d 0x7f00000%[2]d id=ab12cd34ef%[2]d", "[rank%[1]d]: Traceback", "[rank%[1]d]:   File", " %[2]d%%|##%[2]d  | %[2]d/9 [00:0%[2]d<00:1%[1]d]", "loss=%[2]d%[2]d.%[1]d",
	"\tindent %[1]d.%[2]d.3.4", "x\r%[2]d%%|#|\r", "-1 +%[2]d 1e-0%[2]d", "spread    %[1]d", "a b c", "0x1f0x2", "1.2.%[1]d..4", "size %[2]d.%[1]dGiB", "(%[2]d.)",
}

// drawn returns random lines of a few ranks in order of time.
func drawn(t *rapid.T) []Line {
	var lines []Line
	now := 0
	world := rapid.IntRange(1, 12).Draw(t, "world")
	for range rapid.IntRange(1, 60).Draw(t, "events") {
		now += rapid.SampledFrom([]int{0, 0, 0, 1, 5, 30, 160}).Draw(t, "pause")
		texts := rapid.SliceOfN(rapid.IntRange(0, len(vocabulary)-1), 1, 4).Draw(t, "texts")
		of := rapid.SampledFrom([]Ranks{World(world), {{0, 0}}, {{world - 1, world - 1}}, {{0, world / 2}}}).Draw(t, "ranks")
		same, stream := rapid.IntRange(0, 9).Draw(t, "number"), Stream(rapid.IntRange(1, 2).Draw(t, "stream"))
		for rank := range of.All() {
			for _, text := range texts {
				if text = 0 + text; strings.Contains(vocabulary[text], "%[") {
					lines = append(lines, Line{rank, stream, fmt.Appendf(nil, only(vocabulary[text]), rank, same), at(float64(now))})
				} else {
					lines = append(lines, Line{rank, stream, []byte(vocabulary[text]), at(float64(now))})
				}
			}
		}
	}
	return lines
}

// only makes a format use both of its arguments, without more output.
func only(format string) string { return format + "%[1]*.0[2]s" }

// TestWorlds checks for random lines that no line is lost or shown wrongly, that blocks keep their
// order, and that each line is returned in time.
func TestWorlds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines := drawn(t)
		f := New(0, World(rapid.IntRange(0, 12).Draw(t, "expected")))
		o := watched(f)
		for _, l := range lines {
			for due, open := f.Due(); open && !due.After(l.At); due, open = f.Due() {
				given(t, o, f.Tick(due), due)
			}
			given(t, o, o.add(l), l.At)
			if rapid.IntRange(0, 40).Draw(t, "change") == 0 {
				f.Expect(World(rapid.IntRange(0, 12).Draw(t, "live")))
			}
		}
		f.Flush()
		if _, open := f.Due(); open || f.bytes != 0 {
			t.Fatalf("%d bytes after all", f.bytes)
		}
		if err := o.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// given checks that no line waits longer than the window.
func given(t *rapid.T, o *oracle, _ []Group, now time.Time) {
	for i := len(o.group) - 1; i >= 0 && now.Sub(o.lines[i].At) < 3*Window; i-- {
		if o.group[i] < 0 && now.Sub(o.lines[i].At) > Window {
			t.Fatalf("line %d waits since %v at %v", i+1, o.lines[i].At, now)
		}
	}
	if o.err != nil {
		t.Fatal(o.err)
	}
}

// TestAgain checks that the same lines give the same groups.
func TestAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines := drawn(t)
		run := func() (got []string) {
			f := New(0, World(12))
			for _, l := range lines {
				for _, g := range f.Add(l) {
					got = append(got, fmt.Sprintf("%+v", g))
				}
			}
			for _, g := range f.Flush() {
				got = append(got, fmt.Sprintf("%+v", g))
			}
			return got
		}
		if a, b := run(), run(); !slices.Equal(a, b) {
			t.Fatalf("%q, and %q", a, b)
		}
	})
}

// TestBestFold checks that there is one group per line if ranks print the same program in order and
// within the window: no fold can be smaller.
func TestBestFold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		world := rapid.IntRange(1, 40).Draw(t, "world")
		program := rapid.SliceOfN(rapid.StringMatching(`[a-z]{1,3} [0-9]{1,3}( [0-9]{1,2}\.[0-9]{2})?`), 1, 30).Draw(t, "program")
		rnd := rand.New(rand.NewPCG(1, rapid.Uint64().Draw(t, "seed")))
		var lines []Line
		for rank := range world {
			late := time.Duration(rnd.IntN(100)) * time.Millisecond
			for i, text := range program {
				lines = append(lines, Line{rank, Stderr, []byte(text), begin.Add(late + time.Duration(i)*time.Microsecond)})
			}
		}
		slices.SortStableFunc(lines, func(a, b Line) int { return a.At.Compare(b.At) })
		f := New(0, World(world))
		var got []string
		for _, l := range lines {
			for _, g := range f.Add(l) {
				got = append(got, g.Text())
			}
		}
		for _, g := range f.Flush() {
			got = append(got, g.Text())
		}
		if len(program) < maxRepeats && !slices.Equal(got, program) {
			t.Fatalf("got %q, want %q", got, program)
		}
	})
}

// TestBounds checks that endless new lines, very long lines and one repeated line need bounded
// memory, and that all lines are returned.
func TestBounds(t *testing.T) {
	for name, text := range map[string]func(i int) string{
		"new words": func(i int) string {
			return fmt.Sprintf("%c%c%c%c said", 'a'+i%26, 'a'+i/26%26, 'a'+i/676%26, 'a'+i/17576%26)
		},
		"new numbers": func(i int) string { return fmt.Sprint("line ", i) },
		"bare":        func(i int) string { return fmt.Sprint(i) },
		"the same":    func(int) string { return "again" },
		"indented":    func(int) string { return "  again" },
		"long":        func(i int) string { return fmt.Sprint(strings.Repeat("x", 5000), i) },
		"values":      func(i int) string { return strings.Repeat(fmt.Sprint(i, " "), 200) },
	} {
		f := New(0, World(100_000))
		o := watched(f)
		for i := range 20_000 {
			o.add(Line{i % 3 * 49_999, Stdout, []byte(text(i)), begin})
			if l := f.stream(Stdout); l.groups > maxOpen || f.bytes > maxBytes || len(l.shapes) > maxShapes {
				t.Fatalf("%s: %d nodes, %d bytes, %d shapes", name, l.groups, f.bytes, len(l.shapes))
			}
		}
		f.Flush()
		if err := o.end(); err != nil || f.bytes != 0 || f.kept > maxKept {
			t.Errorf("%s: %d bytes, %d kept: %v", name, f.bytes, f.kept, err)
		}
	}
}

// TestManyRanks makes 100,000 ranks print, for the first time, lines that differ by nature: more
// lines than may be open.
func TestManyRanks(t *testing.T) {
	const world = 100_000
	f := New(0, World(world))
	o := watched(f)
	for rank := range world {
		o.add(Line{rank, Stdout, fmt.Appendf(nil, "rank %d pid %d up", rank, 7*rank), begin})
	}
	f.Flush()
	if err := o.end(); err != nil {
		t.Error(err)
	}
	if len(o.groups) > 8 {
		t.Errorf("%d groups:\n%s", len(o.groups), join(o.groups[:8]))
	}
}

func FuzzFolder(f *testing.F) {
	for _, text := range vocabulary {
		f.Add(text+"\n"+text, "other\n"+text)
	}
	f.Add("\x1b[0;31\n\x1b[", strings.Repeat("1 ", 300))
	f.Add("\x1b\x1b[+[", ".")
	f.Add("\x1b]0;x\a 1\x1bPq\x1b\\\x1b]\x1b]", "\x1b]"+strings.Repeat("x", 1001)+"\a")
	f.Add(strings.Repeat("y1", 3000), "\xff\xff1\xff\x01")
	f.Fuzz(func(t *testing.T, one, two string) {
		folder := New(0, World(3))
		o := watched(folder)
		for rank, text := range []string{one, two, one, two} {
			for line := range strings.SplitSeq(text, "\n") {
				o.add(Line{rank - rank/3*2, Stdout, []byte(line), begin})
			}
		}
		folder.Flush()
		if err := o.end(); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzScan checks that a shape with its values gives the line again.
func FuzzScan(f *testing.F) {
	for _, text := range vocabulary {
		f.Add([]byte(text))
	}
	s := &New(0, nil).scanner
	f.Fuzz(func(t *testing.T, line []byte) {
		s.line(line)
		shape := newShape(s)
		text, slot := "", 0
		for _, p := range shape.parts {
			if text += p.Text; p.Text == "" {
				v := s.spans[slot]
				if v.pad > v.begin || v.begin > v.end || slot > 0 && v.pad < s.spans[slot-1].end {
					t.Fatalf("values at %v of %q", s.spans, s.text)
				}
				text += string(s.text[v.pad:v.end])
				slot++
			}
		}
		if text != string(s.text) || slot != len(s.slots) {
			t.Fatalf("%q of %q", text, s.text)
		}
	})
}
