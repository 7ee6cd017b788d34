package job

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// reach asks the nodes of a unit whether they reach the master's port, each once for each port. A master that is lost, after all its
// own ranks were done, is not to be reached.
func (s *State) reach(u *unit) {
	for i := range u.members {
		rank := u.first + i
		if sl := &s.plan.slots[rank]; !sl.asked && !s.plan.slots[0].vacant {
			s.master.questions++
			sl.asked, s.master.pending[rank] = true, s.master.questions
			s.orderReach(rank)
		}
	}
}

func (s *State) orderReach(nodeRank int) {
	s.do(Reach{
		Node: s.plan.slots[nodeRank].Node.Name, Seq: s.master.pending[nodeRank],
		Addr: s.plan.world.MasterAddr, Port: s.plan.world.MasterPort, Late: s.master.launched, Ranks: len(s.plan.slots[nodeRank].Bundles),
	})
}

// unask forgets what was asked of a lost node: of all nodes when it was the master.
func (s *State) unask(nodeRank int) {
	delete(s.master.pending, nodeRank)
	delete(s.master.unreached, nodeRank)
	if nodeRank == 0 {
		clear(s.master.pending)
		clear(s.master.unreached)
	}
}

func (s *State) reached(ev Reached) string {
	n := s.roster.nodes[ev.Node]
	if n == nil || ev.Seq == 0 || ev.Seq != s.master.pending[n.slot] {
		return s.ignore()
	}
	delete(s.master.pending, n.slot)
	if !ev.Unable.OK() {
		return s.unable(n.slot, Exited{Attempt: s.unitsAt(n.slot)[0].attempt, Exit: ev.Unable, At: ev.At})
	}
	if ev.Err != "" {
		s.master.unreached[n.slot] = ev.Err
	}
	return s.launch()
}

// launch starts the units that wait for nothing but the port, when all who were asked have said whether they reach it.
func (s *State) launch() string {
	if s.ending.result != nil || s.departures.end != nil || !s.master.ported || len(s.master.pending) > 0 {
		return ""
	}
	failed := ""
	if len(s.master.unreached) > 0 {
		if failed = s.severed(); s.ending.result != nil {
			return failed
		}
	}
	var started []*unit
	for i := range s.progress.units {
		if u := &s.progress.units[i]; s.poised(u) {
			s.start(u)
			started = append(started, u)
		}
	}
	if len(started) == 0 {
		return failed
	}
	return also(failed, s.starting(started...))
}

// proving names the nodes that have not answered, when they are few.
func (s *State) proving() string {
	if len(s.master.pending) > shownNodes {
		return count(len(s.master.pending), "node")
	}
	var names []string
	for _, rank := range slices.Sorted(maps.Keys(s.master.pending)) {
		names = append(names, named(s.plan.slots[rank].Node))
	}
	return strings.Join(names, ", ")
}

// notReached says which nodes do not reach the master. How many of how many they are tells a firewall of one node from a wrong address of
// the master.
func (s *State) notReached(ranks []int) string {
	master := fmt.Sprintf("%s at %s (MASTER_ADDR:MASTER_PORT)", s.plan.slots[0].Node.Name, endpoint(s.plan.world.MasterAddr, s.plan.world.MasterPort))
	if len(ranks) == 1 {
		return fmt.Sprintf("%s cannot reach %s: %s", named(s.plan.slots[ranks[0]].Node), master, s.master.unreached[ranks[0]])
	}
	return fmt.Sprintf("%d of the %d other nodes cannot reach %s: %s", len(ranks), len(s.plan.slots)-1, master, s.whyNot(ranks))
}

// whyNot says of the first node ranks why they do not reach the master.
func (s *State) whyNot(ranks []int) string {
	var list []string
	for _, rank := range ranks[:min(len(ranks), shownNodes)] {
		list = append(list, fmt.Sprintf("%s: %s", named(s.plan.slots[rank].Node), s.master.unreached[rank]))
	}
	if more := len(ranks) - shownNodes; more > 0 {
		list = append(list, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(list, ", ")
}
