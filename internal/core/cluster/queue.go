package cluster

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/words"
	"github.com/golaunch/golaunch/placement"
)

// enter puts a job into its queue, or moves the job if it is there already.
func (s *State) enter(e *entry) {
	s.leave(e)
	if e.yields != nil {
		return // another job gets the nodes that the job still holds
	}
	e.wait = wait{queued: true, repair: len(e.held) > 0 && e.state.LastCall() == 0}
	if e.queue.first == e {
		e.queue.first = nil // the job may need other nodes than before
	}
	e.queue.waiting = insert(e.queue.waiting, e, s.byTurn)
	e.queue.mark(s, false)
}

func (s *State) leave(e *entry) {
	if e.wait.queued {
		e.queue.waiting = slices.DeleteFunc(e.queue.waiting, func(o *entry) bool { return o == e })
		e.wait.queued = false
		e.queue.mark(s, false)
	}
}

// mark notes that a queue must be served at the end of the step.
func (q *queue) mark(s *State, better bool) {
	q.better = q.better || better
	if !q.dirty {
		q.dirty = true
		s.dirty = append(s.dirty, q)
	}
}

// serve gives waiting jobs the nodes that they can have.
func (s *State) serve() {
	for len(s.dirty) > 0 {
		q := s.dirty[0]
		s.dirty = s.dirty[1:]
		better := q.better
		q.dirty, q.better = false, false
		if better && q.shadow == nil {
			q.first = nil
		}
		for s.order(q); len(q.waiting) > 0 && !q.waiting[0].wait.over && s.serveFirst(q.waiting[0], better); s.order(q) {
		}
		s.serveOthers(q, better)
		if better && len(q.waiting) == 0 {
			s.enlarge(q)
		}
	}
}

// order sorts a queue in the order of turns. This order changes when users get or give back GPUs.
func (s *State) order(q *queue) {
	if q.reservation == nil {
		ahead := map[purse]bool{}
		for _, e := range q.waiting {
			if e.wait.turn {
				ahead[e.purse()] = true
			}
		}
		for _, e := range q.waiting {
			e.wait.ahead, e.wait.over = ahead[e.purse()], s.exceeds(e)
		}
	}
	slices.SortStableFunc(q.waiting, s.byTurn)
}

// serveFirst tries the first job of a queue, and reports whether the job got any node.
func (s *State) serveFirst(e *entry, better bool) bool {
	e.wait.skipped = false
	why, futile := s.futile(e, better)
	if !futile {
		plan, whole, err := s.solve(e, nil)
		if err == nil {
			s.grant(e, plan, whole)
			return true
		}
		e.wait.tried = true
		why = err.Error()
	}
	e.wait.turn = true
	if (better || !futile) && s.preempt(e) && s.preempting(e) == "" {
		return false // the preempted jobs have given up their nodes at once, so serve tries this queue again
	}
	s.tell(e, cmp.Or(s.preempting(e), why))
	return !futile && s.startWithLess(e)
}

// futile says why another try to place the first job of a queue would be in vain. It takes constant
// time, because it is called for each node that joins.
func (s *State) futile(e *entry, better bool) (why string, futile bool) {
	switch {
	case e.queue.reservation != nil && len(e.queue.reservation.held) == 0:
		return "waiting for reservation " + e.Within + " to get its nodes", true
	case !e.wait.tried:
		return "", false
	case e.wait.nodes > s.usable:
		return fmt.Sprintf("cannot place the job yet: %d of %s are there", s.usable, words.Count(e.wait.nodes, "node")), true
	case !better:
		return e.wait.told, true
	case e.wait.gpus > s.free:
		return fmt.Sprintf("cannot place the job yet: %d of the %s that it needs are free", s.free, words.Count(e.wait.gpus, "GPU")), true
	}
	return "", false
}

// serveOthers starts jobs that need not wait behind the first job of a queue, and tells the other
// jobs which job is ahead of them.
func (s *State) serveOthers(q *queue, better bool) {
	if len(q.waiting) == 0 || len(q.waiting) == 1 && !q.waiting[0].wait.over {
		return
	}
	before := q.waiting[0]
	failed := map[string]bool{}
	for i, e := range slices.Clone(q.waiting) {
		if e.wait.over {
			if !s.startWithLess(e) {
				s.tell(e, s.limit(e))
			}
			continue
		} else if i == 0 {
			continue
		}
		e.wait.tried = false
		if !e.wait.queued || s.startWithLess(e) {
			continue
		}
		if e.Backfill {
			better = s.castShadow(q) || better
			if s.backfill(e, better, failed) {
				continue
			}
		}
		if e.wait.behind != before {
			s.tell(e, "waiting behind "+before.name(e)+", which needs "+needs(before))
			e.wait.behind = before
		}
		before = e
	}
}

// enlarge gives running jobs the nodes that no other job waits for.
func (s *State) enlarge(q *queue) {
	q.growing = slices.DeleteFunc(q.growing, func(e *entry) bool { return e.ended || !e.state.Grows() })
	for _, e := range slices.Clone(q.growing) {
		if plan, err := placement.Solve(s.capped(e, e.state.Growth(), true), s.candidates(e, true, nil, 1, true)); err == nil {
			s.grant(e, plan, true)
		}
	}
}

// startWithLess starts a job that has enough nodes, but fewer than it could use, and reports
// whether it did.
func (s *State) startWithLess(e *entry) bool {
	call := e.state.LastCall()
	if call == 0 || e.ended {
		return false
	}
	s.step(e, job.TimedOut{Kind: job.AlarmLastCall, Seq: call})
	return !e.wait.queued
}

// tell reports to a job why it waits, if the reason has changed.
func (s *State) tell(e *entry, why string) {
	e.wait.behind = nil
	if e.wait.told != why {
		s.step(e, job.Queued{Why: why})
	}
}

// grant gives a job the nodes of a plan that it does not hold. It gives the nodes of the smallest
// groups first. So no small group takes the place of a larger group.
func (s *State) grant(e *entry, plan placement.Plan, whole bool) {
	groups := slices.Clone(plan.Groups)
	slices.SortStableFunc(groups, func(a, b placement.Group) int { return len(a.Bundles) - len(b.Bundles) })
	for _, g := range groups {
		if _, holds := e.held[g.Node.Name]; !holds && !e.ended {
			s.give(e, s.usedBy(e, g))
		}
	}
	switch {
	case whole:
		s.leave(e)
	case e.wait.queued:
		s.enter(e)
	}
	s.startWithLess(e)
}

// backfill starts a job ahead of the first job of its queue, on nodes that the first job does not
// need. Once a job cannot start, no later job with the same request is tried.
func (s *State) backfill(e *entry, better bool, failed map[string]bool) bool {
	if e.wait.skipped && !better || e.wait.gpus > s.free && e.queue.reservation == nil {
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
		e.wait.skipped = true
		failed[alike] = alike != ""
		return false
	}
	s.grant(e, plan, whole)
	return !e.wait.queued
}
