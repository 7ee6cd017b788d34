package job

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/golaunch/golaunch/placement"
)

// BenchmarkLifetime is a job from its first node to its success: gather, prepare, start, exit and stop.
func BenchmarkLifetime(b *testing.B) {
	for _, restart := range []Restart{RestartJob, RestartNode, RestartRank} {
		for _, nodes := range []int{1_000, 10_000} {
			b.Run(fmt.Sprintf("%s/%dx8", restart, nodes), func(b *testing.B) {
				for b.Loop() {
					lifetime(b, restart, nodes)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*nodes), "ns/node")
			})
		}
	}
}

func lifetime(b *testing.B, restart Restart, nodes int) {
	s := New(Spec{Restart: restart, Request: placement.Request{MinNodes: nodes, MaxNodes: nodes, PerNode: []int{8}, GPU: true}})
	var ask Prepare
	for i := range nodes {
		addr := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		actions, _ := s.Step(Joined{placement.Node{Name: fmt.Sprint("n", i), Addr: addr, GPUs: gpus(8)}})
		for _, a := range actions {
			if p, ok := a.(Prepare); ok {
				ask = p
			}
		}
	}
	asks, _ := s.Step(Prepared{Node: ask.Node, Unit: ask.Unit, Attempt: ask.Attempt, Port: 1024})
	var starts []Action
	for _, a := range asks {
		o := a.(Reach)
		starts, _ = s.Step(Reached{Node: o.Node, Seq: o.Seq})
	}
	var last []Action
	for _, a := range starts {
		o := a.(Start)
		s.Step(Started{o.Group.Node.Name, o.Unit, o.Attempt, nil, nil, Imports{}})
		for _, bundle := range o.Group.Bundles {
			s.Step(Exited{Node: o.Group.Node.Name, Unit: o.Unit, Attempt: o.Attempt, Rank: bundle.Rank})
		}
		last, _ = s.Step(Stopped{o.Group.Node.Name, o.Unit, o.Attempt})
	}
	if len(last) != 1 || last[0].(Finish).Result.Code != 0 {
		b.Fatalf("no success: %v", last)
	}
}
