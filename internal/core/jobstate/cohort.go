package jobstate

import (
	"fmt"
	"slices"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/lighthouse"
)

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
