package group

import (
	"fmt"
	"slices"

	"github.com/golaunch/golaunch/internal/core/job"
	endpoints "github.com/golaunch/golaunch/internal/wire/endpoint"
	"github.com/golaunch/golaunch/launcher/report"
)

// WorkerError says that a worker has failed in a call. If the worker's handler failed, Message says
// how, with the stack of a panic. If the worker itself failed, Failure says how. If the Exit of
// that Failure has code 0 and no Spawn, the worker exited with success during the call.
type WorkerError struct {
	Rank           int
	Node           string
	Message, Stack string
	Failure        *report.Failure

	gone bool // the worker has ended, not only its handler
}

func (e *WorkerError) Error() string {
	if f := e.Failure; f != nil {
		text := fmt.Sprintf("worker %d on %s: %s", e.Rank, e.Node, f.Why)
		if means := f.Verdict.String(); means != "" {
			text += "; " + means
		}
		return text
	}
	return fmt.Sprintf("worker %d on %s: %s", e.Rank, e.Node, e.Message)
}

// follow updates the group's state by the coordinator's decisions about the job.
func (g *Group) follow(far *endpoints.Reach) {
	defer g.watch.Close()
	defer g.turns.change(func() {
		g.turns.groups = slices.DeleteFunc(g.turns.groups, func(other *Group) bool { return other == g })
	})
	for {
		d, err := g.watch.Next(g.ctx)
		far.Ask()
		if err != nil {
			g.change(func() {
				if g.over == nil {
					g.over = &report.Result{Code: 125, Reason: err.Error()}
				}
				g.failWorkers(nil)
			})
			return
		}
		g.change(func() {
			if d.Failure != nil {
				g.failed[d.Failure.Attempt] = d.Failure
				g.failWorkers(d.Failure)
			}
			if d.Result != nil {
				g.over = d.Result
				g.failWorkers(d.Result.Cause)
			}
		})
	}
}

// failWorkers ends the links of the workers that a failure ends: all workers, the workers of a
// node, or a single one. Pending calls return the failure; later calls wait for the worker that
// replaces the failed one.
func (g *Group) failWorkers(f *report.Failure) {
	for i := range g.workers {
		w := &g.workers[i]
		if f != nil && !g.endedBy(f, i) {
			continue
		}
		if f != nil {
			w.minAttempt = max(w.minAttempt, f.Attempt+1)
		}
		if f != nil && f.Attempt >= 0 && w.attempt > f.Attempt {
			continue
		}
		for _, l := range []*link{w.link, w.lost} {
			if l != nil {
				l.fail(f)
			}
		}
		w.link, w.lost, w.exited = nil, nil, nil
	}
}

// endedBy reports whether a failure ends a worker, by the job's restart policy.
func (g *Group) endedBy(f *report.Failure, rank int) bool {
	switch g.restart {
	case job.RestartRank:
		return f.Rank == rank || f.Rank < 0 && f.Node == g.workers[rank].node
	case job.RestartNode:
		return f.Rank == rank || f.Node == g.workers[rank].node
	default:
		return true
	}
}
