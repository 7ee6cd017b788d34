package agent

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/golaunch/golaunch/agent/internal/sampling"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/launcher/report"
)

// subject is what a series is about: a rank of a job, or the node itself.
type subject struct {
	job  string
	rank int
}

var nodeItself = subject{rank: -1}

// table is the newest data that a client has about the ranks of a job and about its nodes.
type table map[subject]report.Series

// watch asks for samples until they are as the test expects.
func (w *clusterAgent) watch(t testing.TB, q wire.Inquiry, enough func(table) bool) table {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	seen := table{}
	for a, err := range w.client.Inquire(ctx, q) {
		if err != nil {
			t.Fatalf("%v; seen %+v", err, seen)
		}
		for _, s := range a.Samples.Series {
			seen[subject{s.Job, s.Rank}] = s
		}
		if enough(seen) {
			return seen
		}
	}
	t.Fatalf("the answers end with %+v", seen)
	return nil
}

// TestSamples checks that samples show what a rank does, what it reports, and that it has ended.
func TestSamples(t *testing.T) {
	w := newClusterAgent(t)
	// Rank 0 computes, and reports its steps with past times, so that the time of a step does not
	// depend on the machine.
	a := w.submit(t, "a", `
		[ $RANK = 1 ] && { echo one; echo two; exit 0; }
		beat() { echo "$1" > new; touch -d "$2" new; mv new $GOLAUNCH_HEARTBEAT_FILE; }
		beat "10 500" "2026-01-01 00:00:00"
		until [ -e gate ]; do :; done
		beat "20 500" "2026-01-01 00:00:05"
		while :; do :; done`)
	every := wire.Question{About: wire.AboutSamples, Samples: wire.SampleFilter{Since: time.Hour, Every: time.Second}}
	rank0, rank1 := subject{"a", 0}, subject{"a", 1}
	seen := w.watch(t, wire.Inquiry{Job: "a", Question: every}, func(s table) bool {
		zero := s[rank0] // rank 0 also runs touch and mv at first
		return zero.Last().Step == 10 && zero.Last().CPUs > 0 && zero.Last().Processes == 1 && s[rank1].Exit != nil
	})
	one := seen[rank1]
	if one.Exit == nil || !one.Exit.OK() || one.Last().Lines != 2 || one.Last().LogBytes != 8 {
		t.Errorf("rank 1: %+v", one)
	}
	zero := seen[rank0]
	if zero.PID == 0 || zero.Exit != nil || zero.Last().Total != 500 || zero.Last().Memory < 1<<16 ||
		!math.IsNaN(zero.Last().StepTime) || !math.IsNaN(zero.Last().GPUPower) || zero.Last().BeatAge < 3600 {
		t.Errorf("rank 0: %+v", zero)
	}
	if err := os.WriteFile(filepath.Join(w.work, "gate"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	seen = w.watch(t, wire.Inquiry{Job: "a", Question: every}, func(s table) bool { return s[rank0].Last().Step == 20 })
	if got := seen[rank0].Last().StepTime; got != 0.5 {
		t.Errorf("10 steps in 5 s are %v s each", got)
	}
	once := wire.Question{About: wire.AboutSamples}
	seen = w.watch(t, wire.Inquiry{Question: once}, func(s table) bool { _, ok := s[nodeItself]; return ok })
	if node := seen[nodeItself]; node.Last().Ranks != 1 || node.Last().MemoryTotal < node.Last().Memory || node.Last().Memory <= 0 {
		t.Errorf("the node: %+v", node)
	}
	if _, err := w.client.Stop(t.Context(), "a", 143, "enough"); err != nil {
		t.Fatal(err)
	}
	over(t, a)
	for began := time.Now(); len(seen) != 1; {
		seen = w.watch(t, wire.Inquiry{Question: once}, func(s table) bool { _, ok := s[nodeItself]; return ok })
		if time.Since(began) > patience {
			t.Fatalf("after the end of the job there are %d series", len(seen))
		}
	}
}

// TestLooksAreApart checks that frequent questions measure the node at most once a second. Rates
// need time, and the table has little room for past samples.
func TestLooksAreApart(t *testing.T) {
	w := newClusterAgent(t)
	w.submit(t, "a", `while :; do sleep 1000; done`)
	began := time.Now()
	for range 30 {
		w.watch(t, wire.Inquiry{Question: wire.Question{About: wire.AboutSamples}}, func(table) bool { return true })
	}
	most := 2 + int(time.Since(began)/sampling.BusyEvery)
	past := wire.Question{About: wire.AboutSamples, Samples: wire.SampleFilter{Since: time.Hour}}
	all := w.watch(t, wire.Inquiry{Question: past}, func(table) bool { return true })[nodeItself].Samples
	if len(all) > most {
		t.Errorf("the node was looked at %d times in %v", len(all), time.Since(began))
	}
}

// BenchmarkLook measures one sample of eight ranks. A node takes such a sample every five seconds
// while no client asks.
func BenchmarkLook(b *testing.B) {
	w := newClusterAgent(b)
	w.submit(b, "a", `while :; do sleep 1000; done`)
	every := wire.Question{About: wire.AboutSamples, Samples: wire.SampleFilter{Every: time.Second}}
	w.watch(b, wire.Inquiry{Job: "a", Question: every}, func(s table) bool {
		return !math.IsNaN(s[subject{"a", 1}].Last().Memory)
	})
	for b.Loop() {
		w.sampler.Look(b.Context(), time.Now())
	}
}
