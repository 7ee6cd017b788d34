package job

import (
	"fmt"
	"maps"
	"slices"

	"github.com/golaunch/golaunch/placement"
)

// joined uses a node where one is wanted and parks it as a spare otherwise.
func (s *State) joined(n placement.Node) string {
	if other := s.roster.addrs[n.Addr.Unmap()]; other != "" && other != n.Name && !s.spec.Request.SharedAddr && !placement.SameMachine(s.roster.nodes[other].Node, n) {
		return fmt.Sprintf("%s is not used: its address %v is %s's; give each node its own", n.Name, n.Addr, other)
	}
	if old := s.roster.nodes[n.Name]; old != nil {
		if old.slot != spare {
			return s.ignore()
		}
		s.remove(old)
		s.roster.joined--
	}
	s.roster.joined++
	here := &node{Node: n}
	s.roster.nodes[n.Name] = here
	s.seat(here, spare)
	s.roster.addrs[n.Addr.Unmap()] = n.Name
	s.roster.gpus += len(n.GPUs)
	s.shortage.queued = ""
	if s.whole() {
		if s.gathering() {
			return s.placeAll(false)
		}
	} else if text := s.fill(n); text != "" {
		return text
	}
	return also(named(n)+" is here as a spare", s.grow())
}

// fill gives a node to the units that wait for one; all that then start are of the node rank that it takes.
func (s *State) fill(n placement.Node) (reason string) {
	waiting, taken := s.shortage.homeless[:0], false
	for _, id := range s.shortage.homeless {
		u := &s.progress.units[id]
		if s.plan.slots[u.first].vacant && (taken || s.replace(u.first, []placement.Node{n}) != nil) {
			waiting = append(waiting, id)
			continue
		}
		taken = true
		reason = s.prepare(u)
	}
	s.shortage.homeless = waiting
	return reason
}

func (s *State) remove(n *node) {
	delete(s.roster.nodes, n.Name)
	delete(s.roster.spares, n.Name)
	if n.leaves != nil {
		s.departures.announced = slices.DeleteFunc(s.departures.announced, func(d departure) bool { return d.node == n.Name })
	}
	s.leaveAddr(n)
	delete(s.master.missed, n.Name)
	s.roster.gpus -= len(n.GPUs)
}

// leaveAddr leaves the address of a node that goes to another one of its machine.
func (s *State) leaveAddr(n *node) {
	addr := n.Addr.Unmap()
	if s.roster.addrs[addr] != n.Name {
		return
	}
	delete(s.roster.addrs, addr)
	if n.Labels[placement.MachineLabel] == "" {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(s.roster.nodes)) {
		if s.roster.nodes[name].Addr.Unmap() == addr {
			s.roster.addrs[addr] = name
			return
		}
	}
}

// lost takes a node away. It fails the units that have unfinished ranks there, and none of its processes is waited for.
func (s *State) lost(ev Lost) string {
	n := s.roster.nodes[ev.Node]
	if n == nil {
		return s.ignore()
	}
	s.roster.loss = fmt.Sprintf("%s was lost: %s", n.Name, ev.Why)
	return s.gone(n)
}

// gone takes away a node that was lost or has left.
func (s *State) gone(n *node) string {
	s.remove(n)
	if n.slot == spare {
		if s.ending.result == nil && s.whole() && s.gathering() {
			return s.roster.loss + "; " + s.gatherLess()
		}
		return s.roster.loss + "; it was a spare"
	}
	s.plan.slots[n.slot].vacant = true
	s.plan.vacant = append(s.plan.vacant, n.slot)
	if s.master.question != nil && s.master.question.Node == n.Name {
		s.master.question = nil
	}
	if len(s.master.pending) == 0 {
		return s.bereave(n)
	}
	s.unask(n.slot)
	return also(s.bereave(n), s.launch())
}

// gatherLess goes on gathering after a node was lost that no group used.
func (s *State) gatherLess() string {
	s.shortage.enough--
	if least := s.spec.Request.MinNodes; s.strict() && len(s.roster.nodes) < least {
		s.timers.armed[AlarmLastCall], s.shortage.enough = 0, least
	}
	return s.placeAll(false)
}

// bereave tells the units of a node rank that their node is lost: those that owe something fail together, as one failure.
func (s *State) bereave(n *node) string {
	var failed, displaced []*unit
	reason := ""
	units := s.unitsAt(n.slot)
	lived := make([]bool, len(units)) // nothing does any more, before anything is decided
	for i := range units {
		if m := units[i].member(n.slot); m.live {
			lived[i] = true
			s.settled(&units[i], m)
		}
	}
	loss := s.fault(Failure{Node: n.Name, Rank: -1, Attempt: units[0].attempt, Why: s.roster.loss}) // one, however many units fail of it
	for i := range units {
		u := &units[i]
		if lived[i] && s.weighs(u, loss.Rank) {
			s.weigh(u.cause, loss.Rank)
			reason = also(reason, s.explain(u, loss))
		}
		switch {
		case s.ending.result != nil, u.phase == Finished:
			continue
		case u.phase == Preparing:
			displaced = append(displaced, u)
		case u.phase == Stopping && u.cause != nil:
			if lived[i] {
				reason = also(reason, s.settle(u))
			}
		case u.phase == Running && n.leaves != nil:
			reason = also(reason, s.vacate(u, *n.leaves))
		case u.phase == Running && s.departures.end != nil:
			reason = also(reason, s.vacate(u, *u.notice))
		case (u.phase == Running || u.phase == Stopping) && (lived[i] || u.left > 0):
			failed = append(failed, u)
		}
		if n.slot == 0 {
			s.master.ported = false
		}
	}
	if len(failed) > 0 && s.ending.result == nil {
		reason = also(s.fail(loss, failed...), reason)
	} else {
		reason = also(s.roster.loss, reason)
	}
	return also(reason, s.rehouse(displaced))
}

// rehouse places anew the units whose node was lost before they started, at no cost to the budget.
func (s *State) rehouse(displaced []*unit) (reason string) {
	if len(displaced) > 0 && s.whole() {
		s.spendNothing(s.progress.units[1:])
		s.progress.units = s.progress.units[:1]
		return s.placeAll(false)
	}
	for _, u := range displaced {
		if s.ending.result == nil && s.departures.end == nil {
			reason = s.place(u)
		}
	}
	return reason
}

// rejoined repeats the orders that a node has not answered: its connection may have swallowed them.
func (s *State) rejoined(ev Rejoined) string {
	n := s.roster.nodes[ev.Node]
	if n == nil || n.slot == spare {
		return s.ignore()
	}
	if s.master.question != nil && s.master.question.Node == n.Name && s.ending.result == nil {
		s.do(*s.master.question)
	}
	if n.slot == 0 && !s.gang() && s.ending.result == nil {
		s.admit()
	}
	if s.master.pending[n.slot] != 0 && s.ending.result == nil {
		s.orderReach(n.slot)
	}
	units := s.unitsAt(n.slot)
	for i := range units {
		u := &units[i]
		switch m := u.member(n.slot); {
		case !m.live:
		case u.told:
			s.orderStop(u, n.slot)
		default:
			if u.phase == Running && !m.started {
				s.orderStart(u, n.slot)
			}
			if u.notice != nil && !m.ready {
				s.remind(u, n.slot)
			}
		}
	}
	if len(s.step.actions) == 0 {
		return s.ignore()
	}
	return fmt.Sprintf("%s is back; repeating %s", n.Name, count(len(s.step.actions), "order"))
}
