package launcher

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/golaunch/golaunch/internal/session"
	"github.com/golaunch/golaunch/internal/wire"

	"github.com/golaunch/golaunch/agent"
	"github.com/golaunch/golaunch/internal/bind"
	"github.com/golaunch/golaunch/internal/proc"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rendezvous"
)

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
	leave   <-chan agent.Departure
	// welcomed is called when the coordinator has taken the node in; it may be nil.
	welcomed func()
	// lease is the one that the coordinator is likely to give.
	lease time.Duration
	// candidate is nil where no other node can come to lead the job.
	candidate *rendezvous.Candidate
	// elsewhere is where else the job is led, as another node said, or the cluster may be; limit bounds the wait to be taken in; 0 is none.
	elsewhere []string
	limit     time.Duration
}

// agent runs this node's agent and returns the job's result as the coordinator told it. It joins anew where a job that had not begun is
// given up for one that is led elsewhere.
func (h *here) agent(ctx context.Context, m membership) (Result, error) {
	for {
		result, err := h.agentOf(ctx, m)
		e, ok := errors.AsType[*wire.ElsewhereError](err)
		if !ok {
			return result, err
		}
		h.say(m.node.Name + " joins anew: " + e.Why)
		m.elsewhere, m.limit = e.Addrs, max(time.Minute, leasesToJoin*h.job.Network.Lease)
	}
}

// leasesToJoin is how often the place of a node may have to be found lost, by one leader after another, before its new agent is taken in.
const leasesToJoin = 3

// agentOf runs one agent.
func (h *here) agentOf(ctx context.Context, m membership) (Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(orForever(m.limit), func() { cancel(fmt.Errorf("not taken in within %v", m.limit)) })
	defer late.Stop()
	var at netip.Addr
	a := agent.Agent{
		Warn: h.warn, Signals: m.signals, Leave: m.leave, Grace: max(0, h.job.Stopping.Grace),
		Open: func(id string, _ []byte) (agent.Work, error) { return h.ready(id, at) },
	}
	return runAgent(ctx, m, h.job.facts(), &a, proc.Options{Subreaper: h.job.Stopping.Standalone, Warn: h.warn}, func(s *session.Session) {
		if late.Stop(); m.limit > 0 {
			h.joined.Store(true)
		}
		at = s.Node.Addr
		if m.welcomed != nil {
			m.welcomed()
		}
	})
}

// ready is the job as this node, at an address, carries it out.
func (h *here) ready(id string, at netip.Addr) (agent.Work, error) {
	task, err := h.job.task(at)
	if err = errors.Join(err, h.enter(id)); err != nil {
		return agent.Work{}, err
	}
	return agent.Work{
		Task:   task,
		Output: agent.Output{Dir: h.dir, Of: h.job.output(h.console, h.warn)},
	}, nil
}

// task is what the ranks on this node, at an address, run.
func (j Job) task(at netip.Addr) (agent.Task, error) {
	env, err := j.environment()
	if err != nil {
		return agent.Task{}, err
	}
	presets, err := j.presets(at)
	return agent.Task{
		Command: j.Command, Dir: j.Dir, Env: env, Presets: presets, Visibility: j.Ranks.Visibility, MasterPort: j.Ranks.MasterPort, Role: j.Ranks.Role,
		Rank0Store: j.Ranks.Store == storeRank0, Bind: bind.Policy(j.Ranks.Bind), Strict: j.Ranks.Strict,
		Stdin: j.Ranks.Stdin, NoticeSignal: j.Stopping.NoticeSignal, Bundle: j.Health.Bundle == "on", HangTimeout: j.Health.HangTimeout,
	}, err
}

// runAgent joins the coordinator and runs the agent until it is done; welcomed is called in between.
func runAgent(
	ctx context.Context, m membership, facts map[string]string, a *agent.Agent, o proc.Options, welcomed func(*session.Session),
) (result Result, err error) {
	supervisor, err := proc.New(o)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, supervisor.Close()) }()
	join := session.Options{
		Target: m.target, Dial: held(m.dial, supervisor), Proof: supervisor.Proof(), TLS: m.tls, Node: m.node, Facts: facts, Warn: o.Warn,
		Clock: proc.BootTime, Heard: func(at, lease time.Duration) { supervisor.Renew(max(1, at+lease-proc.BootTime())) },
		Lease: m.lease, Elsewhere: m.elsewhere, DialAt: func(ctx context.Context, addr string) (net.Conn, error) {
			return held(func(ctx context.Context) (net.Conn, error) { return dialAt(ctx, addr) }, supervisor)(ctx)
		},
	}
	if m.candidate != nil {
		join.Voter = m.candidate
	}
	session, err := session.Join(ctx, join)
	if err != nil {
		return Result{}, err
	}
	welcomed(session)
	a.Session, a.Supervisor = session, supervisor
	return ended(a.Run(ctx))
}

// held has the guardian hold each connection that is dialled, the newest alone, so that it ends with the proof that every rank of this
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
