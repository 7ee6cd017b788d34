package cluster

import (
	"fmt"
	"slices"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/words"
	"github.com/golaunch/golaunch/placement"
)

// A reservation is a [jobstate.State] that never starts. It counts as placed once it asks its
// master for a port. This question is never answered.

// reserve turns a step of this [jobstate.State] into a step of a reservation.
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
				st.Reason = fmt.Sprintf("%s; waiting for %s within it to end", st.Reason, words.Count(n, "job"))
				return true
			}
		default: // a reservation has the same timers as any job
		}
		return false
	})
}

// groups returns the placement groups of a reservation.
func (e *entry) groups() (p placement.Plan) {
	for _, n := range e.state.Summary().Nodes {
		if n.NodeRank >= 0 {
			p.Groups = append(p.Groups, placement.Group{Node: n.Node, NodeRank: n.NodeRank, Bundles: n.Ranks})
		}
	}
	return p
}

func (e *entry) standing() string {
	return fmt.Sprintf("reservation %s holds %s", e.Job.ID, words.Count(len(e.held), "node"))
}

// end closes a job that an event has ended. A reservation first cancels the jobs within it. They
// get as much time to save as the cancellation gave the reservation.
func (s *State) end(e *entry, by job.Event) {
	s.leave(e)
	if e.inner == nil || len(e.inner.open) == 0 {
		s.close(e)
		return
	}
	result, _ := e.state.Result()
	why := fmt.Sprintf("reservation %s has ended: %s", e.Job.ID, result.Reason)
	ev := job.Cancel{Code: result.Code, Why: why}
	if c, ok := by.(job.Cancel); ok {
		ev.Within, ev.AfterSave, ev.At = c.Within, c.AfterSave, c.At
	}
	s.cancelWithin(e, ev)
}

func (s *State) cancelWithin(e *entry, ev job.Cancel) {
	for _, within := range slices.Clone(e.inner.open) {
		s.step(within, ev)
	}
}

// close takes back the nodes of a job. An ended reservation is closed together with the last job
// within it.
func (s *State) close(e *entry) {
	e.done = true
	s.release(e)
	res := e.queue.reservation
	if res == nil {
		return
	}
	res.inner.open = remove(res.inner.open, e, bySubmission)
	if res.ended && len(res.inner.open) == 0 {
		result, _ := res.state.Result()
		finish := []job.Action{job.Finish{Result: result}}
		s.out.Steps = append(s.out.Steps, Step{Job: res.Job.ID, Actions: finish, Reason: result.Reason})
		s.close(res)
	}
}
