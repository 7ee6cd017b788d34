package job

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// golaunch's own exit codes, the first two with the meaning that timeout(1) gives them.
const (
	codeTimeout   = 124
	codeOwn       = 125
	codeCancelled = 130
)

// prepare starts a placed unit once the master's port is known and the unit's nodes reach it.
func (s *State) prepare(u *unit) string {
	s.pass(u, Preparing)
	if s.master.ported {
		s.reach(u)
		if len(s.master.pending) > 0 {
			return s.label(u) + ": " + s.portWait()
		}
		s.start(u)
		return s.starting(u)
	}
	if sl := s.plan.slots[0]; s.master.question == nil && !sl.vacant {
		s.master.ask(Prepare{
			Node: sl.Node.Name, Unit: u.id, Attempt: u.attempt, Fresh: s.gang(), Peers: s.peers(), Ranks: len(sl.Bundles),
		})
		s.step.do(*s.master.question)
	}
	return s.label(u) + ": " + s.portWait()
}

// admit tells the master about a node that took the place of another one after the master gave its
// port.
func (s *State) admit() {
	if sl := s.plan.slots[0]; s.master.ported && !sl.vacant {
		s.step.do(Admit{Node: sl.Node.Name, Peers: s.peers()})
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

// start orders every node of a unit to start its ranks. No process of an earlier attempt lives:
// settle has seen to that.
func (s *State) start(u *unit) {
	s.pass(u, Running)
	s.progress.begin(u)
	s.master.launch()
	s.timers.clear(AlarmGrow)
	s.growth.setDue(false)
	s.departures.forget(everyNode) // the growth that this start ends
	s.budget.attempt()
	for i := range u.members {
		s.progress.launch(u, i, s.orderStart(u, u.first+i))
	}
}

func (s *State) orderStart(u *unit, nodeRank int) placement.Group {
	g := s.share(u, nodeRank)
	s.step.do(Start{
		Unit: u.id, Attempt: u.attempt, Group: g, World: s.plan.worldAt(nodeRank, s.spec.Request.GPU),
		OwnRules: s.spec.Rules != "",
	})
	return g
}

// stop orders the nodes where a unit may live to end it, once.
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
	s.step.do(Stop{
		Node: s.plan.slots[nodeRank].Node.Name, Unit: u.id, Attempt: u.attempt, Grace: s.spec.Grace, Kill: s.ending.cancels > 1,
		Evidence: u.evidence(s.ending.cancels), Signal: s.ending.signal,
	})
}

// evidence is what a stop should keep: nothing of a unit that did not fail, and nothing for which a
// user who cancels would have to wait.
func (u *unit) evidence(cancels int) Evidence {
	switch {
	case u.cause == nil || u.cause.departs || cancels > 0:
		return NoEvidence
	case u.cause.Hung:
		return HangEvidence
	}
	return CrashEvidence
}

// fail stops the units whose attempts a failure has ended. Together they restart at the price of
// one restart, or the job ends.
func (s *State) fail(f *fault, units ...*unit) string {
	s.weigh(f, f.Rank)
	for _, u := range units {
		u.stopFor(f)
		s.budget.fails(u)
	}
	if r := s.refuseAtOnce(f); r.final {
		return s.failed(units[0], r)
	}
	s.timers.clear(AlarmRefill)
	first := ""
	for i, u := range units {
		s.pass(u, Stopping)
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
		first += fmt.Sprintf(", and %s with it", count(more, "unit"))
	}
	return also(f.Why, first)
}

// settle is the barrier: once no process of an ending attempt can live, the unit is done or waits
// for its next attempt.
func (s *State) settle(u *unit) string {
	if u.live > 0 {
		return s.stopWait(u.live)
	}
	if u.cause == nil {
		s.pass(u, Finished)
		if s.progress.succeed() && s.departures.end == nil { // ranks that save and exit 0 mean to go on later
			return s.end(report.Result{Reason: s.success()})
		}
		return also(s.label(u)+" is done", s.letGoAll(u))
	}
	price := ""
	switch {
	case s.departures.end != nil:
		return also(s.label(u)+" was the last", s.letGoAll(u))
	case u.cause.departs:
		if r := s.refuseAtOnce(u.cause); r.final {
			return s.failed(u, r)
		}
	}
	if !u.cause.decided {
		if price = s.decide(u); s.decided() {
			return price
		}
	}
	s.pass(u, Backoff)
	u.next()
	wait := s.backoff(u)
	s.step.do(wait)
	next := s.label(u) + " follows"
	if wait.Restarts > 0 {
		next += " after a backoff"
	}
	return also(price, also(next, s.letGoAll(u)))
}

// backoff is the wait before the next attempt of a unit: none after a departure.
func (s *State) backoff(u *unit) Wait {
	w := Wait{Unit: u.id, Attempt: u.attempt, Restarts: s.budget.streak, Long: u.cause.outside()}
	if u.cause.departs {
		w.Restarts = 0
	}
	return w
}

// end decides the end of the job; it is finished when nothing lives.
func (s *State) end(r report.Result) string {
	r.Attempts, r.Restarts, r.Ending = s.budget.attempts, s.budget.restarts, cmp.Or(r.Ending, endingFor(r.Code))
	r.Code = s.exitCode(r.Ending, r.Code)
	s.ending.decide(r)
	for i := range s.progress.units {
		s.stop(&s.progress.units[i])
		s.spendLast(&s.progress.units[i])
	}
	return also(r.Reason, s.stopWait(s.progress.live))
}

// exitCode is the user's code for an ending, or the given one.
func (s *State) exitCode(e report.Ending, code int) int { return cmp.Or(s.spec.ExitCodes[e], code) }

// endingFor is what an exit code of golaunch's own means.
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

// cause is a failure whose restart has not begun, or nil. A departure is no failure.
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
	// streak counts the restarts since the budget was last full, and spent those that count against
	// it.
	streak, spent int
	// failing counts the units that do not run since they failed.
	failing int
}

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

func (b *budget) restart(free bool) {
	b.restarts++
	b.streak++
	if !free {
		b.spent++
	}
}

func (b *budget) refill() { b.spent, b.streak = 0, 0 }

// refill gives the budget back to a job that has run long enough without a failure.
func (s *State) refill(ev TimedOut) string {
	if !s.timers.answers(ev) {
		return s.step.ignore()
	}
	s.timers.clear(AlarmRefill)
	s.budget.refill()
	s.suspects.clearBlamed()
	return fmt.Sprintf("nothing has failed for %v: %s again", s.spec.RefillAfter, count(s.spec.MaxRestarts, "restart"))
}
