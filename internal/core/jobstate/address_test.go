package jobstate

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/placement"
)

// TestOneAddress checks that only the nodes of one machine share an address, even after the first
// of them is gone.
func TestOneAddress(t *testing.T) {
	s := New(job.Spec{ID: "j", Request: placement.Request{MinNodes: 3, MaxNodes: 3, PerNode: []int{1}}})
	s.Step(job.Submitted{})
	join := func(name, machine string) string {
		n := placement.Node{Name: name, Addr: netip.MustParseAddr("10.0.0.1"), Labels: map[string]string{placement.MachineLabel: machine}}
		_, reason := s.Step(job.Joined{Node: n})
		return reason
	}
	refused := func(reason string) bool { return strings.Contains(reason, "its address 10.0.0.1 is") }
	for _, name := range []string{"a", "b"} {
		if reason := join(name, "m1"); refused(reason) {
			t.Error(reason)
		}
	}
	if reason := join("c", "m2"); !refused(reason) {
		t.Errorf("another machine: %s", reason)
	}
	s.Step(job.Lost{Node: "b", Why: "it is gone"})
	s.Step(job.Lost{Node: "a", Why: "it is gone"})
	if reason := join("c", "m2"); refused(reason) {
		t.Error(reason)
	}
	if reason := join("d", "m1"); !refused(reason) {
		t.Errorf("another machine: %s", reason)
	}
}
