package jobstate

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/verdict"
	"github.com/golaunch/golaunch/internal/core/words"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// The exit codes of golaunch itself. The first two have the meaning that timeout(1) gives them.
const (
	codeTimeout   = 124
	codeOwn       = 125
	codeCancelled = 130
)

// prepare starts a placed unit once the master's port is known and the unit's nodes reach the port.
func (s *State) prepare(u *unit) string {
	s.pass(u, job.Preparing)
	m := s.masterOf(u)
	if m.ported {
		s.reach(u)
		if len(m.pending) > 0 {
			return s.label(u) + ": " + s.portWait(u)
		}
		s.start(u)
		return s.starting(u)
	}
	if sl := s.plan.slots[m.home]; m.question == nil && !sl.vacant {
		m.ask(job.Prepare{
			Node: sl.Node.Name, Unit: u.id, Attempt: u.attempt, Fresh: s.gang() || s.grouped(), Peers: s.peers(),
			Ranks: len(s.groupAt(u, m.home).Bundles),
		})
		s.step.do(*m.question)
	}
	return s.label(u) + ": " + s.portWait(u)
}

// admit tells the masters about a node that took another node's place after they had chosen their
// ports.
func (s *State) admit() {
	told := map[int]bool{}
	for i := range s.masters.of {
		m := &s.masters.of[i]
		if sl := s.plan.slots[m.home]; m.ported && !sl.vacant && !told[m.home] {
			told[m.home] = true
			s.step.do(job.Admit{Node: sl.Node.Name, Peers: s.peers()})
		}
	}
}

// peers are the addresses of the nodes that have ranks.
func (s *State) peers() []netip.Addr {
	peers := make([]netip.Addr, 0, len(s.plan.slots))
	for _, sl := range s.plan.slots {
		if !sl.vacant {
			peers = append(append(peers, sl.Node.Addr), sl.Node.Others...)
		}
	}
	return peers
}

// start orders every node of a unit to start its ranks. No process of an earlier attempt lives,
// because settle has waited until all of them had ended.
func (s *State) start(u *unit) {
	s.pass(u, job.Running)
	s.progress.begin(u)
	s.masterOf(u).launch()
	s.timers.clear(job.AlarmGrow)
	s.plan.growth.setDue(false)
	s.departures.forget(everyNode) // this start completes an announced growth
	s.budget.attempt()
	for i := range u.members {
		s.progress.launch(u, i, s.orderStart(u, u.first+i))
	}
}

func (s *State) orderStart(u *unit, nodeRank int) placement.Group {
	g := s.groupAt(u, nodeRank)
	s.step.do(job.Start{
		Unit: u.id, Attempt: u.attempt, Group: g, World: s.worldAt(u, nodeRank),
		OwnRules: s.spec.Rules != "",
	})
	return g
}

// stop orders each node where processes of a unit may live to end these processes. A unit that was
// told already gets no further order.
func (s *State) stop(u *unit) {
	if u.told {
		return
	}
	u.setTold(true)
	for i, m := range u.members {
		if m.live {
			s.orderStop(u, u.first+i)
		}
	}
}

func (s *State) orderStop(u *unit, nodeRank int) {
	alarm, more := s.reprieve(u)
	s.step.do(job.Stop{
		Node: s.plan.slots[nodeRank].Node.Name, Unit: u.id, Attempt: u.attempt, Grace: s.spec.Grace + more, Kill: s.ending.cancels > 1,
		Evidence: u.evidence(s.ending.cancels), Signal: s.ending.signal, Alarm: alarm,
	})
}

// evidence says which evidence the nodes of a stopped unit keep. They keep none if the unit did not
// fail. They also keep none if a user cancels, because the user would have to wait for it.
func (u *unit) evidence(cancels int) job.Evidence {
	switch {
	case u.cause == nil || u.cause.departs || cancels > 0:
		return job.NoEvidence
	case u.cause.Hung:
		return job.HangEvidence
	}
	return job.CrashEvidence
}

// fail stops the units whose attempts a failure has ended. Either these units restart together,
// which counts as one restart, or the job ends.
func (s *State) fail(f *fault, units ...*unit) string {
	s.verdicts.weigh(f, f.Rank)
	for i, u := range units {
		own := f
		if i > 0 && s.grouped() { // each group has a budget of its own
			own = f.clone()
		}
		u.stopFor(own)
		s.budget.fails(u)
	}
	if r := s.refuseAtOnce(f); r.final {
		text := ""
		for _, u := range units {
			if text = words.Also(text, s.failed(u, r)); s.decided() {
				break
			}
		}
		return text
	}
	s.timers.clear(job.AlarmRefill)
	first := ""
	for i, u := range units {
		s.pass(u, job.Stopping)
		s.stop(u)
		next := s.settle(u)
		if s.decided() {
			return next
		}
		if i == 0 {
			first = next
		}
	}
	if more := len(units) - 1; more > 0 {
		first += fmt.Sprintf(", and %s with it", words.Count(more, "unit"))
	}
	return words.Also(f.Why, first)
}

// settle is the barrier: once no process of an ending attempt can live, the unit is done or waits
// for the next attempt.
func (s *State) settle(u *unit) string {
	if u.live > 0 {
		return s.stopWait(u.live)
	}
	if u.cause == nil || u.abandoned {
		s.pass(u, job.Finished)
		if s.progress.finish() && s.departures.end == nil { // if the end was announced, ranks may exit 0 before their work is done
			return s.end(report.Result{Reason: s.success()})
		}
		if u.abandoned {
			return s.letGoAll(u)
		}
		return words.Also(s.label(u)+" is done", s.letGoAll(u))
	}
	price := ""
	switch {
	case s.departures.end != nil:
		return words.Also(s.label(u)+" was the last", s.letGoAll(u))
	case u.cause.departs:
		if r := s.refuseAtOnce(u.cause); r.final {
			return s.failed(u, r)
		}
	}
	if !u.cause.decided {
		if price = s.decide(u); s.decided() || u.abandoned {
			return price
		}
	}
	s.pass(u, job.Backoff)
	if s.grouped() { // a new port has a new and empty store
		s.masterOf(u).renew()
	}
	u.next()
	wait := s.backoff(u)
	s.step.do(wait)
	next := s.label(u) + " follows"
	if wait.Restarts > 0 {
		next += " after a backoff"
	}
	return words.Also(price, words.Also(next, s.letGoAll(u)))
}

// backoff is the wait before the next attempt of a unit: none after a departure.
func (s *State) backoff(u *unit) job.Wait {
	w := job.Wait{Unit: u.id, Attempt: u.attempt, Restarts: s.tallyOf(u).streak, Long: u.cause.outside()}
	if u.cause.departs {
		w.Restarts = 0
	}
	return w
}

// end decides the end of the job. The job is finished when no process lives.
func (s *State) end(r report.Result) string {
	r.Attempts, r.Restarts, r.Ending = s.budget.attempts, s.budget.restarts, cmp.Or(r.Ending, endingFor(r.Code))
	r.Code = s.exitCode(r.Ending, r.Code)
	s.ending.decide(r)
	for i := range s.progress.units {
		s.stop(&s.progress.units[i])
		s.spendLast(&s.progress.units[i])
	}
	return words.Also(r.Reason, s.stopWait(s.progress.live))
}

// exitCode is the user's code for an ending, or else the given code.
func (s *State) exitCode(e report.Ending, code int) int { return cmp.Or(s.spec.ExitCodes[e], code) }

// endingFor is the ending that belongs to an exit code of golaunch's own.
func endingFor(code int) report.Ending {
	switch code {
	case 0:
		return report.EndSuccess
	case codeTimeout:
		return report.EndTimeout
	case codeOwn:
		return report.EndInfrastructure
	}
	return report.EndCancelled
}

// cause returns a failure whose restart has not begun, or nil. A departure is not a failure.
func (s *State) cause() *report.Failure {
	for i := range s.progress.units {
		if u := &s.progress.units[i]; u.cause != nil && !u.cause.departs {
			return new(u.failure())
		}
	}
	return nil
}

// budget counts attempts and failures.
type budget struct {
	attempts, restarts int
	// tally counts the failures of all units. Replica groups have tallies of their own instead.
	tally tally
	// failing counts the units that have failed and have not run again yet.
	failing int
}

// tally counts the failures of the job, or of one replica group. Each has its own budget.
type tally struct {
	// streak counts the restarts since the budget was last full. spent counts the restarts among
	// them that cost budget.
	streak, spent int
	// recurrence counts how often the same failure came in a row.
	recurrence verdict.Recurrence
}

func (s *State) tallyOf(u *unit) *tally {
	if s.grouped() {
		return &u.tally
	}
	return &s.budget.tally
}

// repeated reports whether the newest failure has been repeated too often for a restart to help.
func (t *tally) repeated() bool { return t.recurrence.Count >= verdict.Repeats }

// recur counts a failure, and returns the verdict on it. The verdict depends on how often the same
// failure came in a row.
func (t *tally) recur(f report.Failure, rules []verdict.Rule) report.Verdict {
	var means report.Verdict
	t.recurrence, means = t.recurrence.Next(f, rules...)
	return means
}

func (t *tally) restart(free bool) {
	t.streak++
	if !free {
		t.spent++
	}
}

func (t *tally) refill() { t.spent, t.streak = 0, 0 }

func (b *budget) attempt() { b.attempts++ }

func (b *budget) fails(u *unit) {
	if !u.failing {
		u.setFailing(true)
		b.failing++
	}
}

func (b *budget) recovers(u *unit) {
	if u.failing {
		u.setFailing(false)
		b.failing--
	}
}

func (b *budget) restart() { b.restarts++ }

// refill gives the budget back to a job that has run long enough without a failure.
func (s *State) refill(ev job.TimedOut) string {
	if !s.timers.answers(ev) {
		return s.step.ignore()
	}
	s.timers.clear(job.AlarmRefill)
	s.budget.tally.refill()
	for i := range s.progress.units {
		s.progress.units[i].tally.refill()
	}
	s.suspects.clearBlamed()
	return fmt.Sprintf("nothing has failed for %v: %s again", s.spec.RefillAfter, words.Count(s.spec.MaxRestarts, "restart"))
}

// restarted reports whether something has restarted since the budget was last full.
func (s *State) restarted() bool {
	return s.budget.tally.streak > 0 || slices.ContainsFunc(s.progress.units, func(u unit) bool { return u.tally.streak > 0 })
}
