// Package agent is golaunch on a node: it starts the ranks that the coordinator orders, watches them, files their output and
// makes sure that none is left behind.
//
// An [Agent] decides nothing. It carries out the orders of a [rendezvous.Session] and reports what happened; which failure
// matters and what restarts is the coordinator's business.
package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/golaunch/golaunch/internal/job"
	"github.com/golaunch/golaunch/internal/proc"
	"github.com/golaunch/golaunch/rankenv"
	"github.com/golaunch/golaunch/rendezvous"
)

// Task is what every rank of the job runs on this node.
type Task struct {
	// Command is the program and its arguments; "${local_rank}" in an argument stands for the rank's own, as under torchrun.
	Command []string
	// Dir is the working directory; the agent's own when empty.
	Dir string
	// Env is the node's part of the environment, before a rank's own variables.
	Env *rankenv.Base
	// Visibility says which GPUs a rank sees.
	Visibility rankenv.Visibility
	// MasterPort is fixed by the user, or 0 for a free one per attempt.
	MasterPort int
	// Stdin is what rank 0 reads when it runs here; the other ranks read nothing.
	Stdin bool
}

// Agent carries out the orders of one session.
type Agent struct {
	Session    *rendezvous.Session
	Supervisor *proc.Supervisor
	Task       Task
	Output     Output
	// Signals are passed on to every rank of this node (USR1, USR2); nil passes none.
	Signals <-chan syscall.Signal
	// Leave asks this node to leave the job, with the reason: its ranks are stopped in order before the coordinator hears that
	// they are gone. Nil never asks.
	Leave <-chan string
	// Grace is how long its ranks may take then.
	Grace time.Duration
	// Warn is told what went wrong without ending the job, such as a full disk.
	Warn func(error)

	units map[int]*unit
	done  sync.WaitGroup
	// broken has the reason why this node cannot go on: processes that cannot be killed.
	broken chan error
	// leaving silences reports: that ranks end now is not news about the job. It is set once, before any of them is stopped.
	leaving atomic.Bool
}

// ErrLeft says that this node left the job before its end, as it was asked to.
var ErrLeft = errors.New("this node left the job")

// Run carries out orders until the job is finished, and returns its result. When ctx ends, or the coordinator is lost, every rank
// is killed and the error says so. However it returns, no process that it started lives any more, and the session is closed.
func (a *Agent) Run(ctx context.Context) (job.Result, error) {
	a.units, a.broken = map[int]*unit{}, make(chan error, 1)
	result, err := a.follow(ctx)
	for _, u := range a.units {
		u.stop(0, true)
	}
	a.done.Wait()
	why := "the job is over"
	if err != nil {
		why = err.Error()
	}
	a.Session.Close(why)
	return result, err
}

func (a *Agent) follow(ctx context.Context) (job.Result, error) {
	var left chan struct{}
	var why string
	for {
		select {
		case <-ctx.Done():
			return job.Result{}, context.Cause(ctx)
		case err := <-a.broken:
			return job.Result{}, err
		case why = <-a.Leave:
			left = a.leave()
		case <-left:
			return job.Result{}, fmt.Errorf("%w: %s", ErrLeft, why)
		case sig := <-a.Signals:
			a.signal(sig)
		case order, ok := <-a.Session.Orders():
			if !ok {
				return job.Result{}, a.Session.Err()
			}
			if end, ok := order.(job.Finish); ok {
				return end.Result, nil
			}
			if left == nil {
				a.obey(order)
			}
		}
	}
}

func (a *Agent) obey(order rendezvous.Order) {
	switch o := order.(type) {
	case job.Prepare:
		a.report(a.prepare(o))
	case job.Start:
		a.start(o)
	case job.Stop:
		a.stop(o)
	case rendezvous.Signal:
		a.signal(o.Number)
	default:
		a.Warn(fmt.Errorf("the coordinator sent an order that this agent does not know: %T", order))
	}
}

// start begins an attempt unless it, or a later one, has been here already.
func (a *Agent) start(o job.Start) {
	if !a.knows(o.Unit, o.Attempt) {
		a.begin(newUnit(a, o))
	}
}

// stop ends an attempt. One that never began here begins stopped, so that it cannot begin late.
func (a *Agent) stop(o job.Stop) {
	if !a.knows(o.Unit, o.Attempt) {
		u := newUnit(a, job.Start{Unit: o.Unit, Attempt: o.Attempt})
		u.stop(0, true)
		a.begin(u)
		return
	}
	if u := a.units[o.Unit]; u.order.Attempt == o.Attempt {
		u.stop(o.Grace, o.Kill)
	}
}

// knows says that an attempt of a unit, or a later one, has been here.
func (a *Agent) knows(id, attempt int) bool {
	u := a.units[id]
	return u != nil && u.order.Attempt >= attempt
}

// begin makes u the newest attempt of its ranks.
func (a *Agent) begin(u *unit) {
	old := a.units[u.order.Unit]
	a.units[u.order.Unit] = u
	a.done.Go(func() {
		if old != nil {
			// The barrier is the coordinator's; this holds it even if an order came too early.
			old.stop(0, true)
			<-old.gone
		}
		u.run()
	})
}

// leave stops all ranks in order; what it returns is closed when they are gone.
func (a *Agent) leave() chan struct{} {
	a.leaving.Store(true)
	for _, u := range a.units {
		u.stop(a.Grace, false)
	}
	left := make(chan struct{})
	go func() {
		a.done.Wait()
		close(left)
	}()
	return left
}

// report tells the coordinator, unless this node is leaving.
func (a *Agent) report(ev job.Event) {
	if !a.leaving.Load() {
		a.Session.Report(ev)
	}
}

// fail ends this node's part in the job; the first reason counts.
func (a *Agent) fail(why error) {
	select {
	case a.broken <- why:
	default:
	}
}

func (a *Agent) signal(sig syscall.Signal) {
	for _, u := range a.units {
		u.signal(sig)
	}
}
