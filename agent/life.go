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

	"github.com/golaunch/golaunch/agent/internal/keeper"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/process/proc"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/session"
)

// life is an agent while one coordinator has it, from the time that it is taken in.
type life struct {
	Agent
	session *session.Session
	// supervisor has the ranks, or keeper, if they outlive this process.
	supervisor *proc.Supervisor
	keeper     *keeper.Keeper

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
	// tasks are for the agent's goroutine, from others of its own.
	tasks chan func()
	// sampler measures what the ranks and the node do.
	sampler *sampler
	// pool keeps fork servers between the jobs of a cluster; nil for a job alone.
	pool *pool
	// check looks at a command; it is proc.Check when nil.
	check func(proc.Command) *proc.StartError
	// leaving silences reports: that ranks end now is not news about the job. It is set once, before any of them is stopped.
	leaving atomic.Bool
}

// errTooLate says that the ranks of an agent that has died could not be taken over.
var errTooLate = errors.New("too late to go on with the ranks of an earlier agent")

// lostError is why an agent, whose ranks are dead, has no place in a cluster any more, where it may have another.
type lostError struct{ error }

func (e lostError) Unwrap() error { return e.error }

// leasesToJoin is how often the place of a node may have to be found lost, by one leader after another, before its new agent is taken in.
const leasesToJoin = 3

// Run joins, and carries out orders until the coordinator's only job is finished, whose result it returns; in a cluster it goes on until it
// is told to leave, and the error is then ErrLeft or ErrDrained. It joins again where it was lost to a cluster for a lease, and where a job
// that had not begun is given up for one that is led elsewhere. When ctx ends, or the coordinator of a job is lost, every rank is killed and
// the error says so. However it returns, no process that it started lives any more, but those that it keeps for an agent that can join.
func (a Agent) Run(ctx context.Context) (job.Result, error) {
	for limit := time.Duration(0); ; {
		result, err := a.once(ctx, limit)
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

// once joins, within a limit unless that is 0, and lives for as long as the coordinator has it.
func (a Agent) once(ctx context.Context, limit time.Duration) (job.Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	join := func(ctx context.Context, o session.Options) (*session.Session, error) {
		if limit > 0 {
			late := time.AfterFunc(limit, func() { cancel(fmt.Errorf("not taken in within %v", limit)) })
			defer late.Stop()
		}
		return a.join(ctx, cancel, o)
	}
	l := &life{Agent: a}
	if a.Keep != "" {
		return l.adopt(ctx, join)
	}
	return l.supervise(ctx, join)
}

// join begins a session, unless this node is to leave: cancel is told so, which must end ctx.
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

// joining is how a session is begun.
type joining func(context.Context, session.Options) (*session.Session, error)

// supervise has the ranks die with this process.
func (a *life) supervise(ctx context.Context, join joining) (result job.Result, err error) {
	if a.supervisor, err = proc.New(proc.Options{Subreaper: a.Standalone, Warn: a.Warn}); err != nil {
		return job.Result{}, err
	}
	defer func() { err = errors.Join(err, a.supervisor.Close()) }()
	o := a.options(a.supervisor.Proof(), a.held, func(end time.Duration) { a.supervisor.Renew(max(1, end-proc.BootTime())) })
	if a.session, err = join(ctx, o); err != nil {
		return job.Result{}, err
	}
	return a.serve(ctx)
}

// adopt has the ranks outlive this process, and goes on with those that it finds. When it cannot even join, they are left to an agent that
// can.
func (a *life) adopt(ctx context.Context, join joining) (job.Result, error) {
	k, err := keeper.Open(a.Keep, a.Warn)
	if err != nil {
		return job.Result{}, err
	}
	a.keeper = k
	a.session, err = a.takePlace(ctx, join)
	switch {
	case errors.Is(err, errTooLate):
		return job.Result{}, lostError{errors.Join(err, k.End())}
	case err != nil && ctx.Err() != nil:
		return job.Result{}, errors.Join(err, k.End())
	case err != nil:
		return job.Result{}, errors.Join(err, k.Leave())
	}
	if len(k.Left.Scopes) > 0 {
		a.Say(a.Join.Node.Name + " goes on with the ranks of an earlier agent")
	}
	result, err := a.serve(ctx)
	return result, errors.Join(err, k.End())
}

// takePlace joins, in the place of the agent whose ranks the keeper has, if any: then within their lease.
func (a *life) takePlace(ctx context.Context, join joining) (*session.Session, error) {
	o := a.options(a.keeper.Proof, a.keeper.Dial, a.keeper.Renew)
	left := a.keeper.Left
	if left.Membership != nil {
		if err := json.Unmarshal(left.Membership, &o.Former); err != nil {
			return nil, fmt.Errorf("%w: %w", errTooLate, err)
		}
		var cancel func()
		ctx, cancel = context.WithTimeoutCause(ctx, left.Lease-proc.BootTime(), errTooLate)
		defer cancel()
	}
	s, err := join(ctx, o)
	if err != nil {
		if _, refused := errors.AsType[*session.RefusedError](err); refused && left.Membership != nil {
			err = fmt.Errorf("%w: %w", errTooLate, err)
		}
		return nil, err
	}
	membership, err := json.Marshal(s.Membership())
	if err != nil {
		return nil, err
	}
	a.keeper.Joined(membership)
	return s, nil
}

// serve does what the coordinator asks. Whose place in a cluster is lost may have another.
func (a *life) serve(ctx context.Context) (job.Result, error) {
	if a.Joined != nil {
		a.Joined(a.session.Node)
	}
	result, err := a.run(ctx)
	if ended := a.session.Err(); a.session.Job == "" && ended != nil && errors.Is(err, ended) || errors.Is(err, keeper.ErrGone) {
		err = lostError{err}
	}
	return result, err
}

// options are Join's, for ranks whose death the end of a connection proves, once hold has made it, and whose lease is renewed until an end.
func (a *life) options(proof [32]byte, hold func(dialling) dialling, renew func(end time.Duration)) session.Options {
	o := a.Join
	at := o.DialAt
	if at == nil {
		at = func(ctx context.Context, addr string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		}
	}
	if o.Dial == nil {
		o.Dial = func(ctx context.Context) (net.Conn, error) { return at(ctx, o.Target) }
	}
	o.Proof, o.Dial, o.Warn, o.Clock = proof, hold(o.Dial), a.Warn, proc.BootTime
	o.Heard = func(at, lease time.Duration) { renew(at + lease) }
	o.DialAt = func(ctx context.Context, addr string) (net.Conn, error) {
		return hold(func(ctx context.Context) (net.Conn, error) { return at(ctx, addr) })(ctx)
	}
	return o
}

// dialling makes a connection.
type dialling = func(context.Context) (net.Conn, error)

// held has the guardian hold each connection that is dialled, the newest alone, so that it ends with the proof that every rank of this
// node is dead.
func (a *life) held(dial dialling) dialling {
	return func(ctx context.Context) (net.Conn, error) {
		conn, err := dial(ctx)
		if err != nil {
			return nil, err
		}
		socket, ok := conn.(interface{ File() (*os.File, error) })
		if !ok {
			return conn, nil // in memory: it dies with this process
		}
		f, err := socket.File()
		if err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		return conn, errors.Join(a.supervisor.Hold(f), f.Close())
	}
}
