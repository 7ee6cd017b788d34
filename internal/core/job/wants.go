package job

import (
	"math"
	"slices"

	"github.com/golaunch/golaunch/placement"
)

// Wants is what a cluster should find nodes for; false when the job has all it needs. With whole, the request is for the job as
// it should then be, the nodes that it has included: they keep their node ranks, and spares come next. Otherwise it is for
// further nodes, one for each node rank that lacks one; any of them helps.
func (s *State) Wants() (r placement.Request, whole, ok bool) {
	if s.whole() {
		if !s.lacking() {
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

// Wanting says that the job [State.Wants] something. It costs O(1) while no node was lost.
func (s *State) Wanting() bool {
	if s.whole() {
		return s.lacking()
	}
	return len(s.uncovered()) > 0
}

// LastCall is the [AlarmLastCall] that a job waits for which would start with less than its most; 0 if it does not.
func (s *State) LastCall() int {
	if !s.gathering() {
		return 0
	}
	return s.timers.armed[AlarmLastCall]
}

// lacking says of the whole that it waits for nodes, or will once it has stopped.
func (s *State) lacking() bool {
	if s.ending.result != nil {
		return false
	}
	u := &s.progress.units[0]
	return u.phase == Gathering || len(s.plan.vacant) > 0 && owes(u)
}

// owes says that a unit that lost a node needs another.
func owes(u *unit) bool { return u.phase != Finished && (u.phase != Stopping || u.cause != nil) }

// regroup is the next request for the whole: the nodes that are there keep their ranks, spares take those of lost nodes, and a
// lost node that comes back takes its own if it is still vacant.
func (s *State) regroup() placement.Request {
	r := s.spec.Request
	r.Keep = make(map[string]int, len(s.roster.nodes))
	taken := make([]bool, len(s.plan.slots)+len(s.roster.nodes))
	for rank, sl := range s.plan.slots {
		if s.roster.nodes[sl.Node.Name] != nil {
			r.Keep[sl.Node.Name], taken[rank] = rank, true
		}
	}
	rank := 0
	for _, n := range s.list() {
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

// uncovered are the ranks on each of the vacant node ranks for which there is no spare, fewest first.
func (s *State) uncovered() []int {
	if s.ending.result != nil || len(s.plan.vacant) == 0 {
		return nil
	}
	var sizes []int
	for _, rank := range s.plan.vacant {
		units := s.unitsAt(rank)
		if slices.ContainsFunc(units, func(u unit) bool { return owes(&u) }) {
			sizes = append(sizes, len(s.plan.slots[rank].Bundles))
		}
	}
	slices.Sort(sizes)
	for _, n := range s.list() {
		room := s.room(n)
		if i := slices.IndexFunc(sizes, func(size int) bool { return size == room || room == math.MaxInt }); i >= 0 {
			sizes = slices.Delete(sizes, i, i+1)
		}
	}
	return sizes
}

// Live says that processes of an attempt may be on a node. What else a node that is back runs of the job must end.
func (s *State) Live(node string, unit, attempt int) bool {
	_, _, _, ok := s.find(node, unit, attempt)
	return ok
}

// Result is how the job ends; false while that is not decided. The job is finished once nothing of it lives.
func (s *State) Result() (Result, bool) {
	if s.ending.result == nil {
		return Result{}, false
	}
	return s.outcome(), true
}

// outcome is the result with its cause as it is known by now.
func (s *State) outcome() Result {
	r := *s.ending.result
	if s.ending.fatal != noUnit {
		u := &s.progress.units[s.ending.fatal]
		cause := u.failure()
		cause.Why = u.blamed()
		r.Cause = &cause
	}
	return r
}
