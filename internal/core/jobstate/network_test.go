package jobstate

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/nccl"
	"github.com/golaunch/golaunch/placement"
)

// onNetworks returns a gang with one GPU rank on a node of each network.
func onNetworks(networks ...string) *State {
	s := New(job.Spec{ID: "j", MaxRestarts: 1, Request: placement.Request{MinNodes: len(networks), MaxNodes: len(networks), PerNode: []int{1}, GPU: true}})
	for i, network := range networks {
		s.Step(job.Joined{Node: withNetwork(i, network)})
	}
	return s
}

func withNetwork(i int, network string) placement.Node {
	return placement.Node{
		Name: fmt.Sprint("n", i), Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), GPUs: gpus(1),
		Labels: map[string]string{nccl.Label: network},
	}
}

// begin answers all questions until the ranks start. It returns the network that each node is
// given, and the reason when all run.
func begin(s *State, attempt int) (networks map[string]string, reason string) {
	networks = map[string]string{}
	asks, _ := s.Step(job.Prepared{Node: s.plan.slots[0].Node.Name, Attempt: attempt, Port: 1000})
	starts := asks
	for _, a := range asks {
		if o, ok := a.(job.Reach); ok {
			starts, _ = s.Step(job.Reached{Node: o.Node, Seq: o.Seq})
		}
	}
	for _, a := range starts {
		o := a.(job.Start)
		networks[o.Group.Node.Name] = o.World.Network
		_, reason = s.Step(job.Started{Node: o.Group.Node.Name, Attempt: attempt})
	}
	return networks, reason
}

func TestNetworkIsWhatAllAgreeOn(t *testing.T) {
	const newer, older = "efa rdma libfabric=1.22.0 plugin=1.13.2", "efa rdma libfabric=1.17.0"
	for _, c := range []struct {
		name     string
		networks []string
		want     string
	}{
		{"the oldest versions", []string{newer, older, newer}, "efa rdma libfabric=1.17.0 plugin=1.13.2"},
		{"unknown", []string{"", "?"}, ""},
		{"one node", []string{newer}, ""},
	} {
		s := onNetworks(c.networks...)
		got, reason := begin(s, 0)
		for name, network := range got {
			if network != c.want {
				t.Errorf("%s: %s gets %q, want %q", c.name, name, network, c.want)
			}
		}
		if len(got) != len(c.networks) || reason != "attempt 0 runs" {
			t.Errorf("%s: %d nodes; %s", c.name, len(got), reason)
		}
	}
}

// TestNetworksThatDiffer checks that all nodes get TCP if their networks differ, with one message
// about it. When another node takes the place of the differing node, the nodes agree anew.
func TestNetworksThatDiffer(t *testing.T) {
	s := onNetworks("efa rdma", "efa rdma", "tcp")
	got, reason := begin(s, 0)
	if got["n0"] != "tcp rdma" || got["n2"] != "tcp rdma" {
		t.Errorf("%q", got)
	}
	if !strings.HasPrefix(reason, "attempt 0 runs; the nodes have no fabric in common") || !strings.Contains(reason, "2 of 3 have efa, n2 tcp") {
		t.Error(reason)
	}
	s.Step(job.Lost{Node: "n2", Why: "it is gone"})
	for _, name := range []string{"n0", "n1"} {
		s.Step(job.Stopped{Node: name})
	}
	s.Step(job.Joined{Node: withNetwork(3, "efa rdma")})
	s.Step(job.Elapsed{Attempt: 1})
	got, reason = begin(s, 1)
	if len(got) != 3 || got["n3"] != "efa rdma" || reason != "attempt 1 runs" {
		t.Errorf("%q; %s", got, reason)
	}
}
