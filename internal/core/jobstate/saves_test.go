package jobstate

import (
	"net/netip"
	"strings"
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
		began := map[[2]string]int{} // by node and path
		for _, told := range all {
			ev := job.Saved{Node: told.node, State: told.state, Path: told.path, Shared: told.shared, At: at(told.second), Took: time.Second}
			if second, seen := began[[2]string{told.node, told.path}]; seen {
				ev.Took = at(told.second).Sub(at(second))
			}
			switch told.state {
			case job.SaveBegan:
				began[[2]string{told.node, told.path}] = told.second
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

// TestWrites checks what a unit writes if it never completes a checkpoint and then writes a newer
// one.
func TestWrites(t *testing.T) {
	at := func(second int64) time.Time { return time.Unix(1_700_000_000+second, 0) }
	var s saves
	s.begin(report.Save{Path: "/c/1", Began: at(1)}, writer{"n1", 0})
	s.begin(report.Save{Path: "/c/2", Began: at(2)}, writer{"n1", 0})
	if !s.writes(0) || s.writes(1) {
		t.Error("it writes the newer one")
	}
	save, complete := s.prove(report.Save{Path: "/c/2", Began: at(2), Ended: at(3)}, writer{"n1", 0}, false)
	if s.keep(save); !complete || len(s.inFlight) != 0 || s.writes(0) {
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

// TestOneGroupSaves announces the end of a job of replica groups, or the end of one group's node.
// At the end of the job, the checkpoint of one group counts for all, but no group is stopped while
// it writes.
func TestOneGroupSaves(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	for _, c := range []struct {
		name  string
		end   job.Event
		saves []job.Saved
		// stopped are the nodes that stop at each of the saves.
		stopped []string
	}{
		{
			"the job ends",
			job.Cancel{Code: 143, Within: time.Hour, AfterSave: true, At: at},
			[]job.Saved{{Node: "n0", State: job.SaveComplete, Path: "/c/1"}},
			[]string{"n0 n1 n2"},
		},
		{
			"a group writes",
			job.Cancel{Code: 143, Within: time.Hour, AfterSave: true, At: at},
			[]job.Saved{
				{Node: "n1", Unit: 1, State: job.SaveBegan, Path: "/own/1"},
				{Node: "n0", State: job.SaveComplete, Path: "/c/1"},
				{Node: "n1", Unit: 1, State: job.SaveComplete, Path: "/own/1"},
			},
			[]string{"", "n0 n2", "n1"},
		},
		{
			"a node leaves",
			job.Draining{Node: "n0", Within: time.Hour, At: at},
			[]job.Saved{{Node: "n1", Unit: 1, State: job.SaveComplete, Path: "/c/1"}, {Node: "n0", State: job.SaveComplete, Path: "/c/2"}},
			[]string{"", "n0"},
		},
	} {
		s := New(job.Spec{
			ID: "j", Restart: job.RestartGroup, Groups: 3, MinGroups: 1, Request: placement.Request{MinNodes: 3, MaxNodes: 3, PerNode: []int{1}},
		})
		var stopped []string
		var take func(ev job.Event)
		take = func(ev job.Event) {
			actions, _ := s.Step(ev)
			for _, a := range actions {
				switch a := a.(type) {
				case job.Prepare:
					take(job.Prepared{Node: a.Node, Unit: a.Unit, Attempt: a.Attempt, Port: 29500})
				case job.Start:
					take(job.Started{Node: a.Group.Node.Name, Unit: a.Unit, Attempt: a.Attempt})
				case job.Stop:
					stopped = append(stopped, a.Node)
				}
			}
		}
		for i := range byte(3) {
			take(job.Joined{Node: placement.Node{Name: "n" + string('0'+i), Addr: netip.AddrFrom4([4]byte{10, 0, 0, i})}})
		}
		take(c.end)
		for i, ev := range c.saves {
			ev.At, ev.Took, stopped = at.Add(time.Duration(i+1)*time.Minute), time.Second, nil
			take(ev)
			if got := strings.Join(stopped, " "); got != c.stopped[i] {
				t.Errorf("%s: after %v it stops %q, want %q", c.name, ev, got, c.stopped[i])
			}
		}
	}
}
