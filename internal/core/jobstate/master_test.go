package jobstate

import "github.com/golaunch/golaunch/internal/core/job"

// noteUnreachable notes the attempts that fail because nodes do not reach the master: attempts that
// are about to start, and attempts on the master.
func (t *truth) noteUnreachable(ev job.Event, actions []job.Action) {
	if !isA[job.Reached](ev) && !isA[job.Lost](ev) || !t.unreachable() || t.w.state.ending.result != nil {
		return
	}
	for _, a := range actions {
		switch a := a.(type) {
		case job.Wait:
			if old := (attemptOf{a.Unit, a.Attempt - 1}); t.newest[a.Unit] == old.attempt-1 && t.elapsed[old] {
				t.newest[a.Unit], t.missed = old.attempt, t.asked.node
				t.fail(old, reported{rank: -1})
				t.seen["unreachable"] = true
			}
		case job.Stop:
			if at := (attemptOf{a.Unit, a.Attempt}); a.Node == t.asked.node && len(t.failed[at]) == 0 && !t.evacuated[at] {
				t.fail(at, reported{rank: -1})
			}
		}
	}
}

// unreachable reports whether a node does not reach the master.
func (t *truth) unreachable() bool {
	for _, ask := range t.reach {
		if t.cut[ask] {
			return true
		}
	}
	return false
}
