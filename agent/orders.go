package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/golaunch/golaunch/agent/internal/imports"
	"github.com/golaunch/golaunch/agent/internal/keeper"
	"github.com/golaunch/golaunch/agent/internal/sampling"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/launcher/report"
)

// run follows orders as [Agent.Run] says, for one session. It closes the session when it returns.
// The error is a lostError if this agent may join the cluster again.
func (m *membership) run(ctx context.Context) (report.Result, error) {
	if m.Joined != nil {
		m.Joined(m.session.Node)
	}
	m.jobs, m.broken, m.tasks = map[string]*jobOnNode{}, make(chan error, 1), make(chan func())
	stopQueries := m.queries.begin(ctx)
	defer stopQueries()
	m.sampler = sampling.New(m.Warn)
	m.queries.running.Go(func() {
		if err := m.sampler.Run(m.queries.ctx); err != nil {
			m.Warn(err)
		}
	})
	m.watchHeldGPUs()
	if m.session.Job == "" {
		m.importPool = imports.NewPool(m.Warn)
	}
	m.workspaces = m.newWorkspaces()
	result, err := m.follow(ctx)
	m.leaving.Store(true)
	for _, j := range m.jobs {
		j.kill()
	}
	m.living.Wait()
	m.workspaces.Close()
	m.importPool.Close()
	stopQueries()
	m.queries.running.Wait()
	why := "the job is over"
	if err != nil {
		why = err.Error()
	}
	m.session.Close(why)
	if ended := m.session.Err(); m.session.Job == "" && ended != nil && errors.Is(err, ended) || errors.Is(err, keeper.ErrGone) {
		err = lostError{err}
	}
	return result, err
}

func (m *membership) follow(ctx context.Context) (report.Result, error) {
	if id := m.session.Job; id != "" {
		if j := m.open(id, keptJob{Assignment: Assignment{Workspace: m.session.Workspace}}); j.err != nil {
			return report.Result{}, j.err
		}
	}
	m.resume()
	leave := departure{node: m}
	for {
		select {
		case <-ctx.Done():
			return report.Result{}, context.Cause(ctx)
		case err := <-m.broken:
			return report.Result{}, err
		case <-m.starter.Keeper.Gone():
			return report.Result{}, keeper.ErrGone
		case d := <-m.Leave:
			m.report("", wire.Draining(d))
			leave.announce(d)
		case do := <-m.tasks:
			do()
		case <-leave.due:
			leave.begin()
		case <-leave.left:
			return report.Result{}, leave.why
		case sig := <-m.Signals:
			m.signal("", sig)
		case order, ok := <-m.session.Orders():
			if !ok {
				return report.Result{}, m.session.Err()
			}
			switch do := order.Do.(type) {
			case job.Finish:
				if order.Job == m.session.Job {
					return do.Result, nil
				}
				m.finish(order.Job)
			case wire.Leave:
				leave.drained(do.Why)
			default:
				if leave.left == nil {
					m.execute(order)
				}
			}
		}
	}
}

// departure is how this node leaves.
type departure struct {
	node *membership
	why  error
	// due fires at the deadline.
	due      <-chan time.Time
	deadline time.Time
	signal   syscall.Signal
	// left is closed when the node's ranks have ended. It is nil before the ranks are stopped.
	left chan struct{}
}

// announce plans a departure. The earliest deadline counts.
func (l *departure) announce(d Departure) {
	l.signal = d.Signal
	switch {
	case d.All: // the job ends everywhere, and this node stays until then
	case d.Within <= 0:
		l.why = fmt.Errorf("%w: %s", ErrLeft, d.Why)
		l.begin()
	case l.due == nil || time.Now().Add(d.Within).Before(l.deadline):
		l.why = fmt.Errorf("%w: %s", ErrLeft, d.Why)
		l.due, l.deadline = time.After(d.Within), time.Now().Add(d.Within)
	}
}

// drained leaves because the coordinator ordered it.
func (l *departure) drained(why string) {
	if l.why == nil {
		l.why = fmt.Errorf("%w: %s", ErrDrained, why)
	}
	l.begin()
}

// begin stops all ranks in order, with the signal that this node got.
func (l *departure) begin() {
	if l.left != nil {
		return
	}
	l.left = make(chan struct{})
	l.node.leaving.Store(true)
	for _, j := range l.node.jobs {
		j.end(job.Stop{Grace: l.node.Grace, Signal: int(l.signal)})
	}
	go func() {
		l.node.living.Wait()
		close(l.left)
	}()
}

// execute carries out an order.
func (m *membership) execute(order wire.Order) {
	switch do := order.Do.(type) {
	case wire.Assign:
		m.open(order.Job, keptJob{Assignment: Assignment{Task: do.Task, Submitter: do.Submitter, Workspace: do.Workspace}})
		return
	case wire.Signal:
		m.signal(order.Job, do.Number)
		return
	case wire.Restate:
		m.restate()
		return
	case wire.Ask:
		m.answer(order.Job, do)
		return
	}
	j := m.jobs[order.Job]
	if j == nil {
		if _, stop := order.Do.(job.Stop); !stop { // a stop may follow the end of the job
			m.Warn(fmt.Errorf("the coordinator sent an order for job %s, which this agent does not know: %v", order.Job, order.Do))
		}
		return
	}
	switch do := order.Do.(type) {
	case job.Prepare:
		j.prepare(do)
	case job.Admit:
		j.stores.Admit(do.Peers)
	case job.Reach:
		j.reach(do)
	case job.Start:
		j.start(do)
	case job.Notice:
		j.notify(do)
	case job.Stop:
		j.stop(do)
	case wire.Cohort:
		j.answerReplica(do)
	default:
		m.Warn(fmt.Errorf("the coordinator sent an order that this agent does not know: %T; install the same golaunch on all nodes", do))
	}
}

// later runs a task on the goroutine that follows orders, unless ctx ends first. Only that
// goroutine may end ctx.
func (m *membership) later(ctx context.Context, do func()) {
	task := func() {
		if ctx.Err() == nil {
			do()
		}
	}
	select {
	case m.tasks <- task:
	case <-ctx.Done():
	}
}

// open prepares for a job once. An earlier agent may have kept a part of the job.
func (m *membership) open(id string, kept keptJob) *jobOnNode {
	j := m.jobs[id]
	if j == nil {
		kept.Assignment.Cluster = m.session.Membership().Epoch
		j = newJob(m, id, kept)
		m.jobs[id] = j
		if k := m.starter.Keeper; k != nil {
			if j.endpoint != nil {
				kept.Endpoint = j.endpoint.Dir()
			}
			if j.workspace != nil {
				kept.Directory = j.workspace.Dir()
			}
			data, err := json.Marshal(kept)
			if err != nil {
				panic(fmt.Sprintf("cannot encode an assignment: %v", err)) // an assignment has only bytes and a number
			}
			k.Put(id, data)
		}
	}
	return j
}

// finish forgets a job that is over.
func (m *membership) finish(id string) {
	if j := m.jobs[id]; j != nil {
		delete(m.jobs, id)
		j.kill()
	}
}

// restate repeats all reports that still matter, because the coordinator may not have them.
func (m *membership) restate() {
	for _, j := range m.jobs {
		j.restate()
	}
	m.report("", wire.Restated{})
}

// report sends a report to the coordinator. It sends nothing if this node is leaving. It also sends
// nothing if the keeper has died, because then it is unknown how the ranks ended.
func (m *membership) report(id string, ev any) {
	select {
	case <-m.starter.Keeper.Gone():
		return
	default:
	}
	if !m.leaving.Load() {
		m.session.Report(id, ev)
	}
}

// fail ends the membership; the first reason counts.
func (m *membership) fail(why error) {
	select {
	case m.broken <- why:
	default:
	}
}

// signal sends a signal to the ranks of a job, or to all ranks if id is empty.
func (m *membership) signal(id string, sig syscall.Signal) {
	for _, j := range m.jobs {
		if id == "" || id == j.id {
			for _, a := range j.attempts {
				a.signal(sig)
			}
		}
	}
}
