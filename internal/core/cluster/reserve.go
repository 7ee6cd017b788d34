package cluster

import (
	"fmt"
	"slices"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/placement"
)

// A reservation is a [job.State] that never starts: it is placed once it asks its master for a port, and is not answered.

// reserve makes of a step of that state one of a reservation.
func (s *State) reserve(e *entry, st *Step) {
	if _, again := st.Event.(job.Rejoined); again {
		st.Actions, st.Reason = nil, ""
		return
	}
	st.Actions = slices.DeleteFunc(slices.Clone(st.Actions), func(a job.Action) bool {
		switch a.(type) {
		case job.Prepare:
			plan := e.groups()
			st.Granted, st.Reason = &plan, e.standing()
			e.inner.mark(s, true)
			return true
		case job.Finish:
			if n := len(e.inner.open); n > 0 {
				st.Reason = fmt.Sprintf("%s; waiting for %s within it to end", st.Reason, count(n, "job"))
				return true
			}
		default: // timers are as for any job
		}
		return false
	})
}

// groups are the placement groups of a reservation.
func (e *entry) groups() (p placement.Plan) {
	for _, n := range e.state.Summary().Nodes {
		if n.NodeRank >= 0 {
			p.Groups = append(p.Groups, placement.Group{Node: n.Node, NodeRank: n.NodeRank, Bundles: n.Ranks})
		}
	}
	return p
}

func (e *entry) standing() string {
	return fmt.Sprintf("reservation %s holds %s", e.Job.ID, count(len(e.held), "node"))
}

// end takes what a job held when it has ended; a reservation first cancels the jobs within it.
func (s *State) end(e *entry) {
	s.leave(e)
	if e.inner == nil || len(e.inner.open) == 0 {
		s.close(e)
		return
	}
	result, _ := e.state.Result()
	s.cancelWithin(e, job.Cancel{Code: result.Code, Why: fmt.Sprintf("reservation %s has ended: %s", e.Job.ID, result.Reason)})
}

func (s *State) cancelWithin(e *entry, ev job.Cancel) {
	for _, within := range slices.Clone(e.inner.open) {
		s.step(within, ev)
	}
}

// close is the end of a job that nothing holds up any more, and of the reservation of which it was the last.
func (s *State) close(e *entry) {
	s.settle(e)
	if res := e.queue.reservation; res != nil && res.ended && len(res.inner.open) == 0 {
		s.conclude(res)
	}
}

// settle takes what a job held.
func (s *State) settle(e *entry) {
	e.done = true
	s.release(e)
	if res := e.queue.reservation; res != nil {
		res.inner.open = remove(res.inner.open, e, bySubmission)
	}
}

// conclude ends a reservation after its jobs.
func (s *State) conclude(e *entry) {
	result, _ := e.state.Result()
	s.out.Steps = append(s.out.Steps, Step{Job: e.Job.ID, Actions: []job.Action{job.Finish{Result: result}}, Reason: result.Reason})
	s.close(e)
}
