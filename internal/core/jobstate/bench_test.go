package jobstate

import (
	"fmt"
	"math"
	"net/netip"
	"testing"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// BenchmarkLifetime runs a job from its first node to its success.
func BenchmarkLifetime(b *testing.B) {
	for _, restart := range []job.Restart{job.RestartJob, job.RestartNode, job.RestartRank} {
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
			s, starts := placed(b, job.Spec{
				Restart: job.RestartRank, MaxRestarts: math.MaxInt, Request: placement.Request{MinNodes: nodes, MaxNodes: nodes, PerNode: []int{8}, GPU: true},
			})
			for _, a := range starts {
				o := a.(job.Start)
				s.Step(job.Started{Node: o.Group.Node.Name, Unit: o.Unit, Attempt: o.Attempt, PIDs: nil, RAS: nil, Imports: job.Imports{}})
			}
			s.Step(job.Lost{Node: starts[len(starts)-1].(job.Start).Group.Node.Name, Why: "it is gone"})
			first := starts[8].(job.Start)
			reports := 0
			for b.Loop() {
				for _, ev := range []job.Event{
					job.Exited{Node: first.Group.Node.Name, Unit: first.Unit, Attempt: first.Attempt, Rank: first.Group.Bundles[0].Rank, Exit: report.Exit{Code: 1}, Step: int64(first.Attempt + 1)},
					job.Stopped{Node: first.Group.Node.Name, Unit: first.Unit, Attempt: first.Attempt},
					job.Elapsed{Unit: first.Unit, Attempt: first.Attempt + 1},
				} {
					actions, _ := s.Step(ev)
					s.Wants()
					reports++
					for _, a := range actions {
						if again, ok := a.(job.Start); ok {
							first = again
						}
					}
				}
				s.Step(job.Started{Node: first.Group.Node.Name, Unit: first.Unit, Attempt: first.Attempt, PIDs: nil, RAS: nil, Imports: job.Imports{}})
			}
			if first.Attempt == 0 {
				b.Fatal("it was not started anew")
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(reports), "ns/report")
		})
	}
}

// lifetime runs a job from its first node to its success.
func lifetime(b *testing.B, restart job.Restart, nodes int) {
	s, starts := placed(b, job.Spec{Restart: restart, Request: placement.Request{MinNodes: nodes, MaxNodes: nodes, PerNode: []int{8}, GPU: true}})
	var last []job.Action
	for _, a := range starts {
		o := a.(job.Start)
		s.Step(job.Started{Node: o.Group.Node.Name, Unit: o.Unit, Attempt: o.Attempt, PIDs: nil, RAS: nil, Imports: job.Imports{}})
		for _, bundle := range o.Group.Bundles {
			s.Step(job.Exited{Node: o.Group.Node.Name, Unit: o.Unit, Attempt: o.Attempt, Rank: bundle.Rank})
		}
		last, _ = s.Step(job.Stopped{Node: o.Group.Node.Name, Unit: o.Unit, Attempt: o.Attempt})
	}
	if len(last) != 1 || last[0].(job.Finish).Result.Code != 0 {
		b.Fatalf("no success: %v", last)
	}
}

// placed returns a job whose nodes have orders to start.
func placed(b *testing.B, spec job.Spec) (s *State, starts []job.Action) {
	nodes := spec.Request.MinNodes
	s = New(spec)
	var ask job.Prepare
	for i := range nodes {
		addr := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		actions, _ := s.Step(job.Joined{Node: placement.Node{Name: fmt.Sprint("n", i), Addr: addr, GPUs: gpus(8)}})
		for _, a := range actions {
			if p, ok := a.(job.Prepare); ok {
				ask = p
			}
		}
	}
	asks, _ := s.Step(job.Prepared{Node: ask.Node, Unit: ask.Unit, Attempt: ask.Attempt, Port: 1024})
	for _, a := range asks {
		o := a.(job.Reach)
		starts, _ = s.Step(job.Reached{Node: o.Node, Seq: o.Seq})
	}
	return s, starts
}
