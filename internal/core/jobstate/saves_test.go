package jobstate

import (
	"net/netip"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

func TestSaves(t *testing.T) {
	at := func(second int) time.Time { return time.Unix(1_700_000_000+int64(second), 0) }
	type told struct {
		node   string
		second int
		state  job.SaveState
		path   string
		shared bool
		want   string
	}
	every := map[string]time.Duration{"one node": 20 * time.Second, "all nodes share it": 30 * time.Second, "one path for all": 9 * time.Second}
	for name, all := range map[string][]told{
		"one node": {
			{"n1", 10, job.SaveBegan, "/c/1", false, ""},
			{"n1", 20, job.SaveComplete, "/c/1", false, "/c/1"},
			{"n1", 30, job.SaveBegan, "/c/2", false, "/c/1"},
			{"n1", 40, job.SaveComplete, "/c/2", false, "/c/2"},
		},
		"each node has its own": {
			{"n1", 10, job.SaveBegan, "/c/1", false, ""},
			{"n2", 11, job.SaveBegan, "/c/1", false, ""},
			{"n2", 20, job.SaveComplete, "/c/1", false, ""},
			{"n1", 21, job.SaveComplete, "/c/1", false, "/c/1"},
		},
		"all nodes share it": {
			{"n1", 10, job.SaveBegan, "/c/1", true, ""},
			{"n2", 11, job.SaveBegan, "/c/1", true, ""},
			{"n2", 20, job.SaveComplete, "/c/1", true, "/c/1"},
			{"n1", 21, job.SaveComplete, "/c/1", true, "/c/1"},
			{"n1", 40, job.SaveBegan, "/c/2", true, "/c/1"},
			{"n1", 50, job.SaveComplete, "/c/2", true, "/c/2"},
			{"n2", 50, job.SaveComplete, "/c/2", true, "/c/2"},
		},
		"one path for all": {
			{"n1", 20, job.SaveComplete, "/c/last", false, "/c/last"},
			{"n1", 29, job.SaveComplete, "/c/last", false, "/c/last"},
		},
		"it was too fast to be seen": {{"n1", 20, job.SaveComplete, "/c/1", false, "/c/1"}},
		"it fails": {
			{"n1", 20, job.SaveComplete, "/c/1", false, "/c/1"}, {"n1", 30, job.SaveBegan, "/c/2", false, "/c/1"}, {"n1", 40, job.SavePartial, "/c/2", false, "/c/1"},
		},
		"a part of it fails": {
			{"n1", 10, job.SaveBegan, "/c/1", false, ""}, {"n2", 11, job.SaveBegan, "/c/1", false, ""}, {"n2", 20, job.SavePartial, "/c/1", false, ""}, {"n1", 21, job.SaveComplete, "/c/1", false, ""},
		},
		"an older one is proved later": {
			{"n1", 10, job.SaveBegan, "/c/1", false, ""},
			{"n1", 30, job.SaveBegan, "/c/2", false, ""},
			{"n1", 40, job.SaveComplete, "/c/2", false, "/c/2"},
			{"n1", 41, job.SaveComplete, "/c/1", false, "/c/2"},
		},
	} {
		var s saves
		for _, told := range all {
			ev := job.Saved{Node: told.node, State: told.state, Path: told.path, Shared: told.shared, At: at(told.second), Took: time.Second}
			switch told.state {
			case job.SaveBegan:
				s.begin(saveOf(ev), writer{told.node, 0})
			case job.SaveComplete:
				if save, complete := s.prove(saveOf(ev), writer{told.node, 0}, told.shared); complete {
					s.keep(save)
				}
			case job.SavePartial:
				s.fail(told.path, writer{told.node, 0})
			}
			if got := pathOf(s.last); got != told.want {
				t.Errorf("%s: after %v the last is %q, want %q", name, ev, got, told.want)
			}
		}
		if want, known := every[name]; known && s.every != want {
			t.Errorf("%s: a save every %v, want %v", name, s.every, want)
		}
		if len(s.inFlight) > 1 {
			t.Errorf("%s: %v are in flight", name, s.inFlight)
		}
	}
	var s saves
	for i := range 3 * maxInFlight {
		s.begin(report.Save{Path: string(rune('a' + i))}, writer{"n1", 0})
	}
	if len(s.inFlight) != maxInFlight {
		t.Error(len(s.inFlight), "in flight")
	}
}

// TestWrites has a checkpoint that is never completed, and a newer one.
func TestWrites(t *testing.T) {
	at := func(second int64) time.Time { return time.Unix(1_700_000_000+second, 0) }
	var s saves
	s.begin(report.Save{Path: "/c/1", Began: at(1)}, writer{"n1", 0})
	s.begin(report.Save{Path: "/c/2", Began: at(2)}, writer{"n1", 0})
	if !s.writes(0) || s.writes(1) {
		t.Error("it writes the newer one")
	}
	save, complete := s.prove(report.Save{Path: "/c/2", Began: at(2), Ended: at(3)}, writer{"n1", 0}, false)
	if s.keep(save); !complete || len(s.inFlight) != 1 || s.writes(0) {
		t.Errorf("complete: %v; %v are in flight, and it still writes: %v", complete, s.inFlight, s.writes(0))
	}
}

func pathOf(s *report.Save) string {
	if s == nil {
		return ""
	}
	return s.Path
}

// TestLeftCheckpoints checks that left checkpoints are reported for the attempt that the job
// prepares, when none of its ranks lives.
func TestLeftCheckpoints(t *testing.T) {
	s := New(job.Spec{ID: "j", Restart: job.RestartJob, Request: placement.Request{MinNodes: 1, MaxNodes: 1, PerNode: []int{1}}})
	s.Step(job.Joined{Node: placement.Node{Name: "n1", Addr: netip.MustParseAddr("10.0.0.1"), CPUs: 1}})
	for _, c := range []struct {
		node    string
		attempt int
		state   job.SaveState
		want    string
	}{
		{"n1", 0, job.SaveLeft, "the newest checkpoint /c/step-7 is not complete: cut; a program that takes the newest one loads it"},
		{"n1", 0, job.SaveSetAside, "the checkpoint /c/step-7 is set aside as /c/partial/step-7: cut"},
		{"n1", 1, job.SaveLeft, ""},
		{"n2", 0, job.SaveLeft, ""},
	} {
		if _, got := s.Step(job.Saved{Node: c.node, Attempt: c.attempt, State: c.state, Path: "/c/step-7", Why: "cut"}); got != c.want {
			t.Errorf("%v: %q, want %q", c, got, c.want)
		}
	}
}
