package jobstate

import (
	"fmt"
	"slices"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/words"
	"github.com/golaunch/golaunch/placement"
)

// enough reports whether the job can go on with this many parts: replica groups, or ranks of a
// gang.
func (s *State) enough(parts int) bool {
	if s.grouped() {
		return parts >= s.spec.MinGroups
	}
	return parts >= max(1, s.plan.world.WorldSize-s.spec.LostRanks)
}

// expendable reports whether enough replica groups can run without this one.
func (s *State) expendable(u *unit) bool {
	if !s.grouped() || s.budget.attempts == 0 {
		return false
	}
	others := 0
	for i := range s.progress.units {
		if other := &s.progress.units[i]; other.id != u.id && !other.abandoned {
			others++
		}
	}
	return s.enough(others)
}

// abandon gives up a replica group. The others go on.
func (s *State) abandon(u *unit, why string) string {
	u.abandon()
	s.masterOf(u).renew()
	s.budget.recovers(u)
	s.shortage.setHomeless(slices.DeleteFunc(s.shortage.homeless, func(id int) bool { return id == u.id }))
	text := fmt.Sprintf("group %d does not start again: %s; the job needs %d of its %d groups", u.id, why, s.spec.MinGroups, s.spec.Groups)
	if u.live > 0 {
		s.pass(u, job.Stopping)
		s.stop(u)
	}
	return words.Also(text, s.settle(u))
}

// expendableRanks reports whether a running gang has enough ranks without n more of them. It is
// false once the ranks have got notice of their end.
func (s *State) expendableRanks(u *unit, n int) bool {
	return s.spec.LostRanks > 0 && s.gang() && u.phase == job.Running && u.notice.departure == nil && s.enough(s.size(u)-u.lost-n)
}

// expendableNode reports whether a running gang can go on without a lost node. It cannot go on
// without its master, which has the store.
func (s *State) expendableNode(u *unit, nodeRank int) bool {
	m := u.member(nodeRank)
	return m.started && nodeRank != s.masterOf(u).home && s.expendableRanks(u, m.left)
}

// loseRanks gives up those of some ranks that have not ended. The other ranks go on.
func (s *State) loseRanks(u *unit, m *member, why string, ranks ...placement.Bundle) string {
	for _, b := range ranks {
		if !s.progress.done[b.Rank] {
			s.progress.exit(u, m, b.Rank)
			u.lose()
		}
	}
	text := fmt.Sprintf("%s; the others go on: %d of %s lost, and %d may be", why, u.lost, words.Count(s.size(u), "rank"), s.spec.LostRanks)
	return words.Also(text, s.ended(u))
}

// ended decides what follows the end of a rank that did not fail. Nothing follows while other ranks
// run.
func (s *State) ended(u *unit) string {
	if u.left > 0 {
		return ""
	}
	s.pass(u, job.Stopping)
	for i := range u.members { // an announced end of the job must not stop ranks that have done their work
		s.progress.unready(u, &u.members[i])
	}
	exited := "all ranks exited 0"
	if u.lost > 0 {
		exited = "all other ranks exited 0"
	}
	return words.Also(s.label(u)+": "+exited, s.settle(u))
}
