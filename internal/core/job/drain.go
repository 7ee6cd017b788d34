package job

import (
	"cmp"
	"fmt"
)

// draining takes note that a node will be gone. The units that have ranks there stop in time, and start again elsewhere, which is charged
// to nobody.
func (s *State) draining(ev Draining) string {
	n := s.roster.nodes[ev.Node]
	d := departure{node: ev.Node, within: ev.Within, why: ev.Why}
	if n == nil || n.leaves != nil && n.leaves.covers(d) {
		return s.ignore()
	}
	n.leaves = &d
	text := also(d.reason(), s.depart(d))
	return cmp.Or(s.quit(n), text)
}

// quit gives a node up that leaves, once it has no part in what runs.
func (s *State) quit(n *node) string {
	if n == nil || n.leaves == nil || s.ending.result != nil {
		return ""
	}
	if n.slot != spare {
		for _, u := range s.unitsAt(n.slot) {
			if u.live > 0 {
				return ""
			}
		}
	}
	s.roster.loss = fmt.Sprintf("%s has left: %s", n.Name, n.leaves.why)
	return s.gone(n)
}

// quits has the nodes of a unit quit that has ended.
func (s *State) quits(u *unit) (text string) {
	for i := range u.members {
		text = also(text, s.quit(s.roster.nodes[s.plan.slots[u.first+i].Node.Name]))
	}
	return text
}

// poised says that a unit waits for nothing but the port of the master.
func (s *State) poised(u *unit) bool { return u.phase == Preparing && !s.leaves(u) }

// leaves says that a unit cannot start where it is: its node will be gone, and waits for others there to end.
func (s *State) leaves(u *unit) bool {
	for i := range u.members {
		if n := s.roster.nodes[s.plan.slots[u.first+i].Node.Name]; n != nil && n.slot == u.first+i && n.leaves != nil {
			return true
		}
	}
	return false
}

// Has says that the job counts on a node.
func (s *State) Has(node string) bool { return s.roster.nodes[node] != nil }
