package jobstate

import (
	"fmt"
	"net/netip"
	"reflect"
	"testing"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// runningJob returns a job on nodes with 8 ranks each, which run.
func runningJob(t *testing.T, restart job.Restart, nodes int) *State {
	t.Helper()
	r := placement.Request{MinNodes: nodes, MaxNodes: nodes, PerNode: []int{8}}
	s := New(job.Spec{ID: "j", Request: r, Restart: restart, MaxRestarts: 1000})
	for i := range nodes {
		s.Step(job.Joined{Node: placement.Node{Name: fmt.Sprint("n", i), Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})}})
	}
	s.Step(job.Prepared{Node: "n0", Port: 1000})
	for i := range nodes - 1 {
		s.Step(job.Reached{Node: s.plan.slots[i+1].Node.Name, Seq: i + 1})
	}
	for i := range s.progress.units {
		for m := range s.progress.units[i].members {
			s.Step(job.Started{Node: s.plan.slots[s.progress.units[i].first+m].Node.Name, Unit: i})
		}
	}
	if s.Phase() != job.Running || s.budget.failing > 0 || s.progress.units[len(s.progress.units)-1].starting > 0 {
		t.Fatal(s.Summary().Waits)
	}
	return s
}

// failAll returns failed exits, with last words, of all ranks of a job that runningJob made.
func failAll(s *State) (events []job.Exited) {
	for i, sl := range s.plan.slots {
		for _, b := range sl.Bundles {
			for _, u := range s.unitsAt(i) {
				if _, ok := bundle(s.groupAt(&u, i), b.Rank); ok {
					events = append(events, job.Exited{
						Node: sl.Node.Name, Unit: u.id, Attempt: u.attempt, Rank: b.Rank, Exit: report.Exit{Code: 1}, Tail: echo, Traceback: echo, Kernel: "NVRM: Xid",
					})
				}
			}
		}
	}
	return events
}

// TestWeighsFew checks that the job wants and reads the evidence of only a few of the ranks that
// fail together, with any restart policy.
func TestWeighsFew(t *testing.T) {
	for _, restart := range []job.Restart{job.RestartJob, job.RestartNode, job.RestartRank} {
		t.Run(string(restart), func(t *testing.T) {
			s, bare := runningJob(t, restart, 40), runningJob(t, restart, 40)
			events := failAll(s)
			weighed := 0
			for _, ev := range events {
				stripped := ev
				if s.Weighs(ev) {
					weighed++
				} else {
					stripped.Tail, stripped.Traceback, stripped.Kernel = "", "", ""
				}
				actions, reason := s.Step(ev)
				if others, why := bare.Step(stripped); !reflect.DeepEqual(actions, others) || reason != why {
					t.Fatalf("with all words %v: %s; with those that count %v: %s", actions, reason, others, why)
				}
			}
			if weighed != maxWeighed || len(events) != 320 || !s.equals(bare) {
				t.Errorf("the words of %d of %d ranks count", weighed, len(events))
			}
			if ev := events[0]; s.Weighs(ev) {
				t.Errorf("%v counts again", ev)
			}
		})
	}
}

// TestWeighsAgain checks that further failures are weighed once a failure is decided.
func TestWeighsAgain(t *testing.T) {
	s := runningJob(t, job.RestartRank, 40)
	events := failAll(s)
	for _, ev := range events[:maxWeighed] {
		s.Step(ev)
	}
	next := events[maxWeighed]
	if s.Weighs(next) {
		t.Errorf("%v counts", next)
	}
	s.Step(job.Stopped{Node: events[0].Node, Unit: events[0].Unit})
	if !s.Weighs(next) {
		t.Errorf("%v does not count when another failure is decided", next)
	}
	for _, ev := range events[1:maxWeighed] {
		s.Step(job.Stopped{Node: ev.Node, Unit: ev.Unit})
	}
	if s.verdicts.weighed != 0 {
		t.Errorf("%d are still weighed", s.verdicts.weighed)
	}
	for _, ev := range []job.Exited{
		{Node: "none", Exit: report.Exit{Code: 1}},
		{Node: next.Node, Unit: next.Unit, Rank: next.Rank},
		{Node: next.Node, Unit: next.Unit, Attempt: 1, Rank: next.Rank, Exit: report.Exit{Code: 1}},
		{Node: next.Node, Unit: -1, Rank: next.Rank, Exit: report.Exit{Code: 1}},
	} {
		if s.Weighs(ev) {
			t.Errorf("%+v counts", ev)
		}
	}
}
