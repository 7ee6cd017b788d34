package job

import (
	"fmt"
	"math"
	"net/netip"
	"testing"

	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// BenchmarkLifetime runs a job from its first node to its success.
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

// BenchmarkMissing reports a rank that fails and is started anew while another node is missing,
// which must cost nothing.
func BenchmarkMissing(b *testing.B) {
	for _, nodes := range []int{1_000, 10_000} {
		b.Run(fmt.Sprint(nodes), func(b *testing.B) {
			s, starts := placed(b, Spec{
				Restart: RestartRank, MaxRestarts: math.MaxInt, Request: placement.Request{MinNodes: nodes, MaxNodes: nodes, PerNode: []int{8}, GPU: true},
			})
			for _, a := range starts {
				o := a.(Start)
				s.Step(Started{o.Group.Node.Name, o.Unit, o.Attempt, nil, nil, Imports{}})
			}
			s.Step(Lost{Node: starts[len(starts)-1].(Start).Group.Node.Name, Why: "it is gone"})
			first := starts[8].(Start)
			reports := 0
			for b.Loop() {
				for _, ev := range []Event{
					Exited{Node: first.Group.Node.Name, Unit: first.Unit, Attempt: first.Attempt, Rank: first.Group.Bundles[0].Rank, Exit: report.Exit{Code: 1}, Step: int64(first.Attempt + 1)},
					Stopped{first.Group.Node.Name, first.Unit, first.Attempt},
					Elapsed{first.Unit, first.Attempt + 1},
				} {
					actions, _ := s.Step(ev)
					s.Wants()
					reports++
					for _, a := range actions {
						if again, ok := a.(Start); ok {
							first = again
						}
					}
				}
				s.Step(Started{first.Group.Node.Name, first.Unit, first.Attempt, nil, nil, Imports{}})
			}
			if first.Attempt == 0 {
				b.Fatal("it was not started anew")
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(reports), "ns/report")
		})
	}
}

// lifetime runs a job from its first node to its success.
func lifetime(b *testing.B, restart Restart, nodes int) {
	s, starts := placed(b, Spec{Restart: restart, Request: placement.Request{MinNodes: nodes, MaxNodes: nodes, PerNode: []int{8}, GPU: true}})
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

// placed returns a job whose nodes have orders to start.
func placed(b *testing.B, spec Spec) (s *State, starts []Action) {
	nodes := spec.Request.MinNodes
	s = New(spec)
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
	for _, a := range asks {
		o := a.(Reach)
		starts, _ = s.Step(Reached{Node: o.Node, Seq: o.Seq})
	}
	return s, starts
}
