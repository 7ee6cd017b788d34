package jobstate

import (
	"fmt"
	"slices"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/lighthouse"
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

// cohort is the newest cohort: the replica groups that train together.
type cohort struct {
	id      int64
	members []lighthouse.Replica
	// why says why there is no cohort now; empty if there is one.
	why string
}

func (c *cohort) form(id int64, members []lighthouse.Replica) {
	c.id, c.members, c.why = id, members, ""
}
func (c *cohort) lack(why string) { c.why = why }

// formed records a cohort. It reports the cohort if the groups that train together have changed.
func (s *State) formed(ev job.Cohort) string {
	if !s.grouped() || ev.ID < s.cohort.id {
		return s.step.ignore()
	}
	if ev.Why != "" {
		s.cohort.lack(ev.Why)
		return ev.Why
	}
	before, after := lighthouse.Groups(s.cohort.members), lighthouse.Groups(ev.Members)
	lacked := s.cohort.why != ""
	s.cohort.form(ev.ID, slices.Clone(ev.Members))
	if before == after && !lacked {
		return ""
	}
	return fmt.Sprintf("quorum %d: %s of %d", ev.ID, after, s.spec.Groups)
}

// Cohort returns the ID and the members of the newest cohort of the replica groups. Before the
// first cohort, it returns 0 and no members.
func (s *State) Cohort() (id int64, members []lighthouse.Replica) {
	return s.cohort.id, s.cohort.members
}

// Attempt is the newest attempt of a unit; -1 if there is no such unit.
func (s *State) Attempt(unit int) int {
	if unit < 0 || unit >= len(s.progress.units) {
		return -1
	}
	return s.progress.units[unit].attempt
}

// Trains reports whether a replica group may be in a cohort: none of its ranks has failed or is to
// stop, and its rank 0, which asks for the cohort, has not ended.
func (s *State) Trains(group, attempt int) bool {
	if !s.grouped() || s.decided() || group < 0 || group >= len(s.progress.units) {
		return false
	}
	u := &s.progress.units[group]
	return u.phase == job.Running && u.attempt == attempt && !s.progress.done[u.id*s.perUnit()]
}
