package jobstate

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/placement"
)

// TestRoles counts the ranks of each role over the nodes that have it, in the order of node ranks.
func TestRoles(t *testing.T) {
	s := New(job.Spec{ID: "j", Request: placement.Request{MinNodes: 4, MaxNodes: 4, PerNode: []int{placement.AllGPUs}}})
	s.Step(job.Submitted{})
	for i, is := range []struct{ role, slots string }{{"trainer", "1"}, {"master", "2"}, {"trainer", "3"}, {"ps", "1"}} {
		s.Step(job.Joined{Node: placement.Node{
			Name: fmt.Sprint("n", i), Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}),
			Labels: map[string]string{placement.RoleLabel: is.role, placement.SlotsLabel: is.slots},
		}})
	}
	s.Step(job.Prepared{Node: "n0", Port: 1000})
	var starts []job.Start
	for i := 1; i < 4; i++ {
		actions, _ := s.Step(job.Reached{Node: fmt.Sprint("n", i), Seq: i})
		for _, a := range actions {
			if start, ok := a.(job.Start); ok {
				starts = append(starts, start)
			}
		}
	}
	want := []string{"0: 0 of 4", "1: 0 of 2", "3: 1 of 4", "6: 0 of 1"}
	for i, start := range starts {
		w := start.World
		if got := fmt.Sprintf("%d: %d of %d", start.Group.Bundles[0].Rank, w.RoleFirst, w.RoleSize); i >= len(want) || got != want[i] || w.WorldSize != 7 {
			t.Errorf("%s, of %d ranks, want %s", got, w.WorldSize, want[min(i, 3)])
		}
	}
	if len(starts) != len(want) {
		t.Errorf("%d nodes start", len(starts))
	}
}
