package cluster

import (
	"fmt"
	"slices"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/words"
	"github.com/golaunch/golaunch/placement"
)

// enter puts a job into its queue, anew if it is there.
func (s *State) enter(e *entry) {
	s.leave(e)
	e.wait.begin(len(e.held) > 0 && e.state.LastCall() == 0)
	if e.queue.first == e {
		e.queue.first = nil // it may need other nodes than before
	}
	e.queue.waiting = insert(e.queue.waiting, e, byTurn)
	e.queue.mark(s, false)
}

func (s *State) leave(e *entry) {
	if e.wait.queued {
		e.queue.waiting = remove(e.queue.waiting, e, byTurn)
		e.wait.end()
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
		for len(q.waiting) > 0 && s.serveFirst(q.waiting[0], better) {
		}
		s.serveOthers(q, better)
		if better && len(q.waiting) == 0 {
			s.enlarge(q)
		}
	}
}

// serveFirst tries the first job of a queue, and reports whether it got something.
func (s *State) serveFirst(e *entry, better bool) bool {
	e.wait.skip(false)
	if why, futile := s.futile(e, better); futile {
		s.tell(e, why)
		return false
	}
	plan, whole, err := s.solve(e, nil)
	if err == nil {
		s.grant(e, plan, whole)
		return true
	}
	e.wait.try(true)
	s.tell(e, err.Error())
	return s.startWithLess(e)
}

// futile says why it is not worth while to try the first of a queue again. What changes with each
// node that joins is found here in constant time.
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

// serveOthers starts what need not wait behind the first of a queue, and tells the others which job
// they wait behind.
func (s *State) serveOthers(q *queue, better bool) {
	if len(q.waiting) < 2 {
		return
	}
	before := q.waiting[0]
	failed := map[string]bool{}
	for _, e := range slices.Clone(q.waiting[1:]) {
		e.wait.try(false)
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
			s.tell(e, "waiting behind job "+before.Job.ID+", which needs "+needs(before))
			e.wait.tellBehind(before)
		}
		before = e
	}
}

// enlarge gives running jobs what no other job waits for.
func (s *State) enlarge(q *queue) {
	q.growing = slices.DeleteFunc(q.growing, func(e *entry) bool { return e.ended || !e.state.Grows() })
	for _, e := range slices.Clone(q.growing) {
		if plan, err := placement.Solve(e.state.Growth(), s.candidates(e, true, nil, 1, true)); err == nil {
			s.grant(e, plan, true)
		}
	}
}

// startWithLess lets a job begin that has enough, but not its most, and reports whether it did.
func (s *State) startWithLess(e *entry) bool {
	call := e.state.LastCall()
	if call == 0 || e.ended {
		return false
	}
	s.step(e, job.TimedOut{Kind: job.AlarmLastCall, Seq: call})
	return !e.wait.queued
}

// tell reports to a job why it waits, unless that is unchanged.
func (s *State) tell(e *entry, why string) {
	e.wait.tellBehind(nil)
	if e.wait.told != why {
		s.step(e, job.Queued{Why: why})
	}
}

// grant gives a job the nodes of a plan that it does not hold: the smallest groups first, so that
// none takes the place of a larger one.
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

// backfill starts a job past the first of its queue, on nodes that the first does not need. Of jobs
// with the same request, it does not try those after the first that cannot start.
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
		e.wait.skip(true)
		failed[alike] = alike != ""
		return false
	}
	s.grant(e, plan, whole)
	return !e.wait.queued
}
