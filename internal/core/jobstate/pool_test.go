package jobstate

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/verdict"
	"github.com/golaunch/golaunch/placement"
)

// TestALateSpare checks that a job waits for a spare that has not joined yet, and for no further
// node.
func TestALateSpare(t *testing.T) {
	s := New(job.Spec{ID: "j", FixedPool: true, Pool: 3, MaxRestarts: 3, Request: placement.Request{MinNodes: 2, MaxNodes: 2, PerNode: []int{1}}})
	node := func(i int) placement.Node {
		return placement.Node{Name: fmt.Sprint("n", i), Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})}
	}
	s.Step(job.Submitted{})
	s.Step(job.Joined{Node: node(1)})
	s.Step(job.Joined{Node: node(2)})
	s.Step(job.Prepared{Node: "n1", Port: 1000})
	s.Step(job.Reached{Node: "n2", Seq: 1})
	s.Step(job.Lost{Node: "n2", Why: "power"})
	s.Step(job.Stopped{Node: "n1"})
	if _, reason := s.Step(job.Elapsed{Attempt: 1}); s.Phase() != job.Gathering {
		t.Fatalf("%s: %s", s.Phase(), reason)
	}
	if _, reason := s.Step(job.Joined{Node: node(3)}); s.Phase() != job.Preparing {
		t.Fatalf("%s: %s", s.Phase(), reason)
	}
	s.Step(job.Lost{Node: "n3", Why: "power"})
	if r, ok := s.Result(); !ok || r.Code != codeOwn || !strings.Contains(r.Reason, "no other can come") {
		t.Errorf("%+v, %v", r, ok)
	}
}

// TestLossBeforeTheFirstStart checks that a job that cannot start because of a lost node names the
// node.
func TestLossBeforeTheFirstStart(t *testing.T) {
	s := New(job.Spec{ID: "j", FixedPool: true, Pool: 2, MaxRestarts: 3, Request: placement.Request{MinNodes: 2, MaxNodes: 2, PerNode: []int{1}}})
	for i := range 2 {
		s.Step(job.Joined{Node: placement.Node{Name: fmt.Sprint("n", i), Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})}})
	}
	s.Step(job.Submitted{})
	s.Step(job.Lost{Node: "n1", Why: "power"})
	r, ok := s.Result()
	if f := r.Cause; !ok || f == nil || f.Node != "n1" || f.Attempt != 0 || f.Verdict != verdict.NodeLost {
		t.Errorf("%+v, %v", r, ok)
	}
}
