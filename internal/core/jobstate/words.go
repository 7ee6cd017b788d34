package jobstate

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/words"
)

// shownNodes bounds how many nodes a reason names.
const shownNodes = 4

// shortfall says which nodes are here and how many wanted nodes are missing. Its cost does not
// depend on the number of nodes.
func (s *State) shortfall() string {
	if s.timers.runs(job.AlarmLastCall) {
		return s.missing(s.spec.Request.MaxNodes) + "; starting with these at the last call"
	}
	return s.missing(s.spec.Request.MinNodes)
}

func (s *State) missing(want int) string {
	nodes := s.roster.nodes
	text := fmt.Sprintf("waiting for %d of %s", max(0, want-len(nodes)), words.Count(want, "node"))
	switch n := len(nodes); {
	case n == 0:
		return text + "; none is here"
	case n > shownNodes:
		return text + fmt.Sprintf("; %d are here", n)
	}
	var here []string
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		here = append(here, words.Named(nodes[name].Node))
	}
	return text + "; here: " + strings.Join(here, ", ")
}

// wanting says what the job waits for while it gathers, and why the present nodes do not suffice.
func (s *State) wanting() string {
	switch {
	case s.shortage.queued != "":
		return s.shortage.queued
	case s.placesAll():
		return s.shortage.text
	case len(s.shortage.homeless) == 0:
		return ""
	}
	rank, _ := s.vacancy(&s.progress.units[s.shortage.homeless[0]])
	text := fmt.Sprintf("waiting for a node in the place of %s (node rank %d)", s.plan.slots[rank].Node.Name, rank)
	if spares := s.roster.list(); len(spares) > 0 {
		if _, err := s.groupFor(rank, spares); err != nil {
			text += "; " + err.Error()
		}
	}
	return text
}

// some lists the first names, and the number of the others.
func some(names []string) string {
	text := strings.Join(names[:min(len(names), shownNodes)], ", ")
	if more := len(names) - shownNodes; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// are joins names with the verb: "n1 is", "n1, n2 are".
func are(names []string) string {
	if len(names) == 1 {
		return names[0] + " is"
	}
	return some(names) + " are"
}

// label names a unit's attempt: as the attempt of the job if the job is one unit, otherwise as the
// attempt of a part of the job.
func (s *State) label(u *unit) string {
	switch s.spec.Restart {
	case job.RestartNode:
		return fmt.Sprintf("node rank %d, attempt %d", u.id, u.attempt)
	case job.RestartRank:
		return fmt.Sprintf("rank %d, attempt %d", u.id, u.attempt)
	case job.RestartGroup:
		return fmt.Sprintf("group %d, attempt %d", u.id, u.attempt)
	}
	return fmt.Sprintf("attempt %d", u.attempt)
}

// leaveWait says for which node's departure a unit waits.
func (s *State) leaveWait(u *unit) string {
	name := s.plan.slots[u.first].Node.Name
	for i := range u.members {
		if n := s.roster.nodes[s.plan.slots[u.first+i].Node.Name]; n != nil && n.leaves != nil {
			name = n.Name
		}
	}
	return "waiting for " + name + " to leave"
}

func (s *State) starting(units ...*unit) string {
	ranks := 0
	for _, u := range units {
		ranks += u.left
	}
	m := s.masterOf(units[0])
	master := netip.AddrPortFrom(s.plan.slots[m.home].Node.Addr, uint16(m.port))
	text := fmt.Sprintf("starting %s, master %v", words.Count(ranks, "rank"), master)
	if len(units) == 1 {
		text = s.label(units[0]) + ": " + text
	}
	return text
}

// stopWait says how many places still have to stop; empty if there are none.
func (s *State) stopWait(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("waiting for %s to stop", s.places(n))
}

// places formats a number of pairs of unit and node; for a gang, these are its nodes.
func (s *State) places(n int) string {
	if s.gang() {
		return words.Count(n, "node")
	}
	return words.Count(n, "unit")
}

func (s *State) success() string {
	exited, lost := s.plan.world.WorldSize, 0
	for i := range s.progress.units {
		u := &s.progress.units[i]
		if exited, lost = exited-u.lost, lost+u.lost; u.abandoned {
			exited -= s.size(u)
		}
	}
	text := fmt.Sprintf("job succeeded: %s exited 0", words.Count(exited, "rank"))
	if s.budget.restarts > 0 {
		text += " after " + words.Count(s.budget.restarts, "restart")
	}
	if lost > 0 {
		text += fmt.Sprintf("; %s lost", words.Count(lost, "rank"))
	}
	return text
}
