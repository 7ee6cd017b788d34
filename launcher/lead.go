package launcher

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/golaunch/golaunch/agent"
	"github.com/golaunch/golaunch/internal/proc"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rendezvous"
)

// leadership is what a process that runs the coordinator has beside it.
type leadership struct {
	listener net.Listener
	tls      *tls.Config
	// agents run here until the job has ended, or their context. Their error means that the job cannot go on.
	agents func(context.Context) error
}

// lead runs the coordinator and this process's agents, and returns when the job has ended and they are gone.
func (h *here) lead(ctx context.Context, l leadership) (Result, error) {
	journal, err := h.journal()
	if err != nil {
		return Result{}, errors.Join(err, l.listener.Close())
	}
	c := rendezvous.NewCoordinator(h.config(journal))
	go h.obey(c)

	working, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var others errgroup.Group
	others.Go(func() error { return orCancel(c, c.Serve(l.listener, l.tls)) })
	others.Go(func() error {
		if err := l.agents(working); working.Err() == nil {
			return orCancel(c, err)
		}
		return nil
	})
	result := c.Run(ctx)
	cancel()
	err = others.Wait()
	if failed := journal.Close(); failed != nil {
		h.warn(fmt.Errorf("cannot finish the journal: %w", failed))
	}
	return result, err
}

// orCancel ends the job for an error: it would wait for nodes that cannot come.
func orCancel(c *rendezvous.Coordinator, err error) error {
	if err != nil {
		c.Cancel(125, err.Error())
	}
	return err
}

// journal is the file that records the job's events.
func (h *here) journal() (*os.File, error) {
	if err := h.open(h.job.ID); err != nil {
		return nil, err
	}
	return h.dir.Create("events.jsonl")
}

// membership is how an agent of this process takes part.
type membership struct {
	node placement.Node
	// target names the coordinator in messages, dial reaches it.
	target string
	dial   func(context.Context) (net.Conn, error)
	tls    *tls.Config
	// signals reach the ranks of this node, and leave asks the agent to go, with the reason; nil for an agent that follows the
	// coordinator alone.
	signals <-chan syscall.Signal
	leave   <-chan string
	// welcomed is called when the coordinator has taken the node in; it may be nil.
	welcomed func()
}

// work is an agent from its first hello to the end of the job.
func (h *here) work(ctx context.Context, m membership) error {
	_, err := h.agent(ctx, m)
	return err
}

// agent runs one agent and returns the job's result as the coordinator told it.
func (h *here) agent(ctx context.Context, m membership) (result Result, err error) {
	supervisor, err := proc.New(proc.Options{Subreaper: h.job.Standalone, Warn: h.warn})
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, supervisor.Hold(nil), supervisor.Close()) }()
	session, err := rendezvous.Join(ctx, rendezvous.Options{
		Target: m.target, Dial: held(m.dial, supervisor), TLS: m.tls, Node: m.node, Facts: h.job.facts(),
		Clock: proc.BootTime, Heard: func(at time.Duration) { supervisor.Renew(max(1, at+h.job.Lease-proc.BootTime())) }, Warn: h.warn,
	})
	if err != nil {
		return Result{}, err
	}
	if m.welcomed != nil {
		m.welcomed()
	}
	env, err := h.job.environment(session.Node.Addr)
	if err = errors.Join(err, h.open(session.Job)); err != nil {
		session.Close(err.Error())
		return Result{}, err
	}
	a := agent.Agent{
		Session: session, Supervisor: supervisor, Warn: h.warn, Signals: m.signals, Leave: m.leave, Grace: h.job.Grace,
		Task: agent.Task{
			Command: h.job.Command, Dir: h.job.Dir, Env: env, Visibility: h.job.Visibility,
			MasterPort: h.job.MasterPort, Stdin: h.job.Stdin,
		},
		Output: agent.Output{
			Console: h.console, Dir: h.dir, Limit: h.job.LogLimit, Warn: h.warn, Shown: h.job.shown, Prefix: h.job.prefixed,
		},
	}
	return a.Run(ctx)
}

// held has the guardian hold each connection that is dialled, so that the coordinator sees its end only when every rank of this
// node is dead.
func held(dial func(context.Context) (net.Conn, error), s *proc.Supervisor) func(context.Context) (net.Conn, error) {
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
		return conn, errors.Join(s.Hold(f), f.Close())
	}
}
