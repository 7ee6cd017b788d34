package cluster

import (
	"maps"
	"slices"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/placement"
)

// Step takes an event and returns the steps of jobs that the event caused. An event about an
// unknown job or node causes no steps. at is the time of the event: announcements to ranks count
// from it, and jobs are charged until then.
func (s *State) Step(at time.Time, ev Event) Outcome {
	s.at, s.out = at, Outcome{}
	switch ev := ev.(type) {
	case Submitted:
		s.submit(ev.Spec)
	case Joined:
		s.joined(ev)
	case Freed:
		s.freed(ev)
	case Lost:
		s.lost(ev)
	case Rejoined:
		s.rejoined(ev.Node)
	case Drain:
		s.drain(ev)
	case Avoid: // known from an earlier coordinator
		s.avoided[ev.Node] = ev.Why
	case Readmit:
		delete(s.avoided, ev.Node)
	case Limited:
		s.limits = ev.Limits
		s.queue.mark(s, true)
	case Happened:
		s.happened(ev)
	}
	s.serve()
	_, told := ev.(Happened)
	counts := func(st Step) bool { return !st.Stale }
	s.out.Stale = told && len(s.out.Leave) == 0 && !slices.ContainsFunc(s.out.Steps, counts)
	return s.out
}

func (s *State) submit(spec Spec) {
	e := s.add(spec)
	s.step(e, job.Submitted{})
	if spec.OnlyJob {
		for _, name := range sorted(s.nodes) {
			s.give(e, s.nodes[name].facts)
		}
	}
}

func (s *State) joined(ev Joined) {
	facts := ev.Node
	n := s.nodes[facts.Name]
	if n == nil {
		n = &clusterNode{since: s.at}
		s.nodes[facts.Name] = n
	} else {
		s.charge(n)
	}
	n.facts, n.kind = facts, s.spent.Begin(s.at, ev.Kind)
	s.refresh(n)
	s.queue.mark(s, true)
	for _, e := range slices.Clone(n.holders) {
		if e.inner != nil {
			e.inner.mark(s, true)
		}
		if !e.OnlyJob {
			s.step(e, job.Rejoined{Node: facts.Name})
		}
	}
	s.letLeave(n)
	if s.onlyJob != nil && !s.onlyJob.done {
		s.give(s.onlyJob, facts)
	}
}

// give tells a job about a node that it now holds.
func (s *State) give(e *entry, share placement.Node) {
	s.hold(e, share)
	s.step(e, job.Joined{Node: share})
}

// freed makes GPUs of a node available. The jobs' shares of the node stay the same.
func (s *State) freed(ev Freed) {
	n := s.nodes[ev.Node]
	if n == nil {
		return
	}
	gpus, changed := job.Freed(ev).Free(n.facts.GPUs)
	if !changed {
		return
	}
	n.facts.GPUs = gpus
	s.refresh(n)
	s.queue.mark(s, true)
	if e := s.onlyJob; e != nil && slices.Contains(n.holders, e) {
		s.handOver(e, n.facts)
		s.step(e, job.Freed(ev))
	}
}

func (s *State) lost(ev Lost) {
	n := s.nodes[ev.Node]
	if n == nil {
		return
	}
	s.forget(n)
	s.queue.mark(s, false)
	for _, e := range n.holders {
		s.takeBack(e, ev.Node)
	}
	s.dropShadows(n)
	for _, e := range n.holders {
		s.step(e, job.Lost{Node: ev.Node, Why: ev.Why})
	}
}

func (s *State) rejoined(name string) {
	if n := s.nodes[name]; n != nil {
		for _, e := range slices.Clone(n.holders) {
			s.step(e, job.Rejoined{Node: name})
		}
		s.letLeave(n)
	}
}

// letLeave orders a drained node that no job holds to leave. It repeats the order for a node that
// is back, because the node may have missed the order.
func (s *State) letLeave(n *clusterNode) {
	if n.drained && len(n.holders) == 0 && !slices.Contains(s.out.Leave, n.facts.Name) {
		s.out.Leave = append(s.out.Leave, n.facts.Name)
	}
}

func (s *State) drain(ev Drain) {
	n := s.nodes[ev.Node]
	if n == nil {
		return
	}
	if !n.drained {
		n.drained = true
		s.refresh(n)
		s.dropShadows(n)
		s.queue.mark(s, false)
		s.letLeave(n)
	}
	if ev.Leaves == nil {
		return
	}
	for _, e := range slices.Clone(n.holders) {
		s.step(e, *ev.Leaves)
	}
}

// dropGivenUp takes from a job the nodes that it has given up. It takes a node from a reservation
// only if the jobs within the reservation have given up the node too. It reports whether it took
// any node.
func (s *State) dropGivenUp(e *entry) (fewer bool) {
	for _, name := range sorted(e.leaving) {
		n := s.nodes[name]
		within := func(o *entry) bool { return o.queue.reservation == e }
		if e.state.Has(name) || n != nil && slices.ContainsFunc(n.holders, within) {
			continue
		}
		delete(e.leaving, name)
		if n != nil && slices.Contains(n.holders, e) {
			s.drop(e, n)
			e.queue.mark(s, true)
			fewer = true
		}
	}
	return fewer
}

func (s *State) happened(ev Happened) {
	e := s.jobs[ev.Job]
	switch {
	case e == nil || e.done:
	case e.ended:
		if c, ok := ev.Event.(job.Cancel); ok {
			s.cancelWithin(e, c)
		}
	default:
		if _, again := ev.Event.(job.Elapsed); again {
			s.exchange(e)
		}
		s.step(e, ev.Event)
		if out, ok := ev.Event.(job.TimedOut); ok && out.Kind == job.AlarmGrow && !e.state.Stale() {
			e.queue.mark(s, true)
		}
	}
}

// step steps a job and applies the consequences for the cluster.
func (s *State) step(e *entry, ev job.Event) {
	actions, reason := e.state.Step(ev)
	st := Step{
		Job: e.Job.ID, Event: ev, Actions: actions, Reason: reason, Changes: e.state.Changes(), Verdict: e.state.Judged(),
		Stale: e.state.Stale(),
	}
	over := e.ended
	e.note(ev, actions)
	s.noteQuarantined(e, actions)
	if _, first := ev.(job.Submitted); first && !e.OnlyJob {
		st.Reason = "in the queue"
	}
	if e.inner != nil {
		s.reserve(e, &st)
	}
	s.out.Steps = append(s.out.Steps, st)
	fewer := s.dropGivenUp(e)
	switch {
	case over:
	case e.ended:
		s.end(e, ev)
	case !e.OnlyJob:
		s.requeue(e, ev, actions)
	}
	if fewer && !e.OnlyJob && e.state.Wanting() {
		s.enter(e)
	}
	if res := e.queue.reservation; res != nil && s.dropGivenUp(res) && res.state.Wanting() {
		s.enter(res)
	}
}

// note records the effects of a job's step on the cluster.
func (e *entry) note(ev job.Event, actions []job.Action) {
	switch ev := ev.(type) {
	case job.Queued:
		e.wait.told = ev.Why
	case job.Joined:
		e.wait.told, e.wait.behind = "", nil
	case job.Draining:
		e.leaving[ev.Node] = true
	case job.TimedOut:
		if ev.Kind == job.AlarmGrow && e.state.Grows() && !slices.Contains(e.queue.growing, e) {
			e.queue.growing = append(e.queue.growing, e)
		}
	default: // it is about the job alone
	}
	if slices.ContainsFunc(actions, func(a job.Action) bool { _, ok := a.(job.Finish); return ok }) {
		e.ended = true
	}
}

// requeue puts a job into the queue when it begins to lack nodes, and takes it out of the queue
// when it no longer lacks any.
func (s *State) requeue(e *entry, ev job.Event, actions []job.Action) {
	_, lost := ev.(job.Lost)
	begins := lost || !e.wait.queued && (e.state.Replaced() || slices.ContainsFunc(actions, limitsWait))
	if !e.wait.queued && !begins {
		return
	}
	if !e.state.Wanting() {
		s.leave(e)
	} else if begins {
		s.enter(e)
	}
}

// limitsWait reports whether an action is an alarm that a job sets when it begins to wait for
// nodes.
func limitsWait(a job.Action) bool {
	alarm, ok := a.(job.Alarm)
	return ok && (alarm.Kind == job.AlarmPlacement || alarm.Kind == job.AlarmLastCall)
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
