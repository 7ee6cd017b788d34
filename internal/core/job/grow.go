package job

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/golaunch/golaunch/placement"
)

// settleIn begins the time for which the number of nodes stays as it is.
func (s *State) settleIn() {
	if s.growth.partial && s.spec.GrowAfter > 0 && s.whole() {
		s.arm(AlarmGrow)
	}
}

// ripen ends it.
func (s *State) ripen(ev TimedOut) string {
	if ev.Seq == 0 || ev.Seq != s.timers.armed[AlarmGrow] {
		return s.ignore()
	}
	s.timers.armed[AlarmGrow], s.growth.due = 0, true
	return s.grow()
}

// grow stops the ranks, once they are ready, to start again on more nodes, if there are such. It costs O(n log n) for n nodes.
func (s *State) grow() string {
	if !s.Grows() {
		return ""
	}
	plan, err := placement.Solve(s.regroup(), s.fitter())
	if err != nil || plan.WorldSize() <= s.plan.world.WorldSize {
		return ""
	}
	why := fmt.Sprintf("the job grows from %d to %s", len(s.plan.slots), count(len(plan.Groups), "node"))
	return also(why, s.depart(departure{node: everyNode, within: s.spec.DrainTime, why: why}))
}

// Grows says that all ranks run, and would rather do so on more nodes. It costs O(1).
func (s *State) Grows() bool {
	u := &s.progress.units[0]
	runs := u.phase == Running && u.left == s.plan.world.WorldSize && u.notice == nil && s.ending.result == nil
	return s.growth.due && runs && s.hopeless(&fault{}) == ""
}

// grows says that a unit was stopped to start again on more nodes.
func (u *unit) grows() bool { return u.cause != nil && u.cause.departs && u.cause.Node == everyNode }

// Growth is a request for the nodes of a job that [State.Grows] and for one more at least.
func (s *State) Growth() placement.Request {
	r := s.regroup()
	r.MinNodes = len(s.plan.slots) + 1
	return r
}

// fitter are the nodes that have ranks and the spares that are not excluded, in the order of their names.
func (s *State) fitter() []placement.Node {
	nodes := s.fit(s.list())
	for _, sl := range s.plan.slots {
		nodes = append(nodes, s.roster.nodes[sl.Node.Name].Node)
	}
	slices.SortFunc(nodes, func(a, b placement.Node) int { return cmp.Compare(a.Name, b.Name) })
	return nodes
}
