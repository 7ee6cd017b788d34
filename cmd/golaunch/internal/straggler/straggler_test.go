package straggler

import (
	"math"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestSentence(t *testing.T) {
	f := Finding{
		Node: "n17", Ranks: []int{139}, Slower: 0.12, Cost: 0.09, Since: dawn, Signals: []Signal{Busy},
	}
	edit := func(change func(*Finding)) Finding {
		f := f
		change(&f)
		return f
	}
	for _, c := range []struct {
		finding Finding
		after   float64
		want    string
	}{
		{f, 240, "n17 r139: 12 % slower than the median for 4 min; without it the job would be 9 % faster (it works while others wait)"},
		{
			edit(func(f *Finding) { f.Ranks, f.Cost = []int{136, 137, 138, 140}, 0 }), 15,
			"n17 r136-138,r140: 12 % slower than the median for 15 s; without it alone the job would be no faster (it works while others wait)",
		},
		{
			edit(func(f *Finding) { f.Whole, f.Cost, f.Signals = true, math.NaN(), []Signal{Pace, Cadence} }), 3 * 3600,
			"n17: 12 % slower than the median for 3 h (its steps take longer, and its lines of output come more slowly)",
		},
		{
			edit(func(f *Finding) { f.Start = true }), 5,
			"n17 r139: 12 % slower than the median since the job began; without it the job would be 9 % faster (it works while others wait)",
		},
	} {
		if got := c.finding.Sentence(at(c.after)); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
	for s := range Dim + 1 {
		if s.String() == "" {
			t.Errorf("signal %d has no words", s)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for _, c := range []struct {
		place Place
		want  string
	}{
		{Place{Names: []string{"a"}, Node: []int{0, 1}}, "rank 1 is on node 1 of 1"},
		{Place{Names: []string{"a"}, Node: []int{-1}}, "rank 0 is on node -1"},
	} {
		if _, err := New(c.place); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

// TestNoFindingsWithoutSamples watches a job with one known rank: nothing can be found.
func TestNoFindingsWithoutSamples(t *testing.T) {
	w, err := New(Place{Names: []string{"a", "b"}, Node: []int{0, 1}})
	if err != nil {
		t.Fatal(err)
	}
	for second := range 300 {
		for r := range 3 { // the last rank does not exist
			w.Take(at(float64(second)), Nothing(r))
		}
		w.Take(at(float64(second)), Sample{Rank: 0, Power: 0.9, Use: 1, CPU: 1, Lines: float64(second)})
		w.Tick(at(float64(second)))
	}
	if got := w.Ratio(); len(w.Findings()) > 0 || got == got {
		t.Errorf("got %v and ratio %v, want nothing of one rank", w.Findings(), got)
	}
}

// TestIdle: if ranks use too little CPU for a judgment, no rank is called slow, and the job is not
// cleared either: their heartbeats and lines are alike, no matter which rank delays them.
func TestIdle(t *testing.T) {
	w, err := New(Place{Names: []string{"a", "b"}, Node: []int{0, 0, 1, 1}})
	if err != nil {
		t.Fatal(err)
	}
	for second := range 300 {
		now := at(float64(second))
		for r := range 4 {
			s := Nothing(r)
			s.CPU, s.Step, s.Beat, s.Lines = 0.05, int64(2*second), now, float64(2*second)
			w.Take(now, s)
		}
		w.Tick(now)
	}
	if got := w.Ratio(); len(w.Findings()) > 0 || got == got {
		t.Errorf("got %v and ratio %v, want nothing", w.Findings(), got)
	}
}

// TestEnds: a rank is named for as long as it is slow, and the same samples give the same findings.
func TestEnds(t *testing.T) {
	play := func() (said []string, ratio float64) {
		s := scene{told: all, kinds: []string{"gpu"}}
		w := s.of(4, layouts[3])
		w.save, w.eval, w.hiccups = phase{}, phase{}, 0
		w.fault = fault{kind: "gpu", ranks: []int{9}, by: 0.25, from: 200}
		w.run(400, func(c *clock, now float64) {
			if now >= 300 {
				w.fault.ranks = nil
			}
			for _, f := range c.to.Findings() {
				said = append(said, f.Sentence(at(now)))
			}
			ratio = c.to.Ratio()
			if named := len(c.to.Findings()) > 0; now > 220 && now < 300 && !named || now > 330 && named {
				t.Errorf("at %v named %v", now, c.to.Findings())
			}
			if ok := ratio > 1.15 && ratio < 1.35; now > 230 && now < 300 && !ok {
				t.Errorf("at %v the ratio is %v, want about 1.25", now, ratio)
			}
		})
		return said, ratio
	}
	said, ratio := play()
	again, _ := play()
	if !reflect.DeepEqual(said, again) || ratio != 1 {
		t.Errorf("the same samples gave other findings, or ratio %v is not 1 in the end", ratio)
	}
}

// TestTheLastRank: the last rank is not named if it was slow from the beginning: the last stage of
// a pipeline has more work.
func TestTheLastRank(t *testing.T) {
	s := scene{told: all, kinds: []string{"gpu"}}
	for _, rank := range []int{30, 31} {
		w := s.of(5, [4]int{4, 8, 1, 1})
		w.fault = fault{kind: "gpu", ranks: []int{rank}, by: 0.6}
		named := false
		w.run(200, func(c *clock, _ float64) {
			for _, f := range c.to.Findings() {
				named = named || f.Start && f.Ranks[0] == rank
			}
		})
		if named != (rank != 31) {
			t.Errorf("rank %d of 32 is slow from the beginning, named is %v", rank, named)
		}
	}
}

// TestAnything: with any samples, the findings stay within bounds.
func TestAnything(t *testing.T) {
	number := rapid.OneOf(rapid.Float64(), rapid.Float64Range(0, 2), rapid.Just(math.NaN()), rapid.Just(math.Inf(1)))
	rapid.Check(t, func(t *rapid.T) {
		p := Place{Names: []string{"a", "b", "c"}, Node: rapid.SliceOfN(rapid.IntRange(0, 2), 0, 12).Draw(t, "nodes")}
		w, err := New(p)
		if err != nil {
			t.Fatal(err)
		}
		now := dawn
		rank := rapid.IntRange(-1, len(p.Node))
		for range rapid.IntRange(0, 200).Draw(t, "ticks") {
			now = now.Add(time.Duration(rapid.Int64Range(-5, 5).Draw(t, "seconds")) * time.Second)
			s := Sample{
				Rank: rank.Draw(t, "rank"), Power: number.Draw(t, "power"), Use: number.Draw(t, "use"), CPU: number.Draw(t, "cpu"),
				Lines: number.Draw(t, "lines"), Step: rapid.Int64().Draw(t, "step"), Beat: now.Add(time.Duration(rapid.Int64().Draw(t, "beat"))),
			}
			w.Take(now, s)
			w.Tick(now)
			check(t, w, len(p.Node))
		}
	})
}

func check(t *rapid.T, w *Watch, ranks int) {
	for _, f := range w.Findings() {
		if len(f.Ranks) == 0 || len(f.Ranks) > ranks || !(f.Slower >= 0) || f.Cost > 1 || f.Cost < 0 || len(f.Signals) == 0 ||
			!(f.Confidence >= 0 && f.Confidence <= 1) {
			t.Fatalf("out of bounds: %+v", f)
		}
	}
	if r := w.Ratio(); r < 1 {
		t.Fatalf("ratio %v", r)
	}
}

// BenchmarkTick is a second of a job of 100,000 ranks: a sample of each, and a tick.
func BenchmarkTick(b *testing.B) {
	const ranks = 100_000
	p := Place{Names: make([]string, ranks/8), Node: make([]int, ranks)}
	for r := range p.Node {
		p.Node[r] = r / 8
	}
	w, err := New(p)
	if err != nil {
		b.Fatal(err)
	}
	second := 0
	samples := func() {
		second++
		for r := range ranks {
			power := 0.8 + 0.01*float64((r*7919+second*104729)%17)
			w.Take(at(float64(second)), Sample{r, power, 0.98, 1, int64(second), at(float64(second)), float64(second)})
		}
	}
	for range 100 {
		samples()
		w.Tick(at(float64(second)))
	}
	b.Run("samples", func(b *testing.B) {
		for b.Loop() {
			samples()
		}
	})
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	b.Run("tick", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			samples()
			b.StartTimer()
			w.Tick(at(float64(second)))
		}
		b.ReportMetric(float64(m.HeapAlloc)/ranks, "B/rank")
	})
}
