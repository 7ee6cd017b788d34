package cluster

import (
	"fmt"
	"slices"
	"strings"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/placement"
)

// exchange replaces each node that a job excludes with a free node before the job starts again. If
// no free node can take its place, the job keeps the excluded node.
func (s *State) exchange(e *entry) {
	if e.OnlyJob || e.wait.queued || e.yields != nil {
		return
	}
	for _, name := range e.state.Idle() {
		if _, holds := e.held[name]; holds && !e.leaving[name] && !s.yields(e) {
			s.replace(e, name)
		}
	}
}

// yields reports whether the first job in the queue needs repair and was submitted before this one.
func (s *State) yields(e *entry) bool {
	q := e.queue.waiting
	return len(q) > 0 && q[0].wait.repair && !q[0].wait.over && q[0].seq < e.seq
}

func (s *State) replace(e *entry, name string) {
	plan, ok := s.substitute(e, name)
	if !ok {
		return
	}
	why := fmt.Sprintf("%s takes its place, for it is excluded: %s", plan.Groups[0].Node.Name, e.state.Excluded()[name])
	s.step(e, job.Draining{Node: name, Why: why})
	_, whole, _ := e.state.Wants()
	s.grant(e, plan, whole)
}

// substitute finds a node that can take the place of an excluded node. Among the nodes that share
// the most levels of the network with the excluded node, it chooses the first in the job's order.
func (s *State) substitute(e *entry, name string) (placement.Plan, bool) {
	r := e.state.Instead(name)
	for sharing := 1; sharing <= e.queue.reservation.colocated(); sharing++ {
		all := s.candidates(e, false, nil, sharing, true)
		for above := s.nodes[name].facts.Labels[placement.TopologyLabel]; ; {
			above = above[:max(0, strings.LastIndexByte(above, '.'))]
			near := slices.DeleteFunc(slices.Clone(all), func(n placement.Node) bool {
				return above != "" && !strings.HasPrefix(n.Labels[placement.TopologyLabel], above+".")
			})
			if plan, err := placement.Solve(r, near); err == nil {
				return plan, true
			}
			if above == "" {
				break
			}
		}
	}
	return placement.Plan{}, false
}

// noteQuarantined notes the nodes whose hardware has failed in a job.
func (s *State) noteQuarantined(e *entry, actions []job.Action) {
	for _, a := range actions {
		if a, ok := a.(job.Quarantine); ok && !e.OnlyJob {
			s.avoided[a.Node] = fmt.Sprintf("%s in job %s", a.Why, e.Job.ID)
		}
	}
}

// avoids reports whether a job gets a node only if no other node suffices.
func (s *State) avoids(e *entry, node string) bool {
	_, avoided := s.avoided[node]
	return avoided || e.state.Excludes(node)
}

// avoidsAny reports whether a job avoids any node.
func (s *State) avoidsAny(e *entry) bool { return len(s.avoided) > 0 || e.state.ExcludesAny() }
