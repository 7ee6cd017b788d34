package cluster

import (
	"fmt"
	"slices"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/placement"
)

// enter puts a job into the queue, anew if it is there.
func (s *State) enter(e *entry) {
	s.leave(e)
	e.waits, e.tried, e.passed, e.nodes, e.gpus = true, false, false, 0, 0
	e.told, e.behind = "", nil
	if e.queue.first == e {
		e.queue.first = nil // it may need other nodes than before
	}
	e.repair = len(e.held) > 0 && e.state.LastCall() == 0
	e.queue.waiting = insert(e.queue.waiting, e, byTurn)
	e.queue.mark(s, false)
}

func (s *State) leave(e *entry) {
	if e.waits {
		e.waits = false
		e.queue.waiting = remove(e.queue.waiting, e, byTurn)
		e.queue.mark(s, false)
	}
}

// mark has a queue served at the end of the step.
func (q *queue) mark(s *State, better bool) {
	q.better = q.better || better
	if !q.dirty {
		q.dirty = true
		s.dirty = append(s.dirty, q)
	}
}

// serve gives waiting jobs what they can have.
func (s *State) serve() {
	for len(s.dirty) > 0 {
		q := s.dirty[0]
		s.dirty = s.dirty[1:]
		better := q.better
		q.dirty, q.better = false, false
		if better && q.shadow == nil {
			q.first = nil
		}
		for len(q.waiting) > 0 && s.first(q.waiting[0], better) {
		}
		s.rest(q, better)
		if better && len(q.waiting) == 0 {
			s.enlarge(q)
		}
	}
}

// enlarge gives jobs that run what nobody waits for.
func (s *State) enlarge(q *queue) {
	q.growing = slices.DeleteFunc(q.growing, func(e *entry) bool { return e.ended || !e.state.Grows() })
	for _, e := range slices.Clone(q.growing) {
		if plan, err := placement.Solve(e.state.Growth(), s.candidates(e, true, nil, 1, true)); err == nil {
			s.grant(e, plan, true)
		}
	}
}

// first tries the first of a queue, and says whether it got something.
func (s *State) first(e *entry, better bool) bool {
	e.passed = false
	if why := s.hopeless(e, better); why != "" {
		s.tell(e, why)
		return false
	}
	plan, whole, err := s.solve(e, nil)
	if err == nil {
		s.grant(e, plan, whole)
		return true
	}
	e.tried = true
	s.tell(e, err.Error())
	return s.restart(e)
}

// hopeless says why it is not worth while to try the first of a queue again; it is empty when it is. What changes with each node
// that comes is told here, in constant time.
func (s *State) hopeless(e *entry, better bool) string {
	switch {
	case e.queue.reservation != nil && len(e.queue.reservation.held) == 0:
		return "waiting for reservation " + e.Within + " to get its nodes"
	case !e.tried:
		return ""
	case e.nodes > s.usable:
		return fmt.Sprintf("cannot place the job yet: %d of %s are there", s.usable, count(e.nodes, "node"))
	case !better:
		return e.told
	case e.gpus > s.free:
		return fmt.Sprintf("cannot place the job yet: %d of the %s that it needs are free", s.free, count(e.gpus, "GPU"))
	}
	return ""
}

// rest starts what need not wait behind the first of a queue, and tells the others whom they wait behind.
func (s *State) rest(q *queue, better bool) {
	if len(q.waiting) < 2 {
		return
	}
	before := q.waiting[0]
	failed := map[string]bool{}
	for _, e := range slices.Clone(q.waiting[1:]) {
		e.tried = false
		if !e.waits || s.restart(e) {
			continue
		}
		if e.Backfill {
			better = s.cast(q) || better
			if s.backfill(e, better, failed) {
				continue
			}
		}
		if e.behind != before {
			s.tell(e, "waiting behind job "+before.Job.ID+", which needs "+needs(before))
			e.behind = before
		}
		before = e
	}
}

// restart lets a job that has enough, but not its most, begin with that.
func (s *State) restart(e *entry) bool {
	call := e.state.LastCall()
	if call == 0 || e.ended {
		return false
	}
	s.step(e, job.TimedOut{Kind: job.AlarmLastCall, Seq: call})
	return !e.waits
}

// tell says to a job why it waits, unless it knows.
func (s *State) tell(e *entry, why string) {
	e.behind = nil
	if e.told != why {
		s.step(e, job.Queued{Why: why})
	}
}

// grant gives a job the nodes of a plan that it does not hold: the smallest groups first, so that where sizes differ none takes
// the place of a larger one.
func (s *State) grant(e *entry, plan placement.Plan, whole bool) {
	groups := slices.Clone(plan.Groups)
	slices.SortStableFunc(groups, func(a, b placement.Group) int { return len(a.Bundles) - len(b.Bundles) })
	for _, g := range groups {
		if _, holds := e.held[g.Node.Name]; !holds && !e.ended {
			s.give(e, s.share(e, g))
		}
	}
	switch {
	case whole:
		s.leave(e)
	case e.waits:
		s.enter(e)
	}
	s.restart(e)
}

// backfill starts a job past the first of its queue, on nodes that this one does not need. Of jobs that ask for the same, those
// after the first that cannot start are not tried.
func (s *State) backfill(e *entry, better bool, failed map[string]bool) bool {
	if e.passed && !better || e.gpus > s.free && e.queue.reservation == nil {
		return false
	}
	alike := ""
	if len(e.held) == 0 {
		r, _, _ := e.state.Wants()
		if alike = fmt.Sprintf("%v %+v", e.GPUs, r); failed[alike] {
			return false
		}
	}
	plan, whole, err := s.solve(e, e.queue.shadow)
	if err != nil {
		e.passed, failed[alike] = true, alike != ""
		return false
	}
	s.grant(e, plan, whole)
	return !e.waits
}
