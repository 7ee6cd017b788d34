package jobstate

import (
	"fmt"
	"math"
	"slices"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/placement"
)

// exchange replaces an excluded node, on which no process lives, with a spare.
func (s *State) exchange(nodeRank int) string {
	old := s.plan.slots[nodeRank]
	if old.vacant || !s.Excludes(old.Node.Name) || s.liveAt(nodeRank) ||
		s.rehome(nodeRank, s.suspects.fit(s.roster.list())) != nil {
		return ""
	}
	return fmt.Sprintf("%s takes the place of %s", s.plan.slots[nodeRank].Node.Name, old.Node.Name)
}

// rehome gives a node rank on which nothing lives to the smallest spare that suffices, because a
// larger spare may be meant for a larger group.
func (s *State) rehome(nodeRank int, spares []placement.Node) error {
	return s.substitute(nodeRank, s.smallest(nodeRank, spares))
}

// substitute gives a node rank on which nothing lives to one of the candidates. The ranks there
// stay the same.
func (s *State) substitute(nodeRank int, candidates []placement.Node) error {
	g, err := s.groupFor(nodeRank, candidates)
	if err != nil {
		return err
	}
	for i := range s.masters.of {
		s.masters.of[i].drop(nodeRank)
	}
	if old := s.roster.nodes[s.plan.slots[nodeRank].Node.Name]; old != nil && old.nodeRank == nodeRank {
		s.roster.assign(old.Name, spare)
	}
	s.plan.fill(nodeRank, g)
	s.step.replace()
	s.roster.assign(g.Node.Name, nodeRank)
	s.admit()
	s.askAgain(nodeRank)
	return nil
}

// askAgain repeats the questions of the replica groups that prepare on a node rank, because the
// node rank has a new node.
func (s *State) askAgain(nodeRank int) {
	if !s.grouped() {
		return
	}
	units := s.unitsAt(nodeRank)
	for i := range units {
		if u := &units[i]; u.phase == job.Preparing && !s.leaves(u) {
			if _, vacant := s.vacancy(u); !vacant {
				s.prepare(u)
			}
		}
	}
}

// groupFor places the group of a node rank on one of the candidates.
func (s *State) groupFor(nodeRank int, candidates []placement.Node) (placement.Group, error) {
	old := s.plan.slots[nodeRank].Group
	r := s.spec.Request
	r.MinNodes, r.MaxNodes, r.PerNode, r.Strategy = 1, 1, []int{len(old.Bundles)}, placement.StrictPack
	r.Keep = map[string]int{old.Node.Name: 0}
	chosen, err := placement.Solve(r, candidates)
	if err != nil {
		return placement.Group{}, err
	}
	g := chosen.Groups[0]
	g.NodeRank = nodeRank
	for i := range g.Bundles {
		g.Bundles[i].Rank = old.Bundles[i].Rank
	}
	return g, nil
}

// smallest returns the spares with the least room that suffices for a node rank.
func (s *State) smallest(nodeRank int, spares []placement.Node) []placement.Node {
	need, least := len(s.plan.slots[nodeRank].Bundles), math.MaxInt
	for _, n := range spares {
		if room := s.room(n); room >= need {
			least = min(least, room)
		}
	}
	return slices.DeleteFunc(slices.Clone(spares), func(n placement.Node) bool { return s.room(n) != least })
}

// room is the number of ranks for which a node has GPUs, CPUs and memory. Unknown CPUs and memory
// suffice for any number. It is math.MaxInt if the ranks need none of the three.
func (s *State) room(n placement.Node) int {
	r, room := s.spec.Request, math.MaxInt
	if r.GPU {
		room = r.Fits(job.FreeGPUs(n))
	}
	if r.CPUs > 0 && n.CPUs != 0 {
		room = min(room, n.CPUs/r.CPUs)
	}
	if r.Memory > 0 && n.Memory != 0 {
		room = min(room, int(n.Memory/r.Memory))
	}
	return room
}
