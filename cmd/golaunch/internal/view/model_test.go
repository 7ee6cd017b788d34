package view_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/view/viewtest"
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

// TestModelBearsTrouble says so, keeps what it knew, and goes on.
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
		if s := m.State(); !strings.Contains(s.Trouble, "does not answer") || len(s.Jobs) != 3 {
			t.Errorf("trouble %q, %d jobs", s.Trouble, len(s.Jobs))
		}
		away.Store(false)
		time.Sleep(3 * time.Second)
		if s := m.State(); s.Trouble != "" || !s.Node("gpu0000").Heard.After(s.At.Add(-3*time.Second)) {
			t.Errorf("trouble %q, heard %v", s.Trouble, s.Node("gpu0000").Heard)
		}
		away.Store(true)
		never := live(t, &viewtest.Cluster{Nodes: 2, Slow: -1, Fails: c.Fails}, view.Options{})
		if err := never.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "does not answer") {
			t.Errorf("a coordinator that was never there: %v", err)
		}
	})
}

// TestModelNamesAStraggler that became slow while somebody watched.
func TestModelNamesAStraggler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &viewtest.Cluster{Nodes: 4, Slow: 13, SlowFrom: time.Now().Add(3 * time.Minute)}
		m := live(t, c, view.Options{Job: "llama-70b"})
		time.Sleep(2 * time.Minute)
		if s := m.State().Job("llama-70b").Slow; len(s.Findings) != 0 {
			t.Errorf("nobody is slow yet, but %v is named", s.Findings[0].Sentence(time.Now()))
		}
		time.Sleep(2 * time.Minute)
		s := m.State().Job("llama-70b").Slow
		if len(s.Findings) != 1 || len(s.Findings[0].Ranks) != 1 || s.Findings[0].Ranks[0] != 13 || s.Findings[0].Node != "gpu0001" || !(s.Ratio > 1) {
			t.Errorf("found %+v", s)
		}
	})
}
