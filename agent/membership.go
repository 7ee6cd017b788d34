package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golaunch/golaunch/agent/internal/imports"
	"github.com/golaunch/golaunch/agent/internal/keeper"
	"github.com/golaunch/golaunch/agent/internal/ranks"
	"github.com/golaunch/golaunch/agent/internal/sampling"
	"github.com/golaunch/golaunch/agent/internal/workspaces"
	"github.com/golaunch/golaunch/internal/process/proc"
	"github.com/golaunch/golaunch/internal/process/procfs"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/session"
	"github.com/golaunch/golaunch/launcher/report"
)

// membership lasts from the time that a coordinator accepts an agent until one of the two leaves.
type membership struct {
	Agent
	session *session.Session
	starter ranks.Starter
	jobs    map[string]*jobOnNode
	// living counts the jobs and attempts that may have living processes.
	living  sync.WaitGroup
	queries queries
	sampler *sampling.Sampler
	// importPool keeps fork servers between the jobs of a cluster; nil for a single job.
	importPool *imports.Pool
	workspaces *workspaces.Store
	// tasks are functions that the goroutine that follows orders must run.
	tasks chan func()
	// broken receives the reason why this node cannot continue: processes that cannot be killed.
	broken chan error
	// leaving drops all reports. The ranks end because this node leaves, which says nothing about
	// the job.
	leaving atomic.Bool
	hooks   testHooks
}

// testHooks replace ticks, files and checks of this machine in tests. Zero fields replace nothing.
type testHooks struct {
	sys fs.FS
	// ncclLoaded ticks when the ranks have loaded NCCL, stallTicks for each look at the ranks, and
	// stepTicks for each report of a step.
	ncclLoaded, stallTicks, stepTicks <-chan time.Time
	check                             func(proc.Command) *proc.StartError
}

// errTooLate says that the ranks of a dead agent could not be taken over in time.
var errTooLate = errors.New("too late to adopt the ranks of an earlier agent")

// lostError says that the cluster has lost this agent. Its ranks are dead. It may join again.
type lostError struct{ error }

func (e lostError) Unwrap() error { return e.error }

// leasesToJoin is how many leases a node may need to join. If one leader follows another, each may
// need a lease to find that the node's former agent is lost.
const leasesToJoin = 3

// Run joins, and carries out orders until the coordinator's only job has finished. It returns the
// job's result. In a cluster it continues until the node must leave, and returns ErrLeft or
// ErrDrained. It joins again if a cluster has lost it for a lease, or if the job moves to another
// leader before it has begun. When ctx ends, or the coordinator of a single job is lost, Run kills
// all ranks and returns the reason. When Run returns, all processes that it started are dead,
// except those that it keeps for an agent that can join.
func (a Agent) Run(ctx context.Context) (report.Result, error) {
	for limit := time.Duration(0); ; {
		m := &membership{Agent: a}
		result, err := m.runOnce(ctx, limit)
		a.Join.Node.GPUs = m.Join.Node.GPUs // some GPUs may have become free during the membership
		if e, elsewhere := errors.AsType[*wire.ElsewhereError](err); elsewhere {
			a.Say(a.Join.Node.Name + " joins anew: " + e.Why)
			a.Join.Elsewhere, limit = e.Addrs, max(time.Minute, leasesToJoin*a.Join.Lease)
		} else if _, lost := errors.AsType[lostError](err); lost {
			a.Warn(fmt.Errorf("%w; its ranks are dead, and it joins again", err))
		} else {
			return result, err
		}
	}
}

// runOnce joins and stays until the membership ends. limit bounds the time to join; 0 sets no
// bound.
func (m *membership) runOnce(ctx context.Context, limit time.Duration) (report.Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	join := func(ctx context.Context, o session.Options) (*session.Session, error) {
		if limit > 0 {
			late := time.AfterFunc(limit, func() { cancel(fmt.Errorf("not taken in within %v", limit)) })
			defer late.Stop()
		}
		return m.join(ctx, cancel, o)
	}
	if m.Keep != "" {
		return m.withKeeper(ctx, join)
	}
	return m.withSupervisor(ctx, join)
}

// join begins a session, unless this node is asked to leave. In that case join calls cancel, which
// must end ctx.
func (a Agent) join(ctx context.Context, cancel context.CancelCauseFunc, o session.Options) (*session.Session, error) {
	over := make(chan struct{})
	var listening sync.WaitGroup
	listening.Go(func() {
		select {
		case d := <-a.Leave:
			cancel(fmt.Errorf("%w: %s", ErrLeft, d.Why))
		case <-over:
		}
	})
	s, err := session.Join(ctx, o)
	close(over)
	listening.Wait()
	if why := context.Cause(ctx); errors.Is(why, ErrLeft) {
		if err == nil {
			s.Close(why.Error())
		}
		return nil, why
	}
	return s, err
}

// joinFunc begins a session.
type joinFunc func(context.Context, session.Options) (*session.Session, error)

// withSupervisor joins and follows orders. Its ranks die with this process.
func (m *membership) withSupervisor(ctx context.Context, join joinFunc) (result report.Result, err error) {
	supervisor, err := proc.New(proc.Options{Subreaper: m.Standalone, Warn: m.Warn})
	if err != nil {
		return report.Result{}, err
	}
	m.starter.Supervisor = supervisor
	defer func() { err = errors.Join(err, supervisor.Close()) }()
	o := m.sessionOptions(supervisor.Proof(), m.guarded, func(end time.Duration) { supervisor.Renew(max(1, end-procfs.BootTime())) })
	if m.session, err = join(ctx, o); err != nil {
		return report.Result{}, err
	}
	return m.run(ctx)
}

// withKeeper joins and follows orders. Its ranks outlive this process, and an earlier agent may
// have started some of them. If withKeeper cannot join, it leaves the ranks to an agent that can.
func (m *membership) withKeeper(ctx context.Context, join joinFunc) (report.Result, error) {
	k, err := keeper.Open(m.Keep, m.Warn)
	if err != nil {
		return report.Result{}, err
	}
	m.starter.Keeper = k
	m.session, err = m.takeOver(ctx, join)
	switch {
	case errors.Is(err, errTooLate):
		return report.Result{}, lostError{errors.Join(err, k.End())}
	case err != nil && ctx.Err() != nil:
		return report.Result{}, errors.Join(err, k.End())
	case err != nil:
		return report.Result{}, errors.Join(err, k.Leave())
	}
	if len(k.Left.Scopes) > 0 {
		m.Say(m.Join.Node.Name + " adopts the ranks of an earlier agent")
	}
	result, err := m.run(ctx)
	return result, errors.Join(err, k.End())
}

// takeOver joins. If the keeper has ranks of an earlier agent, takeOver joins in that agent's
// place, before the lease of these ranks is over.
func (m *membership) takeOver(ctx context.Context, join joinFunc) (*session.Session, error) {
	k := m.starter.Keeper
	o := m.sessionOptions(k.Proof, k.Dial, k.Renew)
	if k.Left.Membership != nil {
		if err := json.Unmarshal(k.Left.Membership, &o.Former); err != nil {
			return nil, fmt.Errorf("%w: %w", errTooLate, err)
		}
		var cancel func()
		ctx, cancel = context.WithTimeoutCause(ctx, k.Left.Lease-procfs.BootTime(), errTooLate)
		defer cancel()
	}
	s, err := join(ctx, o)
	if err != nil {
		if _, refused := errors.AsType[*session.RefusedError](err); refused && k.Left.Membership != nil {
			err = fmt.Errorf("%w: %w", errTooLate, err)
		}
		return nil, err
	}
	data, err := json.Marshal(s.Membership())
	if err != nil {
		return nil, err
	}
	k.Joined(data)
	return s, nil
}

// dialFunc makes a connection.
type dialFunc = func(context.Context) (net.Conn, error)

// sessionOptions completes Join. hold makes the guardian send the proof on a connection once the
// ranks are dead, and renew extends the lease of the ranks.
func (m *membership) sessionOptions(proof [32]byte, hold func(dialFunc) dialFunc, renew func(end time.Duration)) session.Options {
	o := m.Join
	dialAt := o.DialAt
	if dialAt == nil {
		dialAt = func(ctx context.Context, addr string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		}
	}
	if o.Dial == nil {
		o.Dial = func(ctx context.Context) (net.Conn, error) { return dialAt(ctx, o.Target) }
	}
	o.Proof, o.Dial, o.Warn, o.Clock = proof, hold(o.Dial), m.Warn, procfs.BootTime
	o.Heard = func(at, lease time.Duration) { renew(at + lease) }
	o.DialAt = func(ctx context.Context, addr string) (net.Conn, error) {
		return hold(func(ctx context.Context) (net.Conn, error) { return dialAt(ctx, addr) })(ctx)
	}
	return o
}

// guarded makes the guardian hold the newest connection. Once every rank of this node is dead, the
// guardian sends the proof on this connection and closes it.
func (m *membership) guarded(dial dialFunc) dialFunc {
	return func(ctx context.Context) (net.Conn, error) {
		conn, err := dial(ctx)
		if err != nil {
			return nil, err
		}
		socket, ok := conn.(interface{ File() (*os.File, error) })
		if !ok {
			return conn, nil // the connection is in memory, and dies with this process
		}
		f, err := socket.File()
		if err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		return conn, errors.Join(m.starter.Supervisor.Hold(f), f.Close())
	}
}
