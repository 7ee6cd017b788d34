// Package role carries out the role of one process in a job: it runs one or more nodes, coordinates
// the job for one or more terms, or both.
package role

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"sync/atomic"
	"time"

	"github.com/golaunch/golaunch/agent"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/session"
	"github.com/golaunch/golaunch/launcher/internal/jobdir"
	"github.com/golaunch/golaunch/launcher/internal/signals"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rendezvous"
)

// Process is this process in a job. Its exported fields except Alias are set before it begins.
type Process struct {
	// Coordinator and Agent configure what this process runs. The fields that depend on a term, or
	// on how the node joins, are set later.
	Coordinator rendezvous.Config
	Agent       agent.Agent
	Signals     Signals
	Nodes       Nodes
	Files       *jobdir.Run
	Observe     func(report.Decision)
	// Progress reports the job's progress until ctx ends, and then returns. The caller must then
	// call end.
	Progress func(ctx context.Context) (end func(report.Ending))
	// Named says that the user chose this node's name.
	Named bool
	// JoinTimeout bounds the wait for another node's coordinator; 0 waits for ever.
	JoinTimeout time.Duration
	// Muted says that another node of the job, not this one, reports about the job and its end.
	Muted bool

	// Alias is the name under which the node joined if another node already had its name; else
	// empty.
	Alias string

	joined atomic.Bool
	// leads is the coordinator of this process; nil while another node's coordinator leads the job.
	leads atomic.Pointer[rendezvous.Coordinator]
}

// Joined reports whether a coordinator has admitted this process's node.
func (p *Process) Joined() bool { return p.joined.Load() }

// Member says how a node takes part in a job: it joins the job, and if it is a candidate, the nodes
// may elect it to lead the job.
type Member struct {
	session.Options
	// Candidate is nil if the job holds no elections.
	Candidate *rendezvous.Candidate
	// Server is the TLS configuration with which other nodes get the job's workspace from this
	// node; nil if they cannot.
	Server *tls.Config
}

// role has what a process needs for its part in a job: to coordinate the job, to be a node of the
// job, or both.
type role struct {
	// begins says that this process is the first to coordinate the job. Other nodes join at
	// listener, with TLS; listener is nil if there are no other nodes, and tls is nil if all nodes
	// are on this machine.
	begins   bool
	listener net.Listener
	tls      *tls.Config
	// name is this node's name. candidate takes part in elections for this node; nil if the job
	// holds no elections.
	name      string
	candidate *rendezvous.Candidate
	// own is the node of this process, if the process begins the job; else nil.
	own *rendezvous.LocalNode
	// nodes runs this process's agent, or the agents that it starts elsewhere, until the job or ctx
	// has ended. It returns the result that the coordinator sent. An error means that the job
	// cannot continue with this process.
	nodes func(context.Context) (report.Result, error)
}

// Begin begins the job with this node, and admits other nodes at the listener l. Without a listener
// the job has only this node, whose agent calls the coordinator directly, without a network.
func (p *Process) Begin(ctx context.Context, l net.Listener, server *tls.Config, m Member) (report.Result, error) {
	if l == nil {
		m.Connect = func(ctx context.Context) (session.Conn, error) {
			if c := p.leads.Load(); c != nil {
				return c.Direct(ctx)
			}
			return nil, errEnded
		}
	}
	return p.run(ctx, func(_ context.Context, n *signals.Node) (role, error) {
		own := rendezvous.NewLocalNode(m.Node)
		m.Began = own.Began
		r := p.node(m, n)
		r.begins, r.listener, r.tls, r.own = true, l, server, own
		return r, nil
	})
}

// BeginRemote begins the job in a process that is no node. nodes starts the agents in other
// processes. BeginRemote ignores an error of nodes after the end of the job.
func (p *Process) BeginRemote(ctx context.Context, l net.Listener, server *tls.Config, nodes func(context.Context) error) (report.Result, error) {
	return p.run(ctx, func(context.Context, *signals.Node) (role, error) {
		return role{begins: true, listener: l, tls: server, nodes: func(ctx context.Context) (report.Result, error) {
			err := nodes(ctx)
			if ctx.Err() != nil {
				err = nil
			}
			return report.Result{}, err
		}}, nil
	})
}

// ErrLate says that no coordinator answered within the placement timeout.
var ErrLate = errors.New("no coordinator was found in time; see --placement-timeout")

// Join takes part in a job that another node leads, and returns the job's result. find returns how
// to join. A stop signal makes this node leave the job in order, with the exit code of the signal.
func (p *Process) Join(
	ctx context.Context, node placement.Node, target string, find func(context.Context, placement.Node) (Member, error),
) (report.Result, error) {
	var late *time.Timer
	return p.run(ctx, func(ctx context.Context, n *signals.Node) (role, error) {
		if late == nil {
			late = time.AfterFunc(cmp.Or(p.JoinTimeout, math.MaxInt64), func() { n.Cancel(ErrLate) })
			context.AfterFunc(ctx, func() { late.Stop() })
		}
		node.Name = cmp.Or(p.Alias, node.Name)
		if !p.Muted {
			p.Agent.Say(node.Name + " asks to join at " + target)
		}
		m, err := find(ctx, node)
		n.OnJoin = func() {
			late.Stop()
			p.joined.Store(true)
		}
		return p.node(m, n), err
	})
}

// node returns the role of a node whose agent runs in this process.
func (p *Process) node(m Member, n *signals.Node) role {
	return role{name: m.Node.Name, candidate: m.Candidate, nodes: func(ctx context.Context) (report.Result, error) {
		return p.RunAgent(ctx, m, n)
	}}
}

// run calls enter to find this process's role, and carries out the role to its end. It handles
// signals from the beginning.
func (p *Process) run(ctx context.Context, enter func(context.Context, *signals.Node) (role, error)) (result report.Result, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	n := signals.NewNode(cancel)
	n.DrainTime, n.EndsJob = p.Signals.DrainTime, p.Signals.EndJob
	go p.hearSignals(n)
	p.watchSpot(ctx, n)
	for again := true; again; again = p.rename(err) {
		var r role
		if r, err = enter(ctx, n); err == nil {
			result, err = p.work(ctx, r)
		}
	}
	switch {
	case errors.Is(err, ErrLate):
		result.Code = 124
	case err != nil && result.Code == 0:
		result.Code = n.Code()
	}
	return result, err
}

// rename gives this node another name if err says that another node already has its name. The node
// can then ask again to join. This happens because machines may have equal names, and one machine
// may have several nodes.
func (p *Process) rename(err error) bool {
	r, ok := errors.AsType[*session.RefusedError](err)
	if !ok || p.Named || r.Another() == "" {
		return false
	}
	p.Alias = r.Another()
	p.Agent.Warn(fmt.Errorf("%s; this node is %s", r.Why, p.Alias))
	return true
}

// errEnded is the reason with which work ends the nodes of this process when the job is over.
var errEnded = errors.New("the job is over")

type outcome struct {
	result report.Result
	err    error
}

// work runs the nodes of this process, and coordinates the job in each of its terms. It returns the
// result of this process's coordinator, or else the result that the nodes got from the coordinator
// of another process.
func (p *Process) work(ctx context.Context, r role) (result report.Result, err error) {
	working, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	var first *term
	var terms <-chan rendezvous.Term
	if r.candidate != nil {
		terms = r.candidate.Terms()
		defer r.candidate.Close()
	}
	if r.begins {
		if first, err = p.newTerm(r, nil); err != nil {
			if r.listener != nil {
				err = errors.Join(err, r.listener.Close())
			}
			return result, err
		}
	}
	if r.listener != nil {
		served := make(chan error, 1)
		go func() { served <- orCancel(first.coordinator, first.serve(r)) }()
		defer func() {
			if r.candidate != nil {
				r.candidate.Close()
			}
			err = errors.Join(err, <-served)
		}()
	}
	left := make(chan outcome, 1)
	var leaving atomic.Bool
	go func() {
		result, err := r.nodes(working)
		if errors.Is(err, errEnded) {
			err = nil
		}
		if err != nil {
			leaving.Store(true)
			p.resign(r.candidate, err)
		}
		left <- outcome{result, err}
	}()
	stop := ctx.Done()
	for t := first; ; {
		if t != nil {
			result, err := t.run(ctx)
			_, elsewhere := errors.AsType[*wire.ElsewhereError](err)
			switch {
			case elsewhere: // another process coordinates, and r.nodes returns the result
			case errors.Is(err, rendezvous.ErrDeposed):
				p.joined.Store(true)
				if !leaving.Load() {
					p.Agent.Warn(err)
				}
			default:
				end(errEnded)
				return result, errors.Join(err, unlessOver((<-left).err))
			}
			t = nil
		}
		select {
		case o := <-left:
			return o.result, o.err
		case next := <-terms:
			p.Muted = false
			p.Agent.Say(r.name + " leads the job from now on")
			if t, err = p.newTerm(r, &next); err != nil {
				end(err)
				return report.Result{}, errors.Join(err, (<-left).err)
			}
		case <-stop:
			end(context.Cause(ctx))
			stop = nil
		}
	}
}

// unlessOver returns err, or nil if err only says that a node asked to join after the end of the
// job.
func unlessOver(err error) error {
	if r, ok := errors.AsType[*session.RefusedError](err); ok && r.Over {
		return nil
	}
	return err
}

// resign makes another node lead the job, because the job cannot continue with this process. If no
// other node can lead it, resign ends the job.
func (p *Process) resign(candidate *rendezvous.Candidate, why error) {
	switch c := p.leads.Load(); {
	case candidate != nil && (c == nil || candidate.Transfer()):
		candidate.Close()
	case c == nil: // the job has ended
	case errors.Is(why, agent.ErrLeft):
		c.Stop(rendezvous.Preempted(why.Error(), 0, false))
	default:
		_ = orCancel(c, why) // work returns this error too
	}
}

// orCancel ends the job if err is not nil, and returns err. Without it, the job would wait for
// nodes that cannot join.
func orCancel(c *rendezvous.Coordinator, err error) error {
	if err != nil {
		c.Cancel(125, err.Error())
	}
	return err
}
