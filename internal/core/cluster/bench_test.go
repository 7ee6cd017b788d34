package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/placement"
)

const manyNodes = 10_000

func jobOf(id string, nodes int) Spec {
	return Spec{Job: job.Spec{ID: id, Request: placement.Request{MinNodes: nodes, MaxNodes: nodes, PerNode: []int{8}, GPU: true}}}
}

func filled(nodes int) *State {
	s := New()
	for i := range nodes {
		s.Step(time.Time{}, Joined{Node: machineOf(i, 8, 0)})
	}
	return s
}

// BenchmarkShortJobs submits and ends jobs of 1 node in a cluster of many nodes.
func BenchmarkShortJobs(b *testing.B) {
	s := filled(manyNodes)
	for i := 0; b.Loop(); i++ {
		id := fmt.Sprint(i)
		if out := s.Step(time.Time{}, Submitted{jobOf(id, 1)}); len(out.Steps) != 2 {
			b.Fatal(out)
		}
		s.Step(time.Time{}, Happened{id, job.Cancel{}})
		s.Forget(id)
	}
}

// BenchmarkGather adds the nodes while a job that needs all of them waits.
func BenchmarkGather(b *testing.B) {
	for b.Loop() {
		s := New()
		s.Step(time.Time{}, Submitted{jobOf("all", manyNodes)})
		for i := range manyNodes {
			s.Step(time.Time{}, Joined{Node: machineOf(i, 8, 0)})
		}
		if j, _ := s.Job("all"); j.Summary.Phase != job.Preparing {
			b.Fatal(j.Waits)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*manyNodes), "ns/node")
}

// BenchmarkFullQueue ends jobs of 1 node while a job that needs all nodes waits.
func BenchmarkFullQueue(b *testing.B) {
	for b.Loop() {
		s := filled(1000)
		for i := range 1000 {
			s.Step(time.Time{}, Submitted{jobOf(fmt.Sprint(i), 1)})
		}
		s.Step(time.Time{}, Submitted{jobOf("all", 1000)})
		for i := range 1000 {
			s.Step(time.Time{}, Happened{fmt.Sprint(i), job.Cancel{}})
		}
		if j, _ := s.Job("all"); j.Summary.Phase != job.Preparing {
			b.Fatal(j.Waits)
		}
	}
}
