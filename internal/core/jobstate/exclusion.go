package jobstate

import (
	"fmt"
	"maps"
	"slices"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/verdict"
	"github.com/golaunch/golaunch/internal/core/words"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// suspects are the nodes that are to blame for failures.
type suspects struct {
	// blamed counts the failures of each node since the budget was last full.
	blamed map[string]int
	// excluded are the nodes that the job uses only if no others fit.
	excluded map[string]exclusion
}

// exclusion is why a node is excluded, as a code and in words.
type exclusion struct {
	code exclusionCode
	text string
}

type exclusionCode int

// The numbers are part of the snapshot format. 1 was for hardware.
const (
	notExcluded exclusionCode = 0
	// excludedFailed is for a node whose hardware failed, or that had too many failures.
	excludedFailed exclusionCode = 2
	// excludedUnreachable is for a node that did not reach the master, or for a master that other
	// nodes did not reach. If the connection works the next time, the node is pardoned.
	excludedUnreachable exclusionCode = 3
)

func (q *suspects) blame(node string)                { q.blamed[node]++ }
func (q *suspects) exclude(node string, e exclusion) { q.excluded[node] = e }
func (q *suspects) clearBlamed()                     { clear(q.blamed) }

func (q *suspects) pardonAll() {
	clear(q.excluded)
	clear(q.blamed)
}

// pardonUnreachable lifts the exclusion of a node that is excluded as unreachable.
func (q *suspects) pardonUnreachable(node string) {
	if q.excluded[node].code == excludedUnreachable {
		delete(q.excluded, node)
	}
}

// fit returns the nodes that are not excluded.
func (q *suspects) fit(nodes []placement.Node) []placement.Node {
	var fit []placement.Node
	for _, n := range nodes {
		if q.excluded[n.Name].code == notExcluded {
			fit = append(fit, n)
		}
	}
	return fit
}

// suspect counts a failure against its nodes, and excludes nodes with too many failures. An echo of
// another failure is no evidence against a node, and neither is a hang in which no rank is behind
// the others.
func (s *State) suspect(f *fault) string {
	if f.Verdict.Victim || f.wholeHang() {
		return ""
	}
	var names []string
	why := ""
	for _, name := range append([]string{f.Node}, f.others...) {
		s.suspects.blame(name)
		if e := s.unfit(f, name); e.code != notExcluded {
			s.suspects.exclude(name, e)
			names, why = append(names, name), e.text
		}
	}
	if len(names) == 0 {
		return ""
	}
	s.arm(job.AlarmExclusion)
	return fmt.Sprintf("%s excluded for %v if others will do: %s", are(names), s.spec.ExcludeFor, why)
}

// unfit says why a failure excludes a node that is to blame for the failure. The loss of a node
// alone does not exclude the node, since the node may have been cut off only once.
func (s *State) unfit(f *fault, name string) exclusion {
	switch n := s.suspects.blamed[name]; {
	case s.spec.ExcludeAfter == 0 || s.Excludes(name) || s.closed() && len(s.roster.nodes) == 1: // no other node can ever do
		return exclusion{}
	case f.Verdict.Action == report.ActionReplace && f.Verdict.Cause != verdict.NodeLost.Cause:
		if f.unreachable() {
			return exclusion{excludedUnreachable, f.Verdict.Cause}
		}
		return exclusion{excludedFailed, f.Verdict.Cause}
	case n < s.spec.ExcludeAfter:
		return exclusion{}
	default:
		return exclusion{excludedFailed, words.Count(n, "failure")}
	}
}

// quarantine tells the cluster about a node whose hardware has failed, according to one of its
// ranks or the kernel.
func (s *State) quarantine(f *fault) {
	if f.Rank >= 0 && f.Verdict.Action == report.ActionReplace && s.spec.ExcludeAfter > 0 {
		s.step.do(job.Quarantine{Node: f.Node, Why: f.Verdict.Cause})
	}
}

// quarantineLast calls quarantine for failures that were not decided before the job ended.
func (s *State) quarantineLast() {
	for i := range s.progress.units {
		if f := s.progress.units[i].cause; f != nil && !f.decided {
			f.decided = true
			s.quarantine(f)
		}
	}
}

// readmit lifts all exclusions.
func (s *State) readmit(ev job.TimedOut) string {
	if !s.timers.answers(ev) {
		return s.step.ignore()
	}
	s.timers.clear(job.AlarmExclusion)
	text := words.Count(len(s.suspects.excluded), "node") + " excluded until now can be used again"
	s.suspects.pardonAll()
	return text
}

// reused names the excluded nodes that a unit must nevertheless use to start.
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

// Excludes reports whether the job uses a node only if no other fits.
func (s *State) Excludes(node string) bool { return s.suspects.excluded[node].code != notExcluded }

// Excluded returns, by node name, why the job uses a node only if no other fits.
func (s *State) Excluded() map[string]string {
	why := make(map[string]string, len(s.suspects.excluded))
	for name, e := range s.suspects.excluded {
		why[name] = e.text
	}
	return why
}

// ExcludesAny reports whether the job excludes any node.
func (s *State) ExcludesAny() bool { return len(s.suspects.excluded) > 0 }

// Idle returns the excluded nodes with a node rank whose units all wait for their next attempt or
// are done. Another node can take such a node rank at no cost.
func (s *State) Idle() (nodes []string) {
	for _, name := range slices.Sorted(maps.Keys(s.suspects.excluded)) {
		n := s.roster.nodes[name]
		if n == nil || n.nodeRank == spare || s.decided() {
			continue
		}
		busy := func(u unit) bool { return u.phase != job.Backoff && u.phase != job.Finished }
		if units := s.unitsAt(n.nodeRank); !slices.ContainsFunc(units, busy) && slices.ContainsFunc(units, owing) {
			nodes = append(nodes, name)
		}
	}
	return nodes
}

func owing(u unit) bool { return u.owes() }
