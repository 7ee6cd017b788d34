package jobstate

import (
	"fmt"
	"math"
	"slices"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/words"
	"github.com/golaunch/golaunch/placement"
)

// Wants is the request that a cluster should place. ok is false when the job has all that it needs.
// If whole is true, the request is for the whole job, including the nodes that the job has: these
// keep their node ranks, and spares come next. Otherwise the request is for further nodes, one for
// each node rank without a node, and any number of them helps.
func (s *State) Wants() (r placement.Request, whole, ok bool) {
	if s.placesAll() {
		if !s.lacksNodes() {
			return r, true, false
		}
		return s.regroup(), true, true
	}
	sizes := s.uncovered()
	if len(sizes) == 0 {
		return r, false, false
	}
	r = s.spec.Request
	r.MinNodes, r.MaxNodes, r.PerNode, r.Strategy, r.Keep = 1, len(sizes), sizes, placement.StrictPack, nil
	return r, false, true
}

// Wanting reports whether the job [State.Wants] something. It costs O(1) while no node is gone.
func (s *State) Wanting() bool {
	if s.placesAll() {
		return s.lacksNodes()
	}
	return len(s.uncovered()) > 0
}

// LastCall is the sequence number of the [job.AlarmLastCall] after which the job starts with fewer
// nodes than it could use; 0 if there is no such alarm.
func (s *State) LastCall() int {
	if !s.gathering() {
		return 0
	}
	return s.timers.newest[job.AlarmLastCall]
}

// lacksNodes reports whether the whole job waits for nodes, or will wait once it has stopped.
func (s *State) lacksNodes() bool {
	if s.decided() {
		return false
	}
	u := &s.progress.units[0]
	return u.phase == job.Gathering || len(s.plan.vacant) > 0 && u.owes()
}

// regroup is the next request for the whole job. Present nodes keep their node ranks, and spares
// take the node ranks of lost nodes. A lost node that returns gets its own node rank back if that
// is still vacant.
func (s *State) regroup() placement.Request {
	r := s.spec.Request
	r.Keep = make(map[string]int, len(s.roster.nodes))
	taken := make([]bool, len(s.plan.slots)+len(s.roster.nodes))
	for rank, sl := range s.plan.slots {
		if s.Has(sl.Node.Name) {
			r.Keep[sl.Node.Name], taken[rank] = rank, true
		}
	}
	rank := 0
	for _, n := range s.roster.list() {
		if _, kept := r.Keep[n.Name]; kept {
			continue
		}
		for taken[rank] {
			rank++
		}
		r.Keep[n.Name], taken[rank] = rank, true
	}
	for rank, sl := range s.plan.slots {
		if !taken[rank] {
			r.Keep[sl.Node.Name] = rank
		}
	}
	return r
}

// uncovered returns the sizes of the vacant groups for which there is no spare, the smallest first.
func (s *State) uncovered() []int {
	if s.decided() || len(s.plan.vacant) == 0 {
		return nil
	}
	var sizes []int
	for _, rank := range s.plan.vacant {
		if slices.ContainsFunc(s.unitsAt(rank), owing) {
			sizes = append(sizes, len(s.plan.slots[rank].Bundles))
		}
	}
	slices.Sort(sizes)
	whole := max(1, s.spec.Request.PerGPU)
	for _, n := range s.roster.list() {
		room := s.room(n)
		covers := func(size int) bool { return size <= room && room-size < whole || room == math.MaxInt }
		if i := slices.IndexFunc(sizes, covers); i >= 0 {
			sizes = slices.Delete(sizes, i, i+1)
		}
	}
	return sizes
}

// Instead is a request for one node to replace a node that has a node rank.
func (s *State) Instead(node string) placement.Request {
	r := s.spec.Request
	r.MinNodes, r.MaxNodes, r.Strategy, r.Keep = 1, 1, placement.StrictPack, nil
	if !s.placesAll() || !allGPUs(r) {
		r.PerNode = []int{len(s.plan.slots[s.roster.nodes[node].nodeRank].Bundles)}
	}
	return r
}

// growth says when a job on fewer nodes than it could use may ask for more.
type growth struct {
	// partial says that the job was placed on fewer nodes than it could use. due says that it has
	// run for long enough to grow.
	partial, due bool
}

func (g *growth) adopt(partial bool) { g.partial = partial }
func (g *growth) setDue(due bool)    { g.due = due }

// armGrow begins the time for which the number of nodes stays the same.
func (s *State) armGrow() {
	if s.plan.growth.partial && s.spec.GrowAfter > 0 && s.placesAll() {
		s.arm(job.AlarmGrow)
	}
}

// growTimerFired ends the time for which the number of nodes stays the same.
func (s *State) growTimerFired(ev job.TimedOut) string {
	if !s.timers.answers(ev) {
		return s.step.ignore()
	}
	s.timers.clear(job.AlarmGrow)
	s.plan.growth.setDue(true)
	return s.grow()
}

// grow checks whether the job can use more nodes. If so, it stops the ranks once they are ready, to
// start them again on these nodes. It costs O(n log n) for n nodes.
func (s *State) grow() string {
	if !s.Grows() {
		return ""
	}
	chosen, err := placement.Solve(s.regroup(), s.usable())
	if err != nil || chosen.WorldSize() <= s.plan.world.WorldSize {
		return ""
	}
	why := fmt.Sprintf("the job grows from %d to %s", len(s.plan.slots), words.Count(len(chosen.Groups), "node"))
	told, stopped := s.depart(departure{node: everyNode, within: s.spec.DrainTime, why: why})
	return words.Also(why, words.Also(told, stopped))
}

// Grows reports whether all ranks run and should rather run on more nodes. It costs O(1).
func (s *State) Grows() bool {
	u := &s.progress.units[0]
	runs := u.phase == job.Running && u.left == s.plan.world.WorldSize && u.notice.departure == nil && !s.decided()
	return s.plan.growth.due && runs && !s.refuseAtOnce(&fault{}).final
}

// grows reports whether a unit was stopped to start again on more nodes.
func (u *unit) grows() bool { return u.cause != nil && u.cause.departs && u.cause.Node == everyNode }

// Growth is a request for the nodes that the job has and for at least one more. It has a meaning
// only while [State.Grows] reports true.
func (s *State) Growth() placement.Request {
	r := s.regroup()
	r.MinNodes = len(s.plan.slots) + 1
	return r
}

// usable returns the nodes that have ranks and the spares that are not excluded, by name.
func (s *State) usable() []placement.Node {
	nodes := s.suspects.fit(s.roster.list())
	for _, sl := range s.plan.slots {
		nodes = append(nodes, s.roster.nodes[sl.Node.Name].Node)
	}
	slices.SortFunc(nodes, byName)
	return nodes
}
