package capacity

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/placement"
)

// BenchmarkDecide makes a decision for 1,000 nodes and 10,000 jobs in the queue. The jobs are all
// alike, all for a GPU, or of many kinds. They wait behind a job that is blocked, or with backfill.
func BenchmarkDecide(b *testing.B) {
	kinds := []Kind{
		{Name: "a100-8", Node: gpus(8), Max: 1000, Idle: time.Minute, StartTimeout: time.Hour, Cost: 3},
		{Name: "h100-8", Node: gpus(8), Max: 500, Idle: time.Minute, StartTimeout: time.Hour, Cost: 9},
	}
	for _, c := range []struct {
		name string
		spec func(i int) cluster.Demand
	}{
		{"nodes", func(int) cluster.Demand { return cluster.Demand{Request: request(1, 8)} }},
		{"GPUs", func(int) cluster.Demand { return cluster.Demand{Request: request(1, 1)} }},
		{"backfill", func(i int) cluster.Demand {
			return cluster.Demand{Request: request(1+i%64, 1+i%8), Backfill: true}
		}},
		{"wide", func(i int) cluster.Demand { return cluster.Demand{Request: request(1+i%500, 8), Backfill: true} }},
	} {
		b.Run(c.name, func(b *testing.B) {
			pool := NewPool()
			pool.Apply(at(0), "EPOCHX", Requested{Kind: "a100-8", Nodes: 1000})
			s := Situation{Now: at(time.Minute), Kinds: kinds, Pool: pool}
			for i, claim := range pool.Sorted() {
				n := gpus(8)
				n.Name = fmt.Sprintf("n%d", i)
				pool.Joined(at(time.Second), n.Name, claim.Tag)
				s.Offers = append(s.Offers, cluster.Offer{Node: n, Free: n})
			}
			for i := range 10_000 {
				d := c.spec(i)
				d.Job = fmt.Sprint(i)
				s.Demands = append(s.Demands, d)
			}
			for b.Loop() {
				Decide(s)
			}
		})
	}
}

// BenchmarkCoordinator takes all the steps of a coordinator for a decision about a full cluster of
// 1,000 nodes with 10,000 jobs in the queue.
func BenchmarkCoordinator(b *testing.B) {
	const nodes, queued = 1000, 10_000
	state, pool := cluster.New(), NewPool()
	pool.Apply(at(0), "EPOCHX", Requested{Kind: "a100-8", Nodes: nodes})
	for i, claim := range pool.Sorted() {
		n := gpus(8)
		n.Name, n.Addr = fmt.Sprintf("n%d", i), netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
		pool.Joined(at(time.Second), n.Name, claim.Tag)
		state.Step(at(0), cluster.Joined{Node: n})
	}
	for i := range nodes + queued {
		r := request(1, 8)
		if i >= nodes {
			r = request(1+i%64, 1+i%8)
		}
		spec := cluster.Spec{Job: job.Spec{ID: fmt.Sprint(i), Request: r}, User: fmt.Sprint("user", i%100)}
		state.Step(at(0), cluster.Submitted{Spec: spec})
	}
	kinds := []Kind{{Name: "a100-8", Node: gpus(8), Max: 2000, Idle: time.Minute, StartTimeout: time.Hour, Cost: 3}}
	for b.Loop() {
		s := Situation{Now: at(time.Minute), Kinds: kinds, Pool: pool, Demands: state.Demands(), Offers: state.Offers()}
		if d := Decide(s); len(s.Demands) != queued || len(d.Actions) != 1 {
			b.Fatalf("%d demands, %v", len(s.Demands), d.Actions)
		}
	}
}

func gpus(n int) (node placement.Node) {
	for i := range n {
		node.GPUs = append(node.GPUs, placement.GPU{Index: i})
	}
	return node
}

func request(nodes, perNode int) placement.Request {
	return placement.Request{MinNodes: nodes, MaxNodes: nodes, PerNode: []int{perNode}, GPU: true}
}

func at(d time.Duration) time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(d) }
