package cluster

import (
	"fmt"
	"slices"
	"strings"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/placement"
)

// exchange has a job that is about to start again give back the nodes that it excludes, each for another that is free. Without such
// a one it goes on with what it has.
func (s *State) exchange(e *entry) {
	if e.Sole || e.waits {
		return
	}
	for _, name := range e.state.Idle() {
		if _, holds := e.held[name]; holds && !e.leaving[name] && !s.overtakes(e) {
			s.replace(e, name)
		}
	}
}

// overtakes says that a job that must be repaired has waited for longer than this one.
func (s *State) overtakes(e *entry) bool {
	q := e.queue.waiting
	return len(q) > 0 && q[0].repair && q[0].seq < e.seq
}

func (s *State) replace(e *entry, name string) {
	plan, ok := s.another(e, name)
	if !ok {
		return
	}
	why := fmt.Sprintf("%s takes its place, for it is excluded: %s", plan.Groups[0].Node.Name, e.state.Excluded()[name])
	s.step(e, job.Draining{Node: name, Why: why})
	_, whole, _ := e.state.Wants()
	s.grant(e, plan, whole)
}

// another is a node that can take the place of one: of those that share most of its levels of the network, the first by the order of
// the job.
func (s *State) another(e *entry, name string) (placement.Plan, bool) {
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

// shun notes the nodes whose hardware has failed in a job.
func (s *State) shun(e *entry, actions []job.Action) {
	for _, a := range actions {
		if a, ok := a.(job.Quarantine); ok && !e.Sole {
			s.shunned[a.Node] = fmt.Sprintf("%s in job %s", a.Why, e.Job.ID)
		}
	}
}

// avoid is told what an earlier coordinator knew, and when it is over.
func (s *State) avoid(ev Avoid) {
	if ev.Why == "" {
		delete(s.shunned, ev.Node)
	} else {
		s.shunned[ev.Node] = ev.Why
	}
}

// avoids says that a job is given a node only if others will not do.
func (s *State) avoids(e *entry, node string) bool {
	return s.shunned[node] != "" || e.state.Excludes(node)
}

// picky says that there are such nodes.
func (s *State) picky(e *entry) bool { return len(s.shunned) > 0 || e.state.ExcludesAny() }
