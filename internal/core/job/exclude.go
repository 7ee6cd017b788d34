package job

import (
	"fmt"
	"maps"
	"slices"

	"github.com/golaunch/golaunch/internal/core/verdict"
	"github.com/golaunch/golaunch/placement"
)

// suspect counts a failure against its nodes, and excludes them by that evidence. An echo is none, nor is a hang without a rank that is
// behind.
func (s *State) suspect(f *fault) string {
	if f.Verdict.Victim || f.Hung && f.Rank < 0 {
		return ""
	}
	var names []string
	why := ""
	for _, name := range append([]string{f.Node}, f.others...) {
		s.suspects.blamed[name]++
		if reason := s.unfit(f, name); reason != "" {
			s.suspects.excluded[name], why = reason, reason
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	s.arm(AlarmExclusion)
	return fmt.Sprintf("%s excluded for %v if others will do: %s", are(names), s.spec.ExcludeFor, why)
}

// unfit is why a failure excludes a node that is to blame for it; empty when it does not.
func (s *State) unfit(f *fault, name string) string {
	switch n := s.suspects.blamed[name]; {
	case s.spec.ExcludeAfter == 0 || s.Excludes(name):
		return ""
	case f.Verdict.Action == verdict.Replace && f.Verdict.Cause != verdict.NodeLost.Cause: // which may have been cut off once
		return f.Verdict.Cause
	case n < s.spec.ExcludeAfter:
		return ""
	default:
		return count(n, "failure")
	}
}

// shun tells of a node whose hardware has failed, by what one of its ranks or the kernel said.
func (s *State) shun(f *fault) {
	if f.Rank >= 0 && f.Verdict.Action == verdict.Replace && s.spec.ExcludeAfter > 0 {
		s.do(Shun{Node: f.Node, Why: f.Verdict.Cause})
	}
}

// shunLast does so for the failures that ended the job before they were weighed.
func (s *State) shunLast() {
	for i := range s.progress.units {
		if f := s.progress.units[i].cause; f != nil && !f.decided {
			f.decided = true
			s.shun(f)
		}
	}
}

// readmit forgets what was held against nodes.
func (s *State) readmit(ev TimedOut) string {
	if ev.Seq == 0 || ev.Seq != s.timers.armed[AlarmExclusion] {
		return s.ignore()
	}
	s.timers.armed[AlarmExclusion] = 0
	text := count(len(s.suspects.excluded), "node") + " excluded until now can be used again"
	clear(s.suspects.excluded)
	clear(s.suspects.blamed)
	return text
}

// solve plans without the excluded nodes, and with them only if there is no other way.
func (s *State) solve(r placement.Request) (placement.Plan, error) {
	all := s.list()
	fit := s.fit(all)
	if len(fit) < len(all) {
		if plan, err := placement.Solve(r, fit); err == nil {
			return plan, nil
		}
	}
	if r, moved := s.elsewhere(r); moved {
		if plan, err := placement.Solve(r, all); err == nil {
			return plan, nil
		}
	}
	return placement.Solve(r, all)
}

// fit are those of the nodes that are not excluded.
func (s *State) fit(nodes []placement.Node) []placement.Node {
	var fit []placement.Node
	for _, n := range nodes {
		if !s.Excludes(n.Name) {
			fit = append(fit, n)
		}
	}
	return fit
}

// reused says which excluded nodes a unit that is to start uses all the same.
func (s *State) reused(u *unit) string {
	if len(s.suspects.excluded) == 0 {
		return ""
	}
	var names []string
	for i := range u.members {
		if name := s.plan.slots[u.first+i].Node.Name; s.Excludes(name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "used although excluded: " + some(names)
}

// Excludes says that a node is used only if others will not do.
func (s *State) Excludes(node string) bool { return s.suspects.excluded[node] != "" }

// Excluded says why nodes are used only if others will not do, by name. It is the state's own map.
func (s *State) Excluded() map[string]string { return s.suspects.excluded }

// Idle are the excluded nodes with a node rank whose units all wait for their next attempt or are done: another node can take that
// node rank at no cost.
func (s *State) Idle() (nodes []string) {
	for _, name := range slices.Sorted(maps.Keys(s.suspects.excluded)) {
		n := s.roster.nodes[name]
		if n == nil || n.slot == spare || s.ending.result != nil {
			continue
		}
		busy := func(u unit) bool { return u.phase != Backoff && u.phase != Finished }
		if units := s.unitsAt(n.slot); !slices.ContainsFunc(units, busy) && slices.ContainsFunc(units, func(u unit) bool { return owes(&u) }) {
			nodes = append(nodes, name)
		}
	}
	return nodes
}

// Instead is a request for one node in the place of one that has a node rank.
func (s *State) Instead(node string) placement.Request {
	r := s.spec.Request
	r.MinNodes, r.MaxNodes, r.Strategy, r.Keep = 1, 1, placement.StrictPack, nil
	if !s.whole() || !allGPUs(r) {
		r.PerNode = []int{len(s.plan.slots[s.roster.nodes[node].slot].Bundles)}
	}
	return r
}
