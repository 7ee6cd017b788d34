package replica

import (
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/placement"
)

// TestWorkAtRisk lets two ranks save 10 s after their start. It asks for the work at risk 30 s
// after that.
func TestWorkAtRisk(t *testing.T) {
	for _, restart := range []job.Restart{job.RestartJob, job.RestartRank} {
		began, s := time.Unix(1_700_000_000, 0).UTC(), New()
		apply := func(second int, e Entry) {
			e.At = began.Add(time.Duration(second) * time.Second)
			s.Apply(e)
		}
		happened := func(second int, ev job.Event) {
			apply(second, Entry{Event: cluster.Happened{Job: "j", Event: ev}})
		}
		n := placement.Node{Name: "n1", CPUs: 8}
		apply(0, Entry{Founded: &Founded{Format: Format, Epoch: "e"}})
		apply(0, Entry{Submitted: &Submission{Spec: cluster.Spec{Job: job.Spec{
			ID: "j", Restart: restart, Request: placement.Request{MinNodes: 1, MaxNodes: 1, PerNode: []int{2}},
		}}}})
		apply(0, Entry{Admitted: &Member{Node: n, Instance: "i"}})
		apply(0, Entry{Event: cluster.Joined{Node: n}})
		happened(0, job.Prepared{Node: "n1", Port: 1024})
		happened(0, job.Started{Node: "n1", PIDs: []int{7, 8}})
		if restart == job.RestartRank {
			happened(0, job.Started{Node: "n1", Unit: 1, PIDs: []int{8}})
		}
		happened(12, job.Saved{Node: "n1", State: job.SaveComplete, Path: "/c/1", Took: 2 * time.Second})
		if saves := s.Saves(s.Jobs["j"], began.Add(40*time.Second)); saves == nil || saves.AtRisk != 30 {
			t.Errorf("restart %s: %+v", restart, saves)
		}
	}
}
