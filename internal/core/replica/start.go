package replica

import (
	"slices"
	"time"

	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/core/goodput"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/launcher/report"
)

// startClock measures the newest start of a gang. Phase is the phase that began at Since; empty
// once the start is over.
type startClock struct {
	Start report.Start
	Phase report.Phase
	Since time.Time
	// Took is how long the imports of the modules took.
	Took time.Duration
}

// begin starts the clock for another start.
func (c *startClock) begin(at time.Time, with report.Phase) {
	*c = startClock{Phase: with, Since: at, Start: report.Start{Attempt: c.Start.Attempt}}
}

// take notes what a step of the job says about the job's start. It reports whether the ranks run
// and the step has ended a phase of the start, so that people can be told the phases so far.
func (c *startClock) take(at time.Time, st cluster.Step) bool {
	node, rank := slowest(st.Event)
	if ev, is := st.Event.(job.Started); is && ev.Imports.Took > c.Took {
		c.Took, c.Start.Modules = ev.Imports.Took, ev.Imports.Modules
	}
	for _, a := range st.Actions {
		switch a := a.(type) {
		case job.Prepare:
			c.Start.Attempt = a.Attempt
		case job.Start:
			c.Start.Attempt = a.Attempt
			c.enter(at, report.PhaseProcesses, node, rank)
		default: // it starts nothing
		}
	}
	for _, change := range st.Changes {
		switch change.To {
		case goodput.Backoff:
			c.begin(at, report.PhaseBackoff)
		case goodput.Waiting:
			if c.Phase != report.PhaseNodes {
				c.begin(at, report.PhaseNodes)
			}
		case goodput.Starting:
			if c.Phase == "" { // a growth begins when the ranks are stopped
				c.begin(at, report.PhaseChecks)
			}
			if c.Phase != report.PhaseProcesses {
				c.enter(at, report.PhaseChecks, node, rank)
			}
		case goodput.Training:
			c.split(at, change.Imported)
			c.enter(at, report.PhaseStore, node, rank)
			return true
		default: // the ranks end, or have reached a step
		}
	}
	switch ev := st.Event.(type) {
	case job.Met:
		if ev.Complete != nil && c.Phase == report.PhaseStore && !st.Stale {
			c.enter(at.Add(-ev.Complete.Ago), report.PhaseStep, "", rank)
			return true
		}
	case job.Stepped:
		if (c.Phase == report.PhaseStore || c.Phase == report.PhaseStep) && ev.Step > 0 && !st.Stale {
			c.Phase = report.PhaseStep
			c.enter(at.Add(-ev.Ago), "", ev.Node, new(0))
			return true
		}
	default: // it says nothing about a start
	}
	return false
}

// enter ends a phase and begins the next, unless they are the same. No phase ends before it began,
// although the moments that agents report may be in any order.
func (c *startClock) enter(at time.Time, next report.Phase, node string, rank *int) {
	if c.Phase == next {
		return
	}
	if at.Before(c.Since) {
		at = c.Since
	}
	if c.Phase != "" {
		c.add(report.StartPhase{Phase: c.Phase, Seconds: at.Sub(c.Since).Seconds(), Node: node, Rank: rank})
	}
	c.Phase, c.Since = next, at
}

// leastImport is the shortest wait for imports that counts as a phase. A fork server that has
// already imported its modules answers sooner.
const leastImport = time.Millisecond

// split ends the phase in which ranks waited for imports. The rest of the start creates processes.
func (c *startClock) split(at time.Time, imported time.Duration) {
	imported = min(imported, at.Sub(c.Since))
	if imported < leastImport || c.Phase != report.PhaseProcesses {
		c.Start.Modules = nil
		return
	}
	c.add(report.StartPhase{Phase: report.PhaseImports, Seconds: imported.Seconds()})
	c.Since = c.Since.Add(imported)
}

// add adds a phase, or adds time to an earlier phase to which the start went back.
func (c *startClock) add(p report.StartPhase) {
	phases := c.Start.Phases
	if i := slices.IndexFunc(phases, func(o report.StartPhase) bool { return o.Phase == p.Phase }); i >= 0 {
		phases[i].Seconds += p.Seconds
		phases[i].Node, phases[i].Rank = p.Node, p.Rank
		return
	}
	c.Start.Phases = append(phases, p)
}

// report describes the start; nil if nothing is known about it.
func (c *startClock) report() *report.Start {
	if len(c.Start.Phases) == 0 {
		return nil
	}
	s := c.Start
	s.Phases = slices.Clone(s.Phases)
	return &s
}

// slowest returns the node and the rank whose event ended a phase.
func slowest(ev job.Event) (node string, rank *int) {
	switch ev := ev.(type) {
	case job.Joined:
		return ev.Node.Name, nil
	case job.Prepared:
		return ev.Node, nil
	case job.Reached:
		return ev.Node, nil
	case job.Started:
		return ev.Node, nil
	case job.Met:
		if ev.Complete != nil && ev.Complete.Last >= 0 {
			return "", &ev.Complete.Last
		}
	default: // it ends no phase
	}
	return "", nil
}
