// Package agent is golaunch on a node: it starts the ranks that the coordinator orders, watches them, files their output and
// makes sure that none is left behind.
//
// An [Agent] decides nothing. It carries out the orders of a [session.Session], for one job or for many, and reports what
// happened; which failure matters and what restarts is the coordinator's business.
package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/golaunch/golaunch/internal/session"
	"github.com/golaunch/golaunch/internal/wire"

	"github.com/golaunch/golaunch/internal/bind"
	"github.com/golaunch/golaunch/internal/job"
	"github.com/golaunch/golaunch/internal/keep"
	"github.com/golaunch/golaunch/internal/logs"
	"github.com/golaunch/golaunch/internal/proc"
	"github.com/golaunch/golaunch/rankenv"
)

// Task is what every rank of a job runs on this node.
type Task struct {
	// Command is the program and its arguments; "${local_rank}" in an argument stands for the rank's own, as under torchrun.
	Command []string
	// Dir is the working directory; the agent's own when empty.
	Dir string
	// Env is the node's part of the environment, before a rank's own variables.
	Env *rankenv.Base
	// Presets are added to Env for a start: they depend on what the job's nodes agreed on ([job.World].Network). Nil adds none.
	Presets func(network string) []rankenv.Var
	// Visibility says which GPUs a rank sees.
	Visibility rankenv.Visibility
	// Bind says on which CPUs a rank runs; bind.None when empty. Strict makes what Bind would warn of a reason not to start.
	Bind   bind.Policy
	Strict bool
	// MasterPort is fixed by the user, or 0 for a free one per attempt.
	MasterPort int
	// Role is the ranks' ROLE_NAME; "default" when empty.
	Role string
	// Rank0Store leaves it to rank 0 to serve torch's store at MASTER_PORT; otherwise the master's agent serves it.
	Rank0Store bool
	// Bundle keeps evidence of attempts that fail, in the directory of Output. HangTimeout is how long ranks may stand still; 0 for ever.
	Bundle      bool
	HangTimeout time.Duration
	// Stdin is what rank 0 reads when it runs here; the other ranks read nothing.
	Stdin bool
	// NoticeSignal is sent to ranks that find a notice in their GOLAUNCH_NOTICE_FILE; none when 0.
	NoticeSignal syscall.Signal
}

// Work is a job as this node carries it out.
type Work struct {
	Task   Task
	Output Output
	// Close is called when the job is over here and nobody reads its output; it may be nil.
	Close func()
}

// Agent carries out the orders of one session.
type Agent struct {
	Session    *session.Session
	Supervisor *proc.Supervisor
	// Keeper, if set, takes the place of the Supervisor: ranks outlive this process, and Run goes on with those that it finds there.
	// The session must be that of a cluster, and that of the agent that has left them.
	Keeper *keep.Keeper
	// Open makes ready for a job: for the session's only one, without a task, or for one of a cluster, with its submission's. The
	// error is why no rank of the job can run here.
	Open func(job string, task []byte) (Work, error)
	// Past finds the output of a job that is over; the agent of a cluster needs it.
	Past func(job string) (*logs.Dir, error)
	// Signals are passed on to every rank of this node (USR1, USR2); nil passes none.
	Signals <-chan syscall.Signal
	// Leave asks this node to leave: its ranks are stopped in order before the coordinator hears that they are gone. Nil never asks.
	Leave <-chan Departure
	// Grace is how long its ranks may take then.
	Grace time.Duration
	// Warn is told what went wrong without ending the job, such as a full disk.
	Warn func(error)

	// sys is /sys when nil, loaded a timer of loadTime, looks a ticker of a part of HangTimeout, and beats one of stepEvery.
	sys    fs.FS
	loaded <-chan time.Time
	looks  <-chan time.Time
	beats  <-chan time.Time
	shares map[string]*share
	// done are the jobs of which something may live, readers those whose output may be read, and who reads it.
	done, readers sync.WaitGroup
	// reading is the context of those readers.
	reading context.Context
	// broken has the reason why this node cannot go on: processes that cannot be killed.
	broken chan error
	// leaving silences reports: that ranks end now is not news about the job. It is set once, before any of them is stopped.
	leaving atomic.Bool
}

// Departure is why a node leaves, and how long its ranks, and those that work with them, have to get ready for that. With All it tells
// of the end of the session's only job, on all nodes, by somebody else: this one stays until then.
type Departure struct {
	Why    string
	Within time.Duration
	All    bool
}

// ErrLeft says that this node left before the end of its jobs, as it was asked to, and ErrDrained that no job needs it any more.
var (
	ErrLeft    = errors.New("this node has left")
	ErrDrained = errors.New("this node is drained")
)

// Run carries out orders until the session's only job is finished, and returns its result; the agent of a cluster goes on until it
// is told to leave. When ctx ends, or the coordinator is lost, every rank is killed and the error says so. However it returns, no
// process that it started lives any more, and the session is closed.
func (a *Agent) Run(ctx context.Context) (job.Result, error) {
	a.shares, a.broken = map[string]*share{}, make(chan error, 1)
	reading, stopReading := context.WithCancel(ctx)
	defer stopReading()
	a.reading = reading
	result, err := a.work(ctx)
	a.leaving.Store(true)
	for _, s := range a.shares {
		s.kill()
	}
	a.done.Wait()
	stopReading()
	a.readers.Wait()
	why := "the job is over"
	if err != nil {
		why = err.Error()
	}
	a.Session.Close(why)
	return result, err
}

func (a *Agent) work(ctx context.Context) (job.Result, error) {
	if id := a.Session.Job; id != "" {
		if s := a.open(id, nil); s.err != nil {
			return job.Result{}, s.err
		}
	}
	a.regain()
	return a.follow(ctx)
}

func (a *Agent) follow(ctx context.Context) (job.Result, error) {
	var left chan struct{}
	var late <-chan time.Time
	var latest time.Time
	var why error
	leave := func() {
		if left == nil {
			left = a.leave()
		}
	}
	for {
		select {
		case <-ctx.Done():
			return job.Result{}, context.Cause(ctx)
		case err := <-a.broken:
			return job.Result{}, err
		case <-a.Keeper.Gone():
			return job.Result{}, keep.ErrGone
		case d := <-a.Leave:
			a.report("", wire.Draining(d))
			switch {
			case d.All:
			case d.Within <= 0:
				why = fmt.Errorf("%w: %s", ErrLeft, d.Why)
				leave()
			case late == nil || time.Now().Add(d.Within).Before(latest):
				why, late, latest = fmt.Errorf("%w: %s", ErrLeft, d.Why), time.After(d.Within), time.Now().Add(d.Within)
			}
		case <-late:
			leave()
		case <-left:
			return job.Result{}, why
		case sig := <-a.Signals:
			a.signal("", sig)
		case order, ok := <-a.Session.Orders():
			if !ok {
				return job.Result{}, a.Session.Err()
			}
			switch do := order.Do.(type) {
			case job.Finish:
				if order.Job == a.Session.Job {
					return do.Result, nil
				}
				a.finish(order.Job)
			case wire.Leave:
				if why == nil {
					why = fmt.Errorf("%w: %s", ErrDrained, do.Why)
				}
				leave()
			default:
				if left == nil {
					a.execute(order)
				}
			}
		}
	}
}

func (a *Agent) execute(order wire.Order) {
	switch do := order.Do.(type) {
	case wire.Assign:
		a.open(order.Job, do.Task)
		return
	case wire.Signal:
		a.signal(order.Job, do.Number)
		return
	case wire.Restate:
		a.restate()
		return
	case wire.ReadLogs:
		a.read(order.Job, do)
		return
	}
	s := a.shares[order.Job]
	if _, stop := order.Do.(job.Stop); s == nil && stop {
		return // it was killed with the job
	}
	if s == nil {
		a.Warn(fmt.Errorf("the coordinator sent an order for job %s, which this agent does not know: %v", order.Job, order.Do))
		return
	}
	switch do := order.Do.(type) {
	case job.Prepare:
		s.report(s.prepare(do))
	case job.Admit:
		s.admit(do.Peers)
	case job.Reach:
		s.reach(do)
	case job.Start:
		s.start(do)
	case job.Notice:
		s.notice(do)
	case job.Stop:
		s.stop(do)
	default:
		a.Warn(fmt.Errorf("the coordinator sent an order that this agent does not know: %T", do))
	}
}

// open makes ready for a job, unless that was done before.
func (a *Agent) open(id string, task []byte) *share {
	s := a.shares[id]
	if s == nil {
		if a.Keeper != nil {
			a.Keeper.Put(id, task)
		}
		s = newShare(a, id, task)
		a.shares[id] = s
	}
	return s
}

// finish forgets a job that is over.
func (a *Agent) finish(id string) {
	if s := a.shares[id]; s != nil {
		delete(a.shares, id)
		s.kill()
	}
}

// restate repeats all reports that still matter, for a coordinator that may not have taken them.
func (a *Agent) restate() {
	for _, s := range a.shares {
		s.restate()
	}
	a.report("", wire.Restated{})
}

// leave stops all ranks in order; what it returns is closed when they are gone.
func (a *Agent) leave() chan struct{} {
	a.leaving.Store(true)
	for _, s := range a.shares {
		s.end(a.Grace)
	}
	left := make(chan struct{})
	go func() {
		a.done.Wait()
		close(left)
	}()
	return left
}

// report tells the coordinator, unless this node is leaving, or nobody knows how its ranks ended.
func (a *Agent) report(id string, ev any) {
	select {
	case <-a.Keeper.Gone():
		return
	default:
	}
	if !a.leaving.Load() {
		a.Session.Report(id, ev)
	}
}

// fail ends this node's part in all jobs; the first reason counts.
func (a *Agent) fail(why error) {
	select {
	case a.broken <- why:
	default:
	}
}

// signal reaches the ranks of a job, or of all when id is empty.
func (a *Agent) signal(id string, sig syscall.Signal) {
	for _, s := range a.shares {
		if id == "" || id == s.job {
			s.signal(sig)
		}
	}
}
