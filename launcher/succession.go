package launcher

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"

	"github.com/golaunch/golaunch/agent"
	"github.com/golaunch/golaunch/internal/mtls"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rendezvous"
)

// seat is this node's place among those that may come to lead the job. It listens already where the nodes meet, or else they do so at
// home, HOST:PORT; both are empty where they find each other but once. A job on one or two nodes has no majority without it.
func (h *here) seat(node placement.Node, token mtls.Token, listens, home string) *rendezvous.Seat {
	if h.job.Resources.MaxNodes+h.job.Resources.Spares < 3 {
		return nil
	}
	id := h.identity(node)
	tenure, _ := terms(h.job.Network.Lease)
	return rendezvous.NewSeat(rendezvous.SeatConfig{
		Node: node.Name, Addr: listens, Home: home, Lease: tenure, Server: mtls.Server(token, id), Client: mtls.Client(token, id), Warn: h.warn,
	})
}

// found begins a job that its other nodes can take over, with the coordinator behind a listener and this node's agent.
func (h *here) found(ctx context.Context, l net.Listener, server *tls.Config, m membership) (Result, error) {
	if m.seat == nil {
		return h.lead(ctx, h.leadership(l, server, m))
	}
	journal, err := h.journal(eventsFile)
	if err != nil {
		return Result{}, errors.Join(err, l.Close())
	}
	words := h.muster()
	c := h.coordinator(journal, words, m.seat, nil)
	h.leads.Store(c)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	f := newFollower(cancel)
	f.within = h.job.Stopping.DrainTime
	m.leave, m.welcomed = f.leave, f.welcomed
	h.heed(ctx, f)
	if !h.job.reached() {
		m.signals = f.pass
	}
	go h.attend(f)
	served := make(chan error, 1)
	go func() { served <- orCancel(c, m.seat.Serve(l)) }()
	result, err := h.partake(ctx, m, func(ctx context.Context) (Result, error) {
		return h.preside(ctx, c, words, journal)
	})
	if err = errors.Join(err, <-served); err != nil && result.Code == 0 {
		result.Code = f.code()
	}
	return result, err
}

// leadership is that of a job which ends with this node.
func (h *here) leadership(l net.Listener, server *tls.Config, m membership) leadership {
	lead := leadership{listener: l, tls: server}
	if h.job.Network.Rendezvous == "" {
		f := newFollower(nil)
		if !h.job.reached() {
			m.signals = f.pass
		}
		lead.pass = func(s syscall.Signal) { f.tell(s) }
	}
	lead.agents = func(ctx context.Context) error { return h.work(ctx, m) }
	return lead
}

// succeed leads the job in place of a node that was lost.
func (h *here) succeed(ctx context.Context, node string, seat *rendezvous.Seat, call rendezvous.Call) (Result, error) {
	h.muted = false
	h.say(node + " leads the job from now on")
	journal, err := h.journal("events-" + node + ".jsonl")
	if err != nil {
		return Result{}, err
	}
	m := h.muster()
	c := h.coordinator(journal, m, seat, &call)
	h.leads.Store(c)
	return h.preside(ctx, c, m, journal)
}

// coordinator goes on with the job of a call, or begins it.
func (h *here) coordinator(journal io.Writer, m *muster, seat *rendezvous.Seat, call *rendezvous.Call) *rendezvous.Coordinator {
	tenure, kill := terms(h.job.Network.Lease)
	s := h.job.submission()
	s.LastCall = max(0, h.job.Resources.LastCall)
	cfg := rendezvous.Config{
		Job: &s, Facts: h.job.facts(), Named: h.job.hasID, Lease: tenure, KillTime: kill, Warn: h.warn, Note: h.say, Seat: seat, Call: call,
		Journal: journal, Joined: m.joined, Observe: func(d rendezvous.Decision) {
			m.decided(d)
			h.observe(decisionOf(d))
		},
	}
	if call == nil {
		cfg.Expect, cfg.Whole = h.job.together(), h.job.whole()
	}
	return rendezvous.NewCoordinator(cfg)
}

// preside has a coordinator run, for as long as it may.
func (h *here) preside(ctx context.Context, c *rendezvous.Coordinator, m *muster, journal *os.File) (Result, error) {
	m.asks(c)
	result, err := ended(c.Run(ctx))
	m.tell()
	h.leads.Store(nil)
	if failed := journal.Close(); failed != nil {
		h.warn(fmt.Errorf("cannot finish the journal: %w", failed))
	}
	return result, err
}

// errEnded ends the agent of a job that is over.
var errEnded = errors.New("the job is over")

// partake is this node's part in a job: its agent and, at times, the coordinator. begin leads the job at first; it is nil where another
// node does. The result is the coordinator's, or what it told the agent.
func (h *here) partake(ctx context.Context, m membership, begin func(context.Context) (Result, error)) (Result, error) {
	if m.seat == nil {
		return h.agent(ctx, m)
	}
	defer m.seat.Close()
	working, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	type outcome struct {
		result Result
		err    error
	}
	ended := make(chan outcome, 1)
	var left atomic.Bool
	go func() {
		result, err := h.agent(working, m)
		if errors.Is(err, errEnded) {
			err = nil
		}
		if err != nil {
			left.Store(true)
			h.resign(m.seat, err)
		}
		ended <- outcome{result, err}
	}()
	stop := ctx.Done()
	for lead := begin; ; {
		if lead != nil {
			result, err := lead(ctx)
			_, elsewhere := errors.AsType[*rendezvous.ElsewhereError](err)
			switch {
			case elsewhere: // the agent says so
			case errors.Is(err, rendezvous.ErrDeposed):
				h.joined.Store(true)
				if !left.Load() {
					h.warn(err)
				}
			default:
				cancel(errEnded)
				return result, errors.Join(err, (<-ended).err)
			}
			lead = nil
		}
		select {
		case o := <-ended:
			return o.result, o.err
		case call := <-m.seat.Calls():
			lead = func(ctx context.Context) (Result, error) { return h.succeed(ctx, m.node.Name, m.seat, call) }
		case <-stop:
			cancel(context.Cause(ctx))
			stop = nil
		}
	}
}

// resign leaves a job, which cannot go on with this node, to the other nodes; it ends where none of them can lead it, or stays.
func (h *here) resign(seat *rendezvous.Seat, why error) {
	c := h.leads.Load()
	switch {
	case c == nil || seat.Pass():
		seat.Close()
	case errors.Is(why, agent.ErrLeft):
		c.Stop(rendezvous.Preempted(why.Error(), 0, false))
	default:
		_ = orCancel(c, why) // it is returned by who calls this
	}
}
