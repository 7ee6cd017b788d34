package job

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/golaunch/golaunch/placement"
)

// shownNodes bounds how many nodes a reason names.
const shownNodes = 4

// shortfall says who is here and how many of the wanted nodes are not. It takes the same time however many nodes there are.
func (s *State) shortfall() string {
	if s.timers.armed[AlarmLastCall] != 0 {
		return s.missing(s.spec.Request.MaxNodes) + "; starting with these at the last call"
	}
	return s.missing(s.spec.Request.MinNodes)
}

func (s *State) missing(want int) string {
	text := fmt.Sprintf("waiting for %d of %s", max(0, want-len(s.roster.nodes)), count(want, "node"))
	switch n := len(s.roster.nodes); {
	case n == 0:
		return text + "; none is here"
	case n > shownNodes:
		return text + fmt.Sprintf("; %d are here", n)
	}
	var here []string
	for _, name := range slices.Sorted(maps.Keys(s.roster.nodes)) {
		here = append(here, named(s.roster.nodes[name].Node))
	}
	return text + "; here: " + strings.Join(here, ", ")
}

func named(n placement.Node) string { return fmt.Sprintf("%s (%v)", n.Name, n.Addr) }

// some has the first of some names, and how many more there are.
func some(names []string) string {
	text := strings.Join(names[:min(len(names), shownNodes)], ", ")
	if more := len(names) - shownNodes; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// are has names and the verb that follows.
func are(names []string) string {
	if len(names) == 1 {
		return names[0] + " is"
	}
	return some(names) + " are"
}

// label names a unit's attempt: of the job where that is one unit, else of a part of it.
func (s *State) label(u *unit) string {
	switch s.spec.Restart {
	case RestartNode:
		return fmt.Sprintf("node rank %d, attempt %d", u.id, u.attempt)
	case RestartRank:
		return fmt.Sprintf("rank %d, attempt %d", u.id, u.attempt)
	}
	return fmt.Sprintf("attempt %d", u.attempt)
}

// leaveWait is what a unit waits for whose node leaves.
func (s *State) leaveWait(u *unit) string {
	return "waiting for " + s.plan.slots[u.first].Node.Name + " to leave"
}

func (s *State) portWait() string {
	switch {
	case s.master.ported && len(s.master.pending) == 0:
		if u := s.first(Preparing); u != nil {
			return s.leaveWait(u)
		}
		return ""
	case s.master.ported:
		return fmt.Sprintf("waiting for %s to reach the master at %s", s.proving(), endpoint(s.plan.world.MasterAddr, s.plan.world.MasterPort))
	case s.master.question == nil:
		return fmt.Sprintf("waiting for a node in the place of the master, %s", s.plan.slots[0].Node.Name)
	}
	return fmt.Sprintf("waiting for a free port on the master, %s", named(s.plan.slots[0].Node))
}

func (s *State) starting(units ...*unit) string {
	ranks := 0
	for _, u := range units {
		ranks += u.left
	}
	master := netip.AddrPortFrom(s.plan.slots[0].Node.Addr, uint16(s.plan.world.MasterPort))
	text := fmt.Sprintf("starting %s, master %v", count(ranks, "rank"), master)
	if len(units) == 1 {
		text = s.label(units[0]) + ": " + text
	}
	return text
}

// stopWait says how many places still have to stop; it is empty when none has.
func (s *State) stopWait(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("waiting for %s to stop", s.places(n))
}

// places counts pairs of unit and node, which are the nodes of a gang.
func (s *State) places(n int) string {
	if s.gang() {
		return count(n, "node")
	}
	return count(n, "unit")
}

func (s *State) success() string {
	text := fmt.Sprintf("job succeeded: %s exited 0", count(s.plan.world.WorldSize, "rank"))
	if s.budget.restarts > 0 {
		text += " after " + count(s.budget.restarts, "restart")
	}
	return text
}

// count has a number and its noun: "1 node", "2 nodes".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// also joins two parts of a reason, either of which may be empty.
func also(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}
