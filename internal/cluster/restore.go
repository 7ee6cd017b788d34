package cluster

import (
	"fmt"
	"maps"
	"slices"

	"github.com/golaunch/golaunch/internal/goodput"
	"github.com/golaunch/golaunch/internal/job"
	"github.com/golaunch/golaunch/placement"
)

// Restore brings back a job from its recorded events, which are those of its [Step]s, after a coordinator's restart. Jobs are
// restored in the order of submission, before any Step. The nodes that they hold count as there, but nobody is given any of them
// until they have [Joined] again. That a node was drained is not recorded with jobs. What it returns has the changes of each event's
// [Step].
func (s *State) Restore(spec Spec, events []job.Event) (changes [][]goodput.Change, err error) {
	if s.jobs[spec.Job.ID] != nil {
		return nil, fmt.Errorf("restore job %s: it is there already", spec.Job.ID)
	}
	if res := s.jobs[spec.Within]; spec.Within != "" && (res == nil || res.inner == nil) {
		return nil, fmt.Errorf("restore job %s: there is no reservation %s; restore it first", spec.Job.ID, spec.Within)
	}
	e := s.add(spec)
	for _, ev := range events {
		switch ev := ev.(type) {
		case job.Joined:
			s.recall(e, ev.Node)
		case job.Lost:
			if n := s.nodes[ev.Node]; n != nil {
				s.drop(e, n)
			}
		default: // it moves no nodes
		}
		actions, _ := e.state.Step(ev)
		e.note(ev, actions)
		changes = append(changes, e.state.Changes())
		if e.inner == nil { // the jobs within a reservation are yet to come
			s.unload(e)
		}
	}
	if e.ended && e.inner == nil {
		s.settle(e)
	}
	return changes, nil
}

// recall notes that a job was given a node.
func (s *State) recall(e *entry, share placement.Node) {
	n := s.nodes[share.Name]
	if n == nil {
		n = &node{facts: share, absent: true}
		n.facts.GPUs = nil
		s.nodes[share.Name] = n
	}
	for _, g := range share.GPUs {
		if !has(n.facts.GPUs, g.Index) {
			n.facts.GPUs = append(n.facts.GPUs, g)
		}
	}
	s.hold(e, share)
}

// Resume follows the last Restore: it repeats what a coordinator must not forget when it starts again, the timers that are out
// and the ends of jobs, in steps without an event. Waiting jobs are tried as nodes come.
func (s *State) Resume() Outcome {
	s.out = Outcome{}
	for _, e := range s.bySubmission() {
		s.unload(e)
		if e.ended && !e.done {
			s.resumeEnd(e)
			continue
		}
		actions := e.state.Resume()
		if len(actions) > 0 {
			s.out.Steps = append(s.out.Steps, Step{Job: e.Job.ID, Actions: actions, Reason: "the coordinator is back"})
		}
		s.resumeWait(e)
	}
	for _, q := range s.dirty {
		q.dirty = false
	}
	s.dirty = nil
	return s.out
}

// resumeWait puts a job back into the queue. One that was not told why it waits and does not gather has what it needs already.
func (s *State) resumeWait(e *entry) {
	_, whole, wants := e.state.Wants()
	told := e.told
	if e.Sole || !wants || whole && told == "" && e.state.Phase() != job.Gathering {
		return
	}
	s.enter(e)
	if e.told = told; told == "" {
		s.tell(e, "waiting for nodes to be back after the coordinator's restart")
	}
}

// resumeEnd goes on with the end of a reservation.
func (s *State) resumeEnd(e *entry) {
	if len(e.inner.open) == 0 {
		s.conclude(e)
		return
	}
	result, _ := e.state.Result()
	for _, within := range slices.Clone(e.inner.open) {
		if _, ends := within.state.Result(); !ends {
			s.step(within, job.Cancel{Code: result.Code, Why: fmt.Sprintf("reservation %s has ended: %s", e.Job.ID, result.Reason)})
		}
	}
}

// bySubmission are all jobs in the order of submission.
func (s *State) bySubmission() []*entry { return slices.SortedFunc(maps.Values(s.jobs), bySubmission) }
