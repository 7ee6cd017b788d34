package agent

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/golaunch/golaunch/agent/internal/keeper"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/wire"
)

// run carries out orders until the session's only job is finished, and returns its result; the agent of a cluster goes on until it
// is told to leave. When ctx ends, or the coordinator is lost, every rank is killed and the error says so. However it returns, no
// process that it started lives any more, and the session is closed.
func (a *life) run(ctx context.Context) (job.Result, error) {
	a.shares, a.broken, a.tasks = map[string]*share{}, make(chan error, 1), make(chan func())
	reading, stopReading := context.WithCancel(ctx)
	defer stopReading()
	a.reading = reading
	a.sampler = newSampler(a.Warn)
	a.readers.Go(func() {
		if err := a.sampler.run(reading); err != nil {
			a.Warn(err)
		}
	})
	if a.session.Job == "" {
		a.pool = &pool{warn: a.Warn}
	}
	result, err := a.work(ctx)
	a.leaving.Store(true)
	for _, s := range a.shares {
		s.kill()
	}
	a.done.Wait()
	a.pool.close()
	stopReading()
	a.readers.Wait()
	why := "the job is over"
	if err != nil {
		why = err.Error()
	}
	a.session.Close(why)
	return result, err
}

func (a *life) work(ctx context.Context) (job.Result, error) {
	if id := a.session.Job; id != "" {
		if s := a.open(id, Assignment{}); s.err != nil {
			return job.Result{}, s.err
		}
	}
	a.regain()
	return a.follow(ctx)
}

func (a *life) follow(ctx context.Context) (job.Result, error) {
	var left chan struct{}
	var late <-chan time.Time
	var latest time.Time
	var why error
	var told syscall.Signal
	leave := func() {
		if left == nil {
			left = a.leave(told)
		}
	}
	for {
		select {
		case <-ctx.Done():
			return job.Result{}, context.Cause(ctx)
		case err := <-a.broken:
			return job.Result{}, err
		case <-a.keeper.Gone():
			return job.Result{}, keeper.ErrGone
		case d := <-a.Leave:
			a.report("", wire.Draining(d))
			told = d.Signal
			switch {
			case d.All:
			case d.Within <= 0:
				why = fmt.Errorf("%w: %s", ErrLeft, d.Why)
				leave()
			case late == nil || time.Now().Add(d.Within).Before(latest):
				why, late, latest = fmt.Errorf("%w: %s", ErrLeft, d.Why), time.After(d.Within), time.Now().Add(d.Within)
			}
		case do := <-a.tasks:
			do()
		case <-late:
			leave()
		case <-left:
			return job.Result{}, why
		case sig := <-a.Signals:
			a.signal("", sig)
		case order, ok := <-a.session.Orders():
			if !ok {
				return job.Result{}, a.session.Err()
			}
			switch do := order.Do.(type) {
			case job.Finish:
				if order.Job == a.session.Job {
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

func (a *life) execute(order wire.Order) {
	switch do := order.Do.(type) {
	case wire.Assign:
		a.open(order.Job, Assignment{Task: do.Task, Submitter: do.Submitter})
		return
	case wire.Signal:
		a.signal(order.Job, do.Number)
		return
	case wire.Restate:
		a.restate()
		return
	case wire.Ask:
		a.answer(order.Job, do)
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
		s.prepare(do)
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

// later has the agent's goroutine do something, unless ctx ends before. What ends ctx must be of that goroutine.
func (a *life) later(ctx context.Context, do func()) {
	task := func() {
		if ctx.Err() == nil {
			do()
		}
	}
	select {
	case a.tasks <- task:
	case <-ctx.Done():
	}
}

// open makes ready for a job, unless that was done before.
func (a *life) open(id string, as Assignment) *share {
	return a.openAgain(id, keptJob{Assignment: as})
}

// openAgain makes ready for a job of which an earlier agent may have left something.
func (a *life) openAgain(id string, kept keptJob) *share {
	s := a.shares[id]
	if s == nil {
		kept.Assignment.Cluster = a.session.Membership().Epoch
		s = newShare(a, id, kept.Assignment, kept.Endpoint)
		a.shares[id] = s
		if a.keeper != nil {
			if s.endpoint != nil {
				kept.Endpoint = s.endpoint.Dir()
			}
			a.put(id, kept)
		}
	}
	return s
}

// finish forgets a job that is over.
func (a *life) finish(id string) {
	if s := a.shares[id]; s != nil {
		delete(a.shares, id)
		s.kill()
	}
}

// restate repeats all reports that still matter, for a coordinator that may not have taken them.
func (a *life) restate() {
	for _, s := range a.shares {
		s.restate()
	}
	a.report("", wire.Restated{})
}

// leave stops all ranks in order, by what this node was told; what it returns is closed when they
// are gone.
func (a *life) leave(sig syscall.Signal) chan struct{} {
	a.leaving.Store(true)
	for _, s := range a.shares {
		s.end(sig, a.Grace)
	}
	left := make(chan struct{})
	go func() {
		a.done.Wait()
		close(left)
	}()
	return left
}

// report tells the coordinator, unless this node is leaving, or nobody knows how its ranks ended.
func (a *life) report(id string, ev any) {
	select {
	case <-a.keeper.Gone():
		return
	default:
	}
	if !a.leaving.Load() {
		a.session.Report(id, ev)
	}
}

// fail ends this node's part in all jobs; the first reason counts.
func (a *life) fail(why error) {
	select {
	case a.broken <- why:
	default:
	}
}

// signal reaches the ranks of a job, or of all when id is empty.
func (a *life) signal(id string, sig syscall.Signal) {
	for _, s := range a.shares {
		if id == "" || id == s.job {
			s.signal(sig)
		}
	}
}
