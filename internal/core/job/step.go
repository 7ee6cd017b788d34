package job

import (
	"cmp"
	"fmt"

	"github.com/golaunch/golaunch/internal/core/goodput"
	"github.com/golaunch/golaunch/launcher/report"
)

// Step takes what happened and returns what must now be done, in that order, and why. The reason is empty when the event decided
// nothing: a report that was expected, or a stale one. After [Finish] every event is stale.
func (s *State) Step(ev Event) (actions []Action, reason string) {
	s.step = step{stale: s.ending.finished}
	if s.ending.finished {
		return nil, ""
	}
	if s.timers.seq == 0 {
		s.arm(AlarmPlacement)
	}
	reason = also(s.take(ev), s.expire())
	s.step.stale = s.step.stale && len(s.step.actions) == 0
	if s.ending.result != nil && s.progress.live == 0 {
		s.ending.finished = true
		s.shunLast()
		s.spendNothing(s.progress.units)
		s.do(Finish{Result: s.outcome()})
		reason = s.ending.result.Reason
	}
	return s.step.actions, reason
}

// Stale says that the event of the newest step changed nothing: it was a report of an earlier attempt or of a lost node, a repetition, or
// the answer of a timer that does not matter any more. A record of the job can do without it.
func (s *State) Stale() bool { return s.step.stale }

// Replaced says that in the newest step a spare took the place of a node. It may have come for another place, which lacks a node again.
func (s *State) Replaced() bool { return s.step.replaced }

// ignore is the answer to an event that changes nothing.
func (s *State) ignore() string {
	s.step.stale = true
	return ""
}

// take handles one event. Once the end is decided, only what bears on the stopping of ranks matters.
func (s *State) take(ev Event) string {
	switch ev := ev.(type) {
	case Lost:
		return s.lost(ev)
	case Rejoined:
		return s.rejoined(ev)
	case Stopped:
		return s.stopped(ev)
	case Exited:
		return s.exited(ev)
	case Cancel:
		return s.cancel(ev)
	default:
		if s.ending.result != nil {
			return s.ignore()
		}
	}
	switch ev := ev.(type) {
	case Submitted:
		return s.wanting()
	case Joined:
		return s.joined(ev.Node)
	case Draining:
		return s.draining(ev)
	case Ready:
		return s.readied(ev)
	case Prepared:
		return s.prepared(ev)
	case Reached:
		return s.reached(ev)
	case Started:
		return s.started(ev)
	case Met:
		return s.met(ev)
	case Stalled:
		return s.stalled(ev)
	case Stepped:
		return s.stepped(ev)
	case Elapsed:
		return s.elapsed(ev)
	case TimedOut:
		return s.timedOut(ev)
	case Queued:
		s.shortage.queued = ev.Why
		return ev.Why
	default:
		return s.ignore()
	}
}

// asks says that a report answers a question, which may be nil.
func (p *Prepare) asks(ev Prepared) bool {
	return p != nil && p.Node == ev.Node && p.Unit == ev.Unit && p.Attempt == ev.Attempt
}

func (s *State) prepared(ev Prepared) string {
	if !s.master.question.asks(ev) {
		return s.ignore()
	}
	s.master.question = nil
	if !ev.Unable.OK() {
		return s.unable(0, Exited{Attempt: ev.Attempt, Exit: ev.Unable, At: ev.At})
	}
	if ev.Err != "" {
		f := Failure{Node: ev.Node, Rank: -1, Attempt: ev.Attempt, At: ev.At, Why: ev.Node + " has no port for the master: " + ev.Err}
		return s.end(Result{Code: codeOwn, Reason: "job failed: " + f.Why, Cause: &f})
	}
	s.master.ported, s.master.launched = true, false
	s.plan.world.MasterAddr, s.plan.world.MasterPort = s.plan.slots[0].Node.Addr.String(), ev.Port
	for i := range s.plan.slots {
		s.plan.slots[i].asked = i == 0 // the master need not prove it
	}
	for i := range s.progress.units {
		if u := &s.progress.units[i]; s.poised(u) {
			s.reach(u)
		}
	}
	if text := s.launch(); text != "" {
		return text
	}
	return s.portWait()
}

// unable ends the job for a node that could not start its ranks, the first of which would end so. Those of no other node have started for
// nothing.
func (s *State) unable(nodeRank int, first Exited) string {
	sl := s.plan.slots[nodeRank]
	first.Node, first.Rank = sl.Node.Name, sl.Bundles[0].Rank
	f := s.fault(failure(first, sl.Bundles[0])).Failure
	return s.end(Result{Code: code(f), Ending: report.EndProgram, Reason: "job failed: " + also(f.Why, "a restart would not help"), Cause: &f})
}

func (s *State) started(ev Started) string {
	u, m, sl, ok := s.find(ev.Node, ev.Unit, ev.Attempt)
	if !ok || m.started {
		return s.ignore()
	}
	m.started, s.roster.nodes[ev.Node].ran = true, true
	s.note(s.share(u, sl.NodeRank), ev.PIDs)
	u.imports.add(ev.Imports)
	u.starting--
	if u.starting > 0 || u.phase != Running {
		return ""
	}
	s.spend(u, goodput.Training)
	if u.sick {
		u.sick = false
		s.budget.failing--
	}
	if s.budget.failing == 0 {
		clear(s.master.missed)
	}
	if s.spec.RefillAfter > 0 && s.budget.streak > 0 && s.budget.failing == 0 {
		s.arm(AlarmRefill)
	}
	s.settleIn()
	text := also(also(s.label(u)+" runs", s.plan.differing), u.imports.words(s.size(u)))
	s.plan.differing = ""
	return text
}

// exited counts a rank out, or takes its failure for the root cause. What follows the first failure is its echo. A node whose
// ranks have all ended says stopped unasked.
func (s *State) exited(ev Exited) string {
	u, m, sl, ok := s.find(ev.Node, ev.Unit, ev.Attempt)
	if !ok {
		return s.ignore()
	}
	b, ok := bundle(s.share(u, sl.NodeRank), ev.Rank)
	if !ok || s.progress.done[ev.Rank] {
		return s.ignore()
	}
	if !s.Weighs(ev) {
		ev.Tail, ev.Traceback, ev.Kernel = "", "", ""
	}
	if u.phase != Running || s.ending.result != nil {
		if ev.Exit.OK() {
			if u.early != nil && !ev.At.Before(u.early.at) {
				return s.ignore()
			}
			u.leaves(ev)
			if s.ending.result != nil && s.ending.fatal == u.id {
				s.ending.result.Reason = s.lament(u)
			}
			return ""
		}
		return s.blame(u, failure(ev, b), ev)
	}
	if !ev.Exit.OK() {
		f := s.fault(failure(ev, b))
		s.step.judged = f.Verdict
		if u.excused(ev.Exit) {
			return also(f.Why+" after the notice", s.vacate(u, *u.notice))
		}
		return s.fail(f, u)
	}
	s.progress.done[ev.Rank] = true
	m.left--
	u.left--
	if u.left > 0 {
		u.leaves(ev)
		return ""
	}
	s.pass(u, Stopping)
	for i := range u.members { // what has done its work is not stopped for the end of the job
		s.unready(u, &u.members[i])
	}
	return also(s.label(u)+": all ranks exited 0", s.settle(u))
}

// excused says that the end of a rank is no failure: it was told that it will be stopped.
func (u *unit) excused(e report.Exit) bool { return u.notice != nil && e.Spawn == "" }

func (s *State) stopped(ev Stopped) string {
	u, m, _, ok := s.find(ev.Node, ev.Unit, ev.Attempt)
	if !ok {
		return s.ignore()
	}
	s.settled(u, m)
	switch {
	case s.ending.result != nil, u.phase == Stopping && u.live > 0:
		return ""
	case u.phase == Running && m.left > 0:
		f := Failure{Node: ev.Node, Rank: -1, Attempt: u.attempt, Why: ev.Node + " stopped before its ranks had ended"}
		return s.fail(s.fault(f), u)
	case u.phase == Running:
		return s.heeded(u)
	}
	return s.settle(u)
}

func (s *State) elapsed(ev Elapsed) string {
	if ev.Unit < 0 || ev.Unit >= len(s.progress.units) {
		return s.ignore()
	}
	u := &s.progress.units[ev.Unit]
	if u.phase != Backoff || u.attempt != ev.Attempt || s.departures.end != nil {
		return s.ignore()
	}
	return s.place(u)
}

// timedOut makes do with the nodes that are there, and ends the job when that is not possible and the placement limit is over.
func (s *State) timedOut(ev TimedOut) string {
	switch ev.Kind {
	case AlarmRefill:
		return s.refill(ev)
	case AlarmExclusion:
		return s.readmit(ev)
	case AlarmDeparture:
		return s.overdue(ev)
	case AlarmGrow:
		return s.ripen(ev)
	default: // a limit on waiting for nodes
	}
	if ev.Seq == 0 || ev.Seq != s.timers.armed[ev.Kind] || !s.gathering() {
		return s.ignore()
	}
	s.timers.armed[ev.Kind], s.shortage.enough = 0, 0
	reason := ""
	if s.whole() {
		reason = s.placeAll(true)
	}
	if ev.Kind == AlarmLastCall || s.ending.result != nil || !s.gathering() {
		return reason
	}
	return s.end(Result{Code: codeTimeout, Reason: "job timed out: " + s.wanting(), Cause: s.cause()})
}

// refill gives the budget back to a job that has run long enough without a failure.
func (s *State) refill(ev TimedOut) string {
	if ev.Seq == 0 || ev.Seq != s.timers.armed[AlarmRefill] {
		return s.ignore()
	}
	s.timers.armed[AlarmRefill], s.budget.spent, s.budget.streak = 0, 0, 0
	clear(s.suspects.blamed)
	return fmt.Sprintf("nothing has failed for %v: %s again", s.spec.RefillAfter, count(s.spec.MaxRestarts, "restart"))
}

func (s *State) cancel(ev Cancel) string {
	if s.departures.end != nil && s.departures.end.Code == ev.Code { // it was told before why
		ev.Ending = cmp.Or(ev.Ending, s.departures.end.Ending)
	}
	if ev.Within > 0 {
		return s.expires(ev)
	}
	if s.ending.cancels > 0 && ev.Once {
		return s.ignore()
	}
	if s.ending.cancels++; s.ending.cancels == 1 {
		s.ending.signal = ev.Signal
	}
	switch {
	case s.ending.cancels > 1:
		for i := range s.progress.units {
			s.progress.units[i].told = false
			s.stop(&s.progress.units[i])
		}
		return "cancelled again: killing what still runs"
	case s.ending.result != nil:
		return s.ending.result.Reason + "; still stopping; cancel again to kill"
	}
	r := ev.result()
	r.Cause = s.cause()
	return s.end(r)
}

func (ev Cancel) result() Result {
	what := "job cancelled: "
	switch {
	case ev.Code == codeOwn, ev.Ending == report.EndProgram:
		what = "job failed: "
	case ev.Ending == report.EndPreempted:
		what = "job preempted: "
	}
	return Result{Code: cmp.Or(ev.Code, codeCancelled), Ending: ev.Ending, Reason: what + ev.Why}
}
