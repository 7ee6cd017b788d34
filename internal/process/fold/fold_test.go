package fold

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

var begin = time.Unix(1_700_000_000, 0)

func at(ms float64) time.Time { return begin.Add(time.Duration(ms * float64(time.Millisecond))) }

// told is lines that ranks print at a time, in milliseconds; {r} is the rank.
type told struct {
	at    float64
	ranks Ranks
	text  string
}

func fold(f *Folder, all []told) (got []string) {
	add := func(groups []Group) {
		for _, g := range groups {
			got = append(got, g.String())
		}
	}
	for _, l := range all {
		for rank := range l.ranks.All() {
			text := strings.ReplaceAll(l.text, "{r}", fmt.Sprint(rank))
			for line := range strings.SplitSeq(text, "\n") {
				add(f.Add(Line{rank, Stdout, []byte(line), at(l.at)}))
			}
		}
	}
	add(f.Flush())
	return got
}

func TestFold(t *testing.T) {
	all := World(512)
	trace := "Traceback (most recent call last):\n  File \"train.py\", line 7, in main\nValueError: bad\nbye"
	for _, c := range []struct {
		name  string
		world int
		told  []told
		want  []string
	}{
		{
			"odd words and values stay apart", 512,
			[]told{
				{0, Of(0, 1, 2), "step 120 loss=0.41"},
				{1, Ranks{{3, 36}, {38, 500}}, "step 120 loss=0.43"},
				{2, Of(37), "step 120 loss=nan"},
				{3, Ranks{{501, 511}}, "step 120 loss=0.42"},
			},
			[]string{"[r0-511 -r37] step 120 loss=0.41..0.43", "[r37] step 120 loss=nan"},
		},
		{
			"a number far from the others", 512,
			[]told{{0, Ranks{{0, 254}}, "loss=0.41"}, {0, Of(255), "loss=8.1"}, {1, Ranks{{256, 511}}, "loss=0.43"}},
			[]string{"[r0-511 -r255] loss=0.41..0.43", "[r255] loss=8.1"},
		},
		{
			"another shape of a tensor", 512,
			[]told{{0, Of(0), "shape [4, 128]"}, {0, Of(1), "shape [4, 64]"}, {0, Of(2), "shape [4, 128, 1]"}, {1, Ranks{{3, 511}}, "shape [4, 128]"}},
			[]string{"[r0,3-511] shape [4, 128]", "[r1] shape [4, 64]", "[r2] shape [4, 128, 1]"},
		},
		{
			"steps that ranks come to at different times", 4,
			[]told{
				{0, World(4), "start"},
				{1, Of(0), "step 120 loss=0.5"},
				{2, Of(0), "step 121 loss=0.4"},
				{3, Of(1, 2, 3), "step 120 loss=0.6"},
				{4, Of(1, 2, 3), "step 121 loss=0.5"},
			},
			[]string{"[r0-3] start", "[r0-3] step 120 loss=0.5..0.6", "[r0-3] step 121 loss=0.4..0.5"},
		},
		{
			"what is the rank's own", 512,
			[]told{{0, all, "rank {r} pid 10{r} ready"}, {1, Of(7), "rank 7 odd"}, {200, all, "rank {r} pid 10{r} ready"}},
			[]string{"[r0-511] rank 0..511 pid 100..10511 ready", "[r7] rank 7 odd", "[r0-511] rank 0..511 pid 100..10511 ready"},
		},
		{
			"two ranks by their numbers", 2,
			[]told{{0, World(2), "rank {r} is up"}, {0, World(2), "port 29{r}"}},
			[]string{"[r0-1] rank 0..1 is up", "[r0] port 290", "[r1] port 291"},
		},
		{
			"a block of many", 4,
			[]told{{0, World(4), trace}},
			[]string{"[r0-3] Traceback (most recent call last):", "[r0-3]   File \"train.py\", line 7, in main", "[r0-3] ValueError: bad", "[r0-3] bye"},
		},
		{
			"blocks that part", 4,
			[]told{{0, Of(0), "one"}, {1, Of(0), trace}, {1, Of(2), "two"}, {2, Of(1), strings.Replace(trace, "bad", "worse", 1)}},
			[]string{
				"[r0] one", "[r0-1] Traceback (most recent call last):", "[r0-1]   File \"train.py\", line 7, in main", "[r1] ValueError: worse",
				"[r0] ValueError: bad", "[r0-1] bye", "[r2] two",
			},
		},
		{
			"threads that race", 3,
			[]told{{0, Of(0), "a"}, {0, Of(0), "b"}, {1, Of(1), "b"}, {1, Of(1), "a"}, {2, Of(2), "a"}, {3, Of(2), "b"}},
			[]string{"[r0-2] a", "[r0-2] b"},
		},
		{
			"lines of numbers fold only if they are equal", 8,
			[]told{{0, World(8), "{r} 5 0.1"}, {1, Of(0, 2, 4, 6), "7"}, {1, Of(1), "8"}},
			[]string{
				"[r0] 0 5 0.1", "[r0,2,4,6] 7", "[r1] 1 5 0.1", "[r1] 8", "[r2] 2 5 0.1", "[r3] 3 5 0.1", "[r4] 4 5 0.1", "[r5] 5 5 0.1",
				"[r6] 6 5 0.1", "[r7] 7 5 0.1",
			},
		},
		{
			"GPUs of nodes", 16,
			[]told{{0, Ranks{{0, 7}}, "device cuda:{r} name H100"}, {0, Of(8), "device cuda:0 name H100"}, {0, Of(9), "device cuda:1 name H100"}},
			[]string{"[r0-9] device cuda:0..7 name H100"},
		},
		{
			"colours, bars and alignment", 2,
			[]told{
				{0, Of(0), "\x1b[32mINFO\x1b[0m ok"},
				{0, Of(1), "INFO ok"},
				{0, Of(0), " 45%|####5     | 450/1000 [00:12<00:15, 36.1it/s]"},
				{0, Of(1), "old\r 45%|####6     | 450/1000 [00:12<00:14, 36.9it/s]\r"},
				{0, Of(0), "took   9.5 s"},
				{0, Of(1), "took  10.5 s"},
			},
			[]string{"[r0-1] INFO ok", "[r0-1]  45%|####6     | 450/1000 [00:12<00:14..15, 36.1..36.9it/s]", "[r0-1] took 9.5..10.5 s"},
		},
		{
			"what one rank repeats", 2,
			[]told{{0, Of(0), strings.Repeat("again\n", 99) + "again"}},
			append(slices.Repeat([]string{"[r0] again"}, maxRepeats), "[r0] again (84 lines)"),
		},
		{"a rank that cannot be", 2, []told{{0, Ranks{{-1, -1}}, "who"}}, []string{"[r-1] who"}},
	} {
		if got := fold(New(0, World(c.world)), c.told); !slices.Equal(got, c.want) {
			t.Errorf("%s:\ngot  %s\nwant %s", c.name, strings.Join(got, "\n     "), strings.Join(c.want, "\n     "))
		}
	}
}

// TestDue: a group is returned at once if no other rank is expected, and otherwise when the window
// of its first line ends.
func TestDue(t *testing.T) {
	f := New(0, World(3))
	say := func(rank int, text string, ms float64) []Group {
		return f.Add(Line{rank, Stdout, []byte(text), at(ms)})
	}
	say(0, "a", 0)
	say(1, "a", 10)
	if got := say(2, "a", 20); len(got) != 1 || !got[0].All || !got[0].First.Equal(at(0)) || !got[0].Last.Equal(at(20)) {
		t.Errorf("all have said it: %v", got)
	}
	say(1, "alone", 100)
	say(0, "later", 120)
	due, open := f.Due()
	if !open || !due.Equal(at(250)) || len(f.Tick(due.Add(-1))) != 0 {
		t.Errorf("due at %v", due)
	}
	if got := f.Tick(due); len(got) != 1 || got[0].Who() != "[r1]" || got[0].All {
		t.Errorf("due are %v", got)
	}
	if got := f.Expect(Of(0)); len(got) != 1 || got[0].Text() != "later" || !got[0].All {
		t.Errorf("nobody else lives: %v", got)
	}
	if got := f.Expect(Of(0, 2)); len(got) != 0 {
		t.Errorf("nothing waits: %v", got)
	}
	say(0, "b", 300)
	if got := say(2, "b", 10); len(got) != 1 || got[0].Who() != "[r0,2]" || !got[0].All || !got[0].Last.Equal(at(300)) {
		t.Errorf("of ranks with a gap, at a time that went back: %v", got)
	}
	f.Add(Line{0, Stdout, []byte("c"), at(400)})
	if got := f.Add(Line{2, Stderr, []byte("c"), at(400)}); len(got) != 0 || len(f.Flush()) != 2 {
		t.Errorf("streams fold: %v", got)
	}
}

// TestWho: Who names the ranks, or says "all that run" if there are too many ranges.
func TestWho(t *testing.T) {
	var odd []int
	for rank := 1; rank < 100; rank += 2 {
		odd = append(odd, rank)
	}
	for _, c := range []struct {
		ranks Ranks
		all   bool
		want  string
	}{
		{World(512), true, "[r0-511]"},
		{Of(0, 2, 3, 4), true, "[r0,2-4]"},
		{Of(odd...), true, "[all 50 that run]"},
		{Of(odd...), false, "[r1,3,5,7,9,11,13,15 +42 more]"},
	} {
		if got := (Group{Ranks: c.ranks, All: c.all}).Who(); got != c.want {
			t.Errorf("%v: %q, want %q", c.ranks, got, c.want)
		}
	}
}
