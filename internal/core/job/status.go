package job

import (
	"fmt"
	"slices"

	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// Summary is where a job stands, for a status view.
type Summary struct {
	Phase Phase
	// Attempt is the newest attempt of any unit.
	Attempt               int
	Restarts, MaxRestarts int
	// Waits says in words what the job waits for or, once it is finished, how it ended.
	Waits string
	// Nodes are the nodes that are there: by node rank, then the spares by name.
	Nodes []NodeSummary
}

// NodeSummary is one node of a [Summary].
type NodeSummary struct {
	Node placement.Node
	// NodeRank is -1 for a spare.
	NodeRank int
	// Ranks are the bundles that the job has on the node; Live says whether processes of the job
	// may be there.
	Ranks []placement.Bundle
	Live  bool
}

// Phase is where the job stands: with several units, the phase of the furthest unit that is not
// finished.
func (s *State) Phase() Phase {
	switch {
	case s.ending.finished:
		return Finished
	case s.decided():
		return Stopping
	}
	for _, p := range []Phase{Running, Stopping, Backoff, Preparing} {
		if s.first(p) != nil {
			return p
		}
	}
	return Gathering
}

// Summary describes the job. It costs O(nodes + units).
func (s *State) Summary() Summary {
	sum := Summary{Phase: s.Phase(), Restarts: s.budget.restarts, MaxRestarts: s.spec.MaxRestarts, Waits: s.waits()}
	for _, u := range s.progress.units {
		sum.Attempt = max(sum.Attempt, u.attempt)
	}
	for i, sl := range s.plan.slots {
		if n := s.roster.nodes[sl.Node.Name]; n != nil && n.nodeRank == i {
			sum.Nodes = append(sum.Nodes, NodeSummary{Node: n.Node, NodeRank: i, Ranks: sl.Bundles, Live: s.liveAt(i)})
		}
	}
	for _, n := range s.roster.list() {
		sum.Nodes = append(sum.Nodes, NodeSummary{Node: n, NodeRank: spare})
	}
	return sum
}

func (s *State) liveAt(nodeRank int) bool {
	return slices.ContainsFunc(s.unitsAt(nodeRank), func(u unit) bool { return u.member(nodeRank).live })
}

func (s *State) first(p Phase) *unit {
	for i := range s.progress.units {
		if s.progress.units[i].phase == p {
			return &s.progress.units[i]
		}
	}
	return nil
}

// Live reports whether processes of an attempt may be on a node. Whatever else of the job a
// returning node runs must end.
func (s *State) Live(node string, unit, attempt int) bool {
	_, _, _, ok := s.find(node, unit, attempt)
	return ok
}

// Result is how the job ends; false while that is not decided. The job is finished once nothing of
// it lives.
func (s *State) Result() (report.Result, bool) {
	if !s.decided() {
		return report.Result{}, false
	}
	return s.outcome(), true
}

// outcome is the result with its cause as it is known by now.
func (s *State) outcome() report.Result {
	r := *s.ending.result
	if s.ending.fatal != noUnit {
		u := &s.progress.units[s.ending.fatal]
		cause := u.failure()
		cause.Why = u.causeText()
		r.Cause = &cause
	}
	return r
}

// waits has one part for each thing that units wait for.
func (s *State) waits() string {
	if s.decided() {
		return also(s.ending.result.Reason, s.stopWait(s.progress.live))
	}
	var starting, stopping, ranks int
	for _, u := range s.progress.units {
		switch u.phase {
		case Running:
			starting += u.starting
			ranks += u.left
		case Stopping:
			stopping += u.live
		}
	}
	text := ""
	if s.gathering() {
		text = s.wanting()
	}
	if u := s.first(Preparing); u != nil {
		text = also(text, s.portWait(u))
	}
	if u := s.first(Backoff); u != nil && s.departures.end == nil {
		text = also(text, s.label(u)+" follows after a backoff")
	}
	text = also(text, s.stopWait(stopping))
	if starting > 0 {
		text = also(text, fmt.Sprintf("waiting for %s to start", s.places(starting)))
	}
	if ranks > 0 {
		text = also(text, count(ranks, "rank")+" to end")
	}
	if s.first(Running) != nil {
		text = also(text, also(s.progress.meeting, s.cohort.why))
	}
	return text
}
