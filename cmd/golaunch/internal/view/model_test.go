package view_test

import (
	"context"
	"errors"
	"iter"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/view/viewtest"
	"github.com/golaunch/golaunch/launcher"
	"github.com/golaunch/golaunch/launcher/report"
)

// live is a model that runs until the test ends, and its cluster.
func live(t *testing.T, c *viewtest.Cluster, o view.Options) *view.Model {
	t.Helper()
	if c.Began.IsZero() {
		c.Began = time.Now().Add(-20 * time.Minute)
	}
	c.Every = time.Second
	m := view.New(map[string]view.Source{"10.0.0.1:29400": c}, o)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { m.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return m
}

func TestModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := live(t, &viewtest.Cluster{Nodes: 16, Slow: -1}, view.Options{})
		if err := m.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		s := m.State()
		j := s.Job("llama-70b")
		if len(s.Nodes) != 16 || len(s.Jobs) != 4 || j == nil || len(j.Ranks) != 112 || s.Trouble != "" || s.Source != "10.0.0.1:29400" {
			t.Fatalf("%d nodes, %d jobs, %+v", len(s.Nodes), len(s.Jobs), j)
		}
		for i, r := range j.Ranks {
			if r.Rank != i || r.Node != j.Nodes[i/8] || len(r.Samples) < 120 || r.Heard.IsZero() || !(r.Now.GPUPower > 0) {
				t.Fatalf("rank %d is %+v with %d samples", i, r, len(r.Samples))
			}
			for k := 1; k < len(r.Samples); k++ {
				if !r.Samples[k].At.After(r.Samples[k-1].At) {
					t.Fatalf("rank %d: sample %d is not later than the one before", i, k)
				}
			}
		}
		p := j.Progress
		if left := p.Done.Sub(s.At); !(p.Step > 2790) || p.Total != 50_000 || math.Abs(p.StepTime-0.43) > 0.01 || left < 5*time.Hour || left > 6*time.Hour {
			t.Errorf("progress %+v, done in %v", p, left)
		}
		if n := s.Node("gpu0003"); n == nil || !(n.Now.Memory > 1e11) || n.Now.Ranks != 8 {
			t.Errorf("%+v", n)
		}
		if n := s.Node("gpu0015"); n == nil || !n.Heard.IsZero() || n.Silent == 0 {
			t.Errorf("of a node that says nothing: %+v", n)
		}
		if s.Node("nobody") != nil || s.Job("nothing") != nil {
			t.Error("what is not there is found")
		}
		before := len(j.Ranks[0].Samples)
		time.Sleep(5 * time.Second)
		if now := m.State().Job("llama-70b").Ranks[0].Samples; len(now) <= before || len(j.Ranks[0].Samples) != before {
			t.Errorf("%d samples and then %d; what was read has %d", before, len(now), len(j.Ranks[0].Samples))
		}
	})
}

// TestModelBearsTrouble: the model shows the error, keeps its state, and continues.
func TestModelBearsTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		c := &viewtest.Cluster{Nodes: 2, Slow: -1, Fails: func() error {
			if away.Load() {
				return errors.New("the coordinator does not answer")
			}
			return nil
		}}
		m := live(t, c, view.Options{})
		time.Sleep(3 * time.Second)
		away.Store(true)
		changed := m.Changed()
		time.Sleep(3 * time.Second)
		<-changed
		if s := m.State(); !strings.Contains(s.Trouble, "does not answer") || len(s.Jobs) != 3 || s.At.Sub(s.Answered) < 2*time.Second {
			t.Errorf("trouble %q, %d jobs, %v after its answer", s.Trouble, len(s.Jobs), s.At.Sub(s.Answered))
		}
		away.Store(false)
		time.Sleep(3 * time.Second)
		if s := m.State(); s.Trouble != "" || s.At.Sub(s.Answered) > time.Second || !s.Node("gpu0000").Heard.After(s.At.Add(-3*time.Second)) {
			t.Errorf("trouble %q, last report at %v", s.Trouble, s.Node("gpu0000").Heard)
		}
		away.Store(true)
		never := live(t, &viewtest.Cluster{Nodes: 2, Slow: -1, Fails: c.Fails}, view.Options{})
		if err := never.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "does not answer") {
			t.Errorf("a coordinator that was never there: %v", err)
		}
	})
}

// TestModelForgetsWhatIsOver: a model that looks for new sources forgets finished ones, and its
// state is not old because of that.
func TestModelForgetsWhatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var over atomic.Bool
		c := &viewtest.Cluster{Nodes: 2, Slow: -1, Began: time.Now().Add(-20 * time.Minute), Every: time.Second, Fails: func() error {
			if over.Load() {
				return launcher.ErrNotThere
			}
			return nil
		}}
		more := func(context.Context, func(string) bool) map[string]view.Source { return nil }
		m := live(t, c, view.Options{More: more})
		time.Sleep(3 * time.Second)
		over.Store(true)
		time.Sleep(3 * time.Second)
		if s := m.State(); s.Trouble != "" || len(s.Jobs) != 0 || s.Source != "" {
			t.Errorf("of what is over: %d jobs of %q, trouble %q", len(s.Jobs), s.Source, s.Trouble)
		}
	})
}

// TestModelNamesAStraggler: the rank became slow while it was watched.
func TestModelNamesAStraggler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &viewtest.Cluster{Nodes: 4, Slow: 13, SlowFrom: time.Now().Add(3 * time.Minute)}
		m := live(t, c, view.Options{Job: "llama-70b"})
		time.Sleep(2 * time.Minute)
		if s := m.State().Job("llama-70b").Slow; len(s.Findings) != 0 {
			t.Errorf("no rank is slow yet, but %v is named", s.Findings[0].Sentence(time.Now()))
		}
		time.Sleep(2 * time.Minute)
		s := m.State().Job("llama-70b").Slow
		if len(s.Findings) != 1 || len(s.Findings[0].Ranks) != 1 || s.Findings[0].Ranks[0] != 13 || s.Findings[0].Node != "gpu0001" || !(s.Ratio > 1) {
			t.Errorf("found %+v", s)
		}
	})
}

// TestPastOfAModel: a new model finds ranks that were slow before it began to watch.
func TestPastOfAModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &viewtest.Cluster{Nodes: 4, Slow: 13, Began: time.Now().Add(-time.Hour), SlowFrom: time.Now().Add(-3 * time.Minute)}
		m := live(t, c, view.Options{})
		time.Sleep(2 * time.Second)
		s := m.State()
		if f := s.Past().Job("llama-70b").Slow.Findings; len(f) != 1 || !slices.Equal(f[0].Ranks, []int{13}) {
			t.Errorf("found %+v", f)
		}
		if f := s.Job("llama-70b").Slow.Findings; len(f) > 0 {
			t.Errorf("the state itself has changed: %+v", f)
		}
	})
}

// apart is a cluster whose clocks differ by hours. Each of its nodes reports several seconds at
// once, at a different time.
type apart struct{ *viewtest.Cluster }

const batch = 15

func (c apart) Samples(ctx context.Context, q launcher.SampleQuery) iter.Seq2[launcher.NodeSamples, error] {
	return func(yield func(launcher.NodeSamples, error) bool) {
		waits := map[string][]report.Series{}
		heard := map[string]int{}
		for n, err := range c.Cluster.Samples(ctx, q) {
			if err != nil {
				yield(n, err)
				return
			}
			number := int(n.Node[len(n.Node)-1] - '0')
			behind := time.Duration(number-1) * time.Hour
			n.Now = n.Now.Add(behind)
			for i, s := range n.Series {
				if len(waits[n.Node]) == i {
					waits[n.Node] = append(waits[n.Node], report.Series{})
				}
				all := waits[n.Node][i].Samples
				for _, one := range s.Samples {
					one.At = one.At.Add(behind)
					all = append(all, one)
				}
				waits[n.Node][i], waits[n.Node][i].Samples = s, all
			}
			if heard[n.Node]++; heard[n.Node] > 1 && (heard[n.Node]+7*number)%batch != 0 {
				continue
			}
			n.Series = waits[n.Node]
			delete(waits, n.Node)
			if !yield(n, nil) {
				return
			}
		}
	}
}

// TestModelOfNodesApart: the slow rank and its cost are found although clocks differ and nodes
// report at different times; before that, no rank is named.
func TestModelOfNodesApart(t *testing.T) {
	for _, rank := range []int{3, 13, 20} { // ranks of different nodes
		synctest.Test(t, func(t *testing.T) {
			c := &viewtest.Cluster{
				Nodes: 4, Slow: rank, Began: time.Now().Add(-20 * time.Minute), SlowFrom: time.Now().Add(3 * time.Minute), Every: time.Second,
			}
			m := view.New(map[string]view.Source{"a": apart{c}}, view.Options{Every: batch * time.Second, History: time.Minute})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { m.Run(ctx); close(done) }()
			defer func() { cancel(); <-done }()
			for range 18 {
				time.Sleep(10 * time.Second)
				if s := m.State().Job("llama-70b").Slow; len(s.Findings) > 0 {
					t.Errorf("no rank is slow yet, but %v is named", s.Findings[0].Sentence(time.Now()))
				}
			}
			time.Sleep(2 * time.Minute)
			s := m.State()
			j := s.Job("llama-70b")
			if f := j.Slow.Findings; len(f) != 1 || !slices.Equal(f[0].Ranks, []int{rank}) || math.Abs(f[0].Slower-0.2) > 0.05 || math.Abs(f[0].Cost-0.167) > 0.03 {
				t.Errorf("rank %d is slow, but found is %+v", rank, j.Slow)
			}
			for _, r := range j.Ranks {
				if newest := s.At.Sub(r.Samples[len(r.Samples)-1].At); newest < 0 || newest > (batch+1)*time.Second {
					t.Errorf("rank %d was measured %v ago", r.Rank, newest)
				}
			}
		})
	}
}

// TestLook: one question finds the rank that became slow recently, with its cost.
func TestLook(t *testing.T) {
	c := &viewtest.Cluster{Nodes: 4, Slow: 13}
	look := func() ([]*view.Rank, view.Slow) {
		t.Helper()
		status, err := c.Query(t.Context(), report.Query{})
		if err != nil {
			t.Fatal(err)
		}
		ranks, slow, err := view.Look(t.Context(), c, status.Jobs[0], time.Second)
		if err != nil {
			t.Fatal(err)
		}
		return ranks, slow
	}
	synctest.Test(t, func(t *testing.T) {
		c.Began, c.SlowFrom = time.Now().Add(-time.Hour), time.Now().Add(-3*time.Minute)
		ranks, slow := look()
		shown := slow.Findings
		if len(ranks) != 24 || len(shown) != 1 {
			t.Fatalf("%d ranks, slow are %+v", len(ranks), shown)
		}
		s := shown[0]
		if s.Node != "gpu0001" || !slices.Equal(s.Ranks, []int{13}) || s.Whole || s.Slower < 0.15 || s.Slower > 0.3 || !(s.Cost >= 0.1) ||
			time.Since(s.Since) < 2*time.Minute || !strings.HasPrefix(s.Sentence(time.Now()), "gpu0001 r13: 1") || !strings.Contains(s.Sentence(time.Now()), "for 3 min; without it the job would be 1") {
			t.Errorf("%+v", s)
		}
		c.Slow = -1
		if _, slow := look(); len(slow.Findings) > 0 || slow.Ratio != 1 {
			t.Errorf("no rank is slow, but found %+v", slow)
		}
		c.Nodes = 200 // too many nodes for a question about their past
		ranks, slow = look()
		if len(ranks) != 175*8 || len(ranks[0].Samples) != 1 || len(slow.Findings) > 0 || slow.Ratio == slow.Ratio {
			t.Errorf("%d ranks with %d samples, %+v", len(ranks), len(ranks[0].Samples), slow)
		}
	})
}
