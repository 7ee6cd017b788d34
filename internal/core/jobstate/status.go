package jobstate

import (
	"fmt"
	"slices"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/words"
	"github.com/golaunch/golaunch/launcher/report"
)

// Phase is the phase of the job. With several units, it is the phase of the furthest unit that is
// not finished.
func (s *State) Phase() job.Phase {
	switch {
	case s.ending.finished:
		return job.Finished
	case s.decided():
		return job.Stopping
	}
	for _, p := range []job.Phase{job.Running, job.Stopping, job.Backoff, job.Preparing} {
		if s.first(p) != nil {
			return p
		}
	}
	return job.Gathering
}

// Summary describes the job. It costs O(nodes + units).
func (s *State) Summary() job.Summary {
	sum := job.Summary{Phase: s.Phase(), Restarts: s.budget.restarts, MaxRestarts: s.spec.MaxRestarts, Waits: s.waits()}
	for _, u := range s.progress.units {
		sum.Attempt = max(sum.Attempt, u.attempt)
	}
	for i, sl := range s.plan.slots {
		if n := s.roster.nodes[sl.Node.Name]; n != nil && n.nodeRank == i {
			sum.Nodes = append(sum.Nodes, job.NodeSummary{Node: n.Node, NodeRank: i, Ranks: sl.Bundles, Live: s.liveAt(i)})
		}
	}
	for _, n := range s.roster.list() {
		sum.Nodes = append(sum.Nodes, job.NodeSummary{Node: n, NodeRank: spare})
	}
	return sum
}

func (s *State) liveAt(nodeRank int) bool {
	return slices.ContainsFunc(s.unitsAt(nodeRank), func(u unit) bool { return u.member(nodeRank).live })
}

func (s *State) first(p job.Phase) *unit {
	for i := range s.progress.units {
		if s.progress.units[i].phase == p {
			return &s.progress.units[i]
		}
	}
	return nil
}

// Live reports whether processes of an attempt may be on a node. Any other process of the job on a
// returning node must end.
func (s *State) Live(node string, unit, attempt int) bool {
	_, _, _, ok := s.find(node, unit, attempt)
	return ok
}

// Result is how the job ends; false while the end is not decided. The job is finished once none of
// its processes lives.
func (s *State) Result() (report.Result, bool) {
	if !s.decided() {
		return report.Result{}, false
	}
	return s.outcome(), true
}

// outcome is the result, with its cause if that is known now.
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

// waits joins one text for each thing that units wait for.
func (s *State) waits() string {
	if s.decided() {
		return words.Also(s.ending.result.Reason, s.stopWait(s.progress.live))
	}
	var starting, stopping, ranks int
	for _, u := range s.progress.units {
		switch u.phase {
		case job.Running:
			starting += u.starting
			ranks += u.left
		case job.Stopping:
			stopping += u.live
		}
	}
	text := ""
	if s.gathering() {
		text = s.wanting()
	}
	if u := s.first(job.Preparing); u != nil {
		text = words.Also(text, s.portWait(u))
	}
	if u := s.first(job.Backoff); u != nil && s.departures.end == nil {
		text = words.Also(text, s.label(u)+" follows after a backoff")
	}
	text = words.Also(text, s.stopWait(stopping))
	if starting > 0 {
		text = words.Also(text, fmt.Sprintf("waiting for %s to start", s.places(starting)))
	}
	if ranks > 0 {
		text = words.Also(text, words.Count(ranks, "rank")+" to end")
	}
	if s.first(job.Running) != nil {
		text = words.Also(text, words.Also(s.progress.meeting, s.cohort.why))
	}
	return text
}
