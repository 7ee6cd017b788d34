package job

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// golaunch's own exit codes, the first two with the meaning that timeout(1) gives them.
const (
	codeTimeout   = 124
	codeOwn       = 125
	codeCancelled = 130
)

// prepare starts a placed unit once the master's port is known and its nodes reach it.
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
	master := s.plan.slots[0]
	if s.master.question == nil && !master.vacant {
		s.master.question = &Prepare{Node: master.Node.Name, Unit: u.id, Attempt: u.attempt, Fresh: s.gang(), Peers: s.peers(), Ranks: len(master.Bundles)}
		s.do(*s.master.question)
	}
	return s.label(u) + ": " + s.portWait()
}

// admit tells the master of a node that came in the place of another after the master gave its port.
func (s *State) admit() {
	if master := s.plan.slots[0]; s.master.ported && !master.vacant {
		s.do(Admit{Node: master.Node.Name, Peers: s.peers()})
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

// start orders every node of a unit to start its ranks. No process of an earlier attempt lives: settle has seen to that.
func (s *State) start(u *unit) {
	s.pass(u, Running)
	u.cause, u.notice, u.told, u.early, u.split = nil, nil, false, nil, false
	s.progress.meeting, s.master.launched = "", true
	s.timers.armed[AlarmGrow], s.growth.due = 0, false
	s.departures.announced = slices.DeleteFunc(s.departures.announced, func(d departure) bool { return d.node == everyNode }) // its growth
	u.left, u.live, u.starting, u.imports = 0, len(u.members), len(u.members), Imports{}
	s.progress.live += u.live
	s.budget.attempts++
	for i := range u.members {
		g := s.orderStart(u, u.first+i)
		u.members[i] = member{live: true, left: len(g.Bundles)}
		u.left += len(g.Bundles)
		for _, b := range g.Bundles {
			s.progress.done[b.Rank] = false
		}
	}
}

func (s *State) orderStart(u *unit, nodeRank int) placement.Group {
	g := s.share(u, nodeRank)
	w := s.plan.world
	all := s.plan.slots[nodeRank].Bundles
	w.LocalSize = len(all)
	w.RoleSize, w.RoleFirst = s.plan.roles[s.plan.slots[nodeRank].role], s.plan.slots[nodeRank].roleFirst
	if s.spec.Request.GPU {
		w.GPUs = make([]placement.GPU, len(all))
		for i, b := range all {
			w.GPUs[i] = *b.GPU
		}
	}
	s.do(Start{Unit: u.id, Attempt: u.attempt, Group: g, World: w, OwnRules: s.spec.Rules != ""})
	return g
}

// stop orders the nodes where a unit may live to end it, once.
func (s *State) stop(u *unit) {
	if u.told {
		return
	}
	u.told = true
	for i, m := range u.members {
		if m.live {
			s.orderStop(u, u.first+i)
		}
	}
}

func (s *State) orderStop(u *unit, nodeRank int) {
	s.do(Stop{
		Node: s.plan.slots[nodeRank].Node.Name, Unit: u.id, Attempt: u.attempt, Grace: s.spec.Grace, Kill: s.ending.cancels > 1,
		Evidence: u.evidence(s.ending.cancels), Signal: s.ending.signal,
	})
}

// evidence is what a stop should keep: nothing of a unit that did not fail, and nothing that a user who cancels would wait for.
func (u *unit) evidence(cancels int) Evidence {
	switch {
	case u.cause == nil || u.cause.departs || cancels > 0:
		return NoEvidence
	case u.cause.Hung:
		return HangEvidence
	}
	return CrashEvidence
}

// fail stops the units whose attempts a failure has ended. Together they restart at the price of one restart, or the job ends.
func (s *State) fail(f *fault, units ...*unit) string {
	s.weigh(f, f.Rank)
	for _, u := range units {
		u.cause = f
		if !u.sick {
			u.sick = true
			s.budget.failing++
		}
	}
	if why := s.hopeless(f); why != "" {
		return s.failed(units[0], why)
	}
	s.timers.armed[AlarmRefill] = 0
	first := ""
	for i, u := range units {
		s.pass(u, Stopping)
		s.stop(u)
		next := s.settle(u)
		if s.ending.result != nil {
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

// settle is the barrier: when no process of an ending attempt can live any more, the unit is done or waits for its next attempt.
func (s *State) settle(u *unit) string {
	if u.live > 0 {
		return s.stopWait(u.live)
	}
	if u.cause == nil {
		s.pass(u, Finished)
		s.progress.open--
		if s.progress.open == 0 && s.departures.end == nil { // programs exit with 0 also when they have saved, to go on later
			return s.end(Result{Reason: s.success()})
		}
		return also(s.label(u)+" is done", s.quits(u))
	}
	price := ""
	switch {
	case s.departures.end != nil:
		return also(s.label(u)+" was the last", s.quits(u))
	case u.cause.departs && s.hopeless(u.cause) != "":
		return s.failed(u, s.hopeless(u.cause))
	case !u.cause.decided:
		if price = s.decide(u); s.ending.result != nil {
			return price
		}
	}
	s.pass(u, Backoff)
	u.attempt++
	wait := s.backoff(u)
	s.do(wait)
	next := s.label(u) + " follows"
	if wait.Restarts > 0 {
		next += " after a backoff"
	}
	return also(price, also(next, s.quits(u)))
}

// backoff is the wait before the next attempt of a unit: none when it is nobody's failure.
func (s *State) backoff(u *unit) Wait {
	w := Wait{Unit: u.id, Attempt: u.attempt, Restarts: s.budget.streak, Long: u.cause.outside()}
	if u.cause.departs {
		w.Restarts = 0
	}
	return w
}

// end decides the end of the job; it is finished when nothing lives any more.
func (s *State) end(r Result) string {
	r.Attempts, r.Restarts, r.Ending = s.budget.attempts, s.budget.restarts, cmp.Or(r.Ending, endingFor(r.Code))
	r.Code = s.exitCode(r.Ending, r.Code)
	s.ending.result = &r
	for i := range s.progress.units {
		s.stop(&s.progress.units[i])
		s.spendLast(&s.progress.units[i])
	}
	return also(r.Reason, s.stopWait(s.progress.live))
}

// exitCode is the user's for an ending, if there is one.
func (s *State) exitCode(e report.Ending, code int) int { return cmp.Or(s.spec.ExitCodes[e], code) }

// ending is what a code of golaunch's own means.
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

// cause is a failure whose restart has not begun; nil when there is none. That a node leaves in order is no failure.
func (s *State) cause() *Failure {
	for i := range s.progress.units {
		if u := &s.progress.units[i]; u.cause != nil && !u.cause.departs {
			return new(u.failure())
		}
	}
	return nil
}

func failure(ev Exited, b placement.Bundle) Failure {
	gpu := ""
	if b.GPU != nil {
		gpu = fmt.Sprintf(" (gpu %d)", b.GPU.Index)
	}
	return Failure{
		Node: ev.Node, Rank: ev.Rank, GPU: b.GPU, Attempt: ev.Attempt, Exit: ev.Exit, At: ev.At, Lived: ev.Lived, Step: ev.Step,
		Why:  fmt.Sprintf("rank %d on %s%s %v", ev.Rank, ev.Node, gpu, ev.Exit),
		Tail: ev.Tail, Traceback: ev.Traceback, Kernel: ev.Kernel,
	}
}

// bundle finds a rank in a group, whose ranks are consecutive.
func bundle(g placement.Group, rank int) (placement.Bundle, bool) {
	if i := rank - g.Bundles[0].Rank; i >= 0 && i < len(g.Bundles) {
		return g.Bundles[i], true
	}
	return placement.Bundle{}, false
}
