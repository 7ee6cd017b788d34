package job

import (
	"cmp"
	"fmt"
)

// draining takes note that a node will be gone. The units that have ranks there are told, and stop when all their ranks are ready or
// the time is over; that they start again elsewhere is charged to nobody.
func (s *State) draining(ev Draining) string {
	n := s.nodes[ev.Node]
	if _, again := s.leaving[ev.Node]; n == nil || again {
		return ""
	}
	s.leaving[ev.Node] = ev
	text := fmt.Sprintf("%s leaves: %s", n.Name, ev.Why)
	if n.slot != spare {
		units := s.unitsAt(n.slot)
		for i := range units {
			text = also(text, s.evacuate(&units[i], ev))
		}
	}
	return cmp.Or(s.quit(ev.Node), text)
}

// evacuate tells the ranks of a unit that a node of theirs will be gone.
func (s *State) evacuate(u *unit, ev Draining) string {
	if u.phase != Running || u.cause != nil || u.evacuation != nil || s.result != nil {
		return ""
	}
	u.evacuation = u.loss(ev)
	if ev.Within <= 0 {
		return s.vacate(u)
	}
	s.forewarn(u, ev)
	s.arm(AlarmDrain, ev.Within)
	return fmt.Sprintf("the ranks have %v to get ready", ev.Within)
}

// loss is the failure that stands for a node that leaves.
func (u *unit) loss(ev Draining) *fault {
	why := ev.Why
	if ev.Node != everyNode {
		why = fmt.Sprintf("%s leaves: %s", ev.Node, ev.Why)
	}
	return &fault{Failure: Failure{Node: ev.Node, Rank: -1, Attempt: u.attempt, Why: why}, decided: true}
}

// forewarn gives notice to all ranks of a unit.
func (s *State) forewarn(u *unit, ev Draining) {
	u.unready = 0
	for i := range u.members {
		if m := &u.members[i]; m.live {
			u.unready++
			s.orderNotice(u, u.first+i, ev)
		}
	}
}

func (s *State) orderNotice(u *unit, nodeRank int, ev Draining) {
	s.do(Notice{
		Node: s.slots[nodeRank].Node.Name, Unit: u.id, Attempt: u.attempt, Within: ev.Within, Why: u.evacuation.Why,
	})
}

// readied counts the nodes of a unit whose ranks are ready.
func (s *State) readied(ev Ready) string {
	u, m, _, ok := s.find(ev.Node, ev.Unit, ev.Attempt)
	if !ok || u.evacuation == nil || u.phase != Running || m.ready {
		return ""
	}
	m.ready = true
	s.ready++
	u.unready--
	if u.unready > 0 || s.expiry != nil {
		return ""
	}
	return also(s.label(u)+": all ranks are ready", s.vacate(u))
}

func (s *State) unready(m *member) {
	if m.ready {
		m.ready = false
		s.ready--
	}
}

// vacate stops a unit for the sake of a node that leaves.
func (s *State) vacate(u *unit) string {
	u.cause = u.evacuation
	s.pass(u, Stopping)
	s.stop(u)
	return s.settle(u)
}

// depart ends the wait for ranks to get ready.
func (s *State) depart(ev TimedOut) string {
	if ev.Seq == 0 || ev.Seq != s.alarms[AlarmDrain] {
		return ""
	}
	s.alarms[AlarmDrain] = 0
	if s.expiry != nil {
		return "the time to get ready is over; " + s.end(*s.expiry)
	}
	text := ""
	for i := range s.units {
		if u := &s.units[i]; u.phase == Running && u.evacuation != nil {
			text = "the time to get ready is over; " + s.vacate(u)
		}
	}
	return text
}

// quit gives a node up that leaves, once it has no part in what runs.
func (s *State) quit(name string) string {
	n := s.nodes[name]
	ev, leaves := s.leaving[name]
	if n == nil || !leaves || s.result != nil {
		return ""
	}
	if n.slot != spare {
		for _, u := range s.unitsAt(n.slot) {
			if u.phase == Running || u.phase == Stopping {
				return ""
			}
		}
	}
	s.loss = fmt.Sprintf("%s has left: %s", name, ev.Why)
	return s.gone(n)
}

// quits has the nodes of a unit quit that has ended.
func (s *State) quits(u *unit) (text string) {
	for i := range u.members {
		if len(s.leaving) > 0 {
			text = also(text, s.quit(s.slots[u.first+i].Node.Name))
		}
	}
	return text
}

// Has says that the job counts on a node.
func (s *State) Has(node string) bool { return s.nodes[node] != nil }
