package jobstate

import (
	"github.com/golaunch/golaunch/internal/core/goodput"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/words"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// Step takes an event and returns the actions that follow, in order, and the reason. The reason is
// empty if nothing was decided, because the event was an expected report or a stale one. After
// [job.Finish] every event is stale.
func (s *State) Step(ev job.Event) (actions []job.Action, reason string) {
	s.step = step{stale: s.ending.finished}
	if s.ending.finished {
		return nil, ""
	}
	if s.timers.seq == 0 {
		s.arm(job.AlarmPlacement)
	}
	reason = words.Also(s.take(ev), s.endWhenReady())
	s.step.settleStale()
	if s.decided() && s.progress.live == 0 {
		s.ending.finish()
		s.quarantineLast()
		s.spendNothing(s.progress.units)
		s.step.do(job.Finish{Result: s.outcome()})
		reason = s.ending.result.Reason
	}
	return s.step.actions, reason
}

// Stale reports whether the event of the newest step changed nothing: a report of an earlier
// attempt or of a lost node, a repetition, or the answer of a timer that no longer matters. A
// record of the job can omit it.
func (s *State) Stale() bool { return s.step.stale }

// Replaced reports whether a spare took the place of a node in the newest step. The spare may have
// been meant for another place, and that place then lacks a node again.
func (s *State) Replaced() bool { return s.step.replaced }

// take handles one event. Once the end is decided, only events that affect the stop of the ranks
// matter.
func (s *State) take(ev job.Event) string {
	switch ev := ev.(type) {
	case job.Lost:
		return s.lost(ev)
	case job.Rejoined:
		return s.rejoined(ev)
	case job.Stopped:
		return s.stopped(ev)
	case job.Exited:
		return s.exited(ev)
	case job.Cancel:
		return s.cancel(ev)
	case job.Saved:
		return s.saved(ev)
	default:
		if s.decided() {
			return s.step.ignore()
		}
	}
	switch ev := ev.(type) {
	case job.Submitted:
		return s.wanting()
	case job.Joined:
		return s.joined(ev.Node)
	case job.Freed:
		return s.freed(ev)
	case job.Draining:
		return s.draining(ev)
	case job.Ready:
		return s.readied(ev)
	case job.Catching:
		return s.caught(ev)
	case job.Prepared:
		return s.prepared(ev)
	case job.Reached:
		return s.reached(ev)
	case job.Started:
		return s.started(ev)
	case job.Met:
		return s.met(ev)
	case job.Stalled:
		return s.stalled(ev)
	case job.Stepped:
		return s.stepped(ev)
	case job.Cohort:
		return s.formed(ev)
	case job.Elapsed:
		return s.elapsed(ev)
	case job.TimedOut:
		return s.timedOut(ev)
	case job.Queued:
		s.shortage.queue(ev.Why)
		return ev.Why
	default:
		return s.step.ignore()
	}
}

func (s *State) started(ev job.Started) string {
	u, m, sl, ok := s.find(ev.Node, ev.Unit, ev.Attempt)
	if !ok || m.started {
		return s.step.ignore()
	}
	s.progress.started(u, m, s.groupAt(u, sl.NodeRank), ev)
	s.roster.noteRan(ev.Node)
	if u.starting > 0 || u.phase != job.Running {
		return ""
	}
	s.spend(u, goodput.Training)
	s.budget.recovers(u)
	if s.budget.failing == 0 {
		for i := range s.masters.of {
			s.masters.of[i].forgiveAll()
		}
	}
	if s.spec.RefillAfter > 0 && s.restarted() && s.budget.failing == 0 {
		s.arm(job.AlarmRefill)
	}
	s.armGrow()
	return words.Also(words.Also(s.label(u)+" runs", s.plan.tellDiffering()), u.imports.Text(s.size(u)))
}

// exited records that a rank is done, or takes its failure for the root cause. Later failures are
// usually echoes of the first one. A node whose ranks have all ended reports that it has stopped,
// without an order.
func (s *State) exited(ev job.Exited) string {
	u, m, sl, ok := s.find(ev.Node, ev.Unit, ev.Attempt)
	if !ok {
		return s.step.ignore()
	}
	b, ok := bundle(s.groupAt(u, sl.NodeRank), ev.Rank)
	if !ok || s.progress.done[ev.Rank] {
		return s.step.ignore()
	}
	if !s.Weighs(ev) {
		ev.Tail, ev.Traceback, ev.Kernel = "", "", ""
	}
	switch {
	case u.phase != job.Running || s.decided():
		return s.exitedLate(u, b, ev)
	case !ev.Exit.OK() && ev.Exit.Started() && s.expendableRanks(u, 1):
		return s.loseRanks(u, m, ev.Failure(b.GPU).Why, b)
	case !ev.Exit.OK():
		f := s.fault(ev.Failure(b.GPU))
		s.step.judge(f.Verdict)
		if u.excuses(ev) {
			return words.Also(f.Why+" after the notice", s.vacate(u, *u.notice.departure))
		}
		return s.fail(f, u)
	}
	s.progress.exit(u, m, ev.Rank)
	if u.left > 0 {
		u.exitEarly(ev)
	}
	return s.ended(u)
}

// exitedLate records a rank that ends while its attempt is being stopped.
func (s *State) exitedLate(u *unit, b placement.Bundle, ev job.Exited) string {
	if !ev.Exit.OK() {
		return s.blame(u, ev.Failure(b.GPU), ev)
	}
	if u.early != nil && !ev.At.Before(u.early.At) {
		return s.step.ignore()
	}
	u.exitEarly(ev)
	if s.decided() && s.ending.fatal == u.id {
		r := s.ending.result
		s.ending.reword(r.Ending, r.Code, s.failureText(u))
	}
	return ""
}

func (s *State) stopped(ev job.Stopped) string {
	u, m, _, ok := s.find(ev.Node, ev.Unit, ev.Attempt)
	if !ok {
		return s.step.ignore()
	}
	s.progress.settle(u, m)
	switch {
	case s.decided(), u.phase == job.Stopping && u.live > 0:
		return ""
	case u.phase == job.Running && m.left > 0:
		f := report.Failure{Node: ev.Node, Rank: -1, Attempt: u.attempt, Why: ev.Node + " stopped before its ranks had ended"}
		return s.fail(s.fault(f), u)
	case u.phase == job.Running:
		return s.stopWhenReady(u)
	}
	return s.settle(u)
}

func (s *State) elapsed(ev job.Elapsed) string {
	if ev.Unit < 0 || ev.Unit >= len(s.progress.units) {
		return s.step.ignore()
	}
	u := &s.progress.units[ev.Unit]
	if u.phase != job.Backoff || u.attempt != ev.Attempt || s.departures.end != nil {
		return s.step.ignore()
	}
	return s.place(u)
}

// timedOut starts the job with the present nodes. If that is not possible and the placement limit
// is over, it ends the job.
func (s *State) timedOut(ev job.TimedOut) string {
	switch ev.Kind {
	case job.AlarmRefill:
		return s.refill(ev)
	case job.AlarmExclusion:
		return s.readmit(ev)
	case job.AlarmDeparture:
		return s.overdue(ev)
	case job.AlarmSave:
		return s.signalDue(ev)
	case job.AlarmGrow:
		return s.growTimerFired(ev)
	default: // a limit on waiting for nodes
	}
	if !s.timers.answers(ev) || !s.gathering() {
		return s.step.ignore()
	}
	s.timers.clear(ev.Kind)
	s.shortage.need(0)
	reason := ""
	if s.placesAll() {
		reason = s.placeAll(true)
	}
	if ev.Kind == job.AlarmLastCall || s.decided() || !s.gathering() {
		return reason
	}
	for len(s.shortage.homeless) > 0 && s.expendable(&s.progress.units[s.shortage.homeless[0]]) {
		u := &s.progress.units[s.shortage.homeless[0]]
		if reason = words.Also(reason, s.abandon(u, s.wanting())); s.decided() {
			return reason
		}
	}
	if !s.gathering() {
		return reason
	}
	return s.end(report.Result{Code: codeTimeout, Reason: "job timed out: " + s.wanting(), Cause: s.cause()})
}
