package launcher

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golaunch/golaunch/agent"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/mtls"
	"github.com/golaunch/golaunch/internal/wire/session"
	"github.com/golaunch/golaunch/launcher/internal/discovery"
	"github.com/golaunch/golaunch/launcher/internal/signals"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rendezvous"
)

// part is what a process has to do in a job: to coordinate it when that is its turn, to be a node of it, or both.
type part struct {
	// listener is where the nodes of the job meet, and has this process begin it; nil where another one does. tls is nil on one machine.
	listener net.Listener
	tls      *tls.Config
	// name is this node's, and candidate is it as one of those that may come to coordinate the job; nil when there are no others.
	name      string
	candidate *rendezvous.Candidate
	// own is the node of this process, if it begins the job.
	own *rendezvous.Own
	// nodes are this process's agent, or those that it starts elsewhere, until the job has ended or their context. What they return is what
	// the coordinator told them; their error means that the job cannot go on with this process.
	nodes func(context.Context) (Result, error)
}

// live is a process's life in a job: it meets the others, as enter says, takes part, and leaves. What the process is told is heard from the
// beginning, and goes through f.
func (h *here) live(ctx context.Context, enter func(ctx context.Context, f *signals.Node) (part, error)) (result Result, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	f := signals.NewNode(cancel)
	f.DrainTime, f.EndsJob = h.job.Stopping.DrainTime, h.job.alike() && h.job.closed()
	go h.attend(f)
	h.watchSpot(ctx, f)
	for again := true; again; again = h.rename(err) {
		var p part
		if p, err = enter(ctx, f); err == nil {
			result, err = h.work(ctx, p)
		}
	}
	switch {
	case errors.Is(err, errLate):
		result.Code = 124
	case err != nil && result.Code == 0:
		result.Code = f.Code()
	}
	return result, err
}

// errEnded ends the nodes of a job that is over.
var errEnded = errors.New("the job is over")

// work coordinates the job whenever it is this process's turn, and has its nodes run beside that. The result is what the coordinator here
// brought about, or what another one told the nodes.
func (h *here) work(ctx context.Context, p part) (result Result, err error) {
	working, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	var first *turn
	var terms <-chan rendezvous.Term
	if p.candidate != nil {
		terms = p.candidate.Terms()
		defer p.candidate.Close()
	}
	if p.listener != nil {
		if first, err = h.turn(p, nil); err != nil {
			return result, errors.Join(err, p.listener.Close())
		}
		served := make(chan error, 1)
		go func() { served <- orCancel(first.coordinator, first.serve(p)) }()
		defer func() {
			if p.candidate != nil {
				p.candidate.Close()
			}
			err = errors.Join(err, <-served)
		}()
	}
	type outcome struct {
		result Result
		err    error
	}
	left := make(chan outcome, 1)
	var leaves atomic.Bool
	go func() {
		result, err := p.nodes(working)
		if errors.Is(err, errEnded) {
			err = nil
		}
		if err != nil {
			leaves.Store(true)
			h.resign(p.candidate, err)
		}
		left <- outcome{result, err}
	}()
	stop := ctx.Done()
	for t := first; ; {
		if t != nil {
			result, err := t.run(ctx)
			_, elsewhere := errors.AsType[*wire.ElsewhereError](err)
			switch {
			case elsewhere: // its agents say so, or it has
			case errors.Is(err, rendezvous.ErrDeposed):
				h.joined.Store(true)
				if !leaves.Load() {
					h.warn(err)
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
		case term := <-terms:
			h.muted = false
			h.say(p.name + " leads the job from now on")
			if t, err = h.turn(p, &term); err != nil {
				end(err)
				return Result{}, errors.Join(err, (<-left).err)
			}
		case <-stop:
			end(context.Cause(ctx))
			stop = nil
		}
	}
}

// unlessOver is nil for a node that came when the job had ended already, which is no failure.
func unlessOver(err error) error {
	if r, ok := errors.AsType[*session.RefusedError](err); ok && r.Why == wire.Over {
		return nil
	}
	return err
}

// turn is a time in which this process coordinates the job.
type turn struct {
	h           *here
	coordinator *rendezvous.Coordinator
	roster      *roster
	journal     *os.File
	// served has how the service for commands on this machine has ended.
	served chan error
	// follows ends once unfollow was called; teller is there then.
	follows  sync.WaitGroup
	teller   *teller
	unfollow func()
}

// eventsFile records the job's events; who takes over from another has one of its own.
const eventsFile = "events.jsonl"

// turn goes on with the job in a term, or begins it.
func (h *here) turn(p part, term *rendezvous.Term) (*turn, error) {
	name := eventsFile
	if term != nil {
		name = "events-" + p.name + ".jsonl"
	}
	if err := h.open(h.job.ID); err != nil {
		return nil, err
	}
	journal, err := h.dir.Create(name)
	if err != nil {
		return nil, err
	}
	t := &turn{h: h, roster: h.roster(), journal: journal}
	t.coordinator = h.coordinator(journal, t.roster, p, term)
	t.roster.asks(t.coordinator)
	h.leads.Store(t.coordinator)
	t.open()
	return t, nil
}

// open serves commands of this user on this machine. That it cannot is no reason for a job not to run.
func (t *turn) open() {
	l, err := discovery.Listen(t.h.job.ID)
	if err != nil {
		t.h.warn(err)
		return
	}
	t.served = make(chan error, 1)
	following, unfollow := context.WithCancel(context.Background())
	t.unfollow = unfollow
	t.follows.Go(func() { t.teller = t.h.follow(following, sampleHere) })
	go func() { t.served <- t.coordinator.ServeClients(l) }()
}

func (h *here) coordinator(journal io.Writer, m *roster, p part, term *rendezvous.Term) *rendezvous.Coordinator {
	silence, kill := leaseParts(h.job.Network.Lease)
	s := h.job.submission()
	s.LastCall = max(0, h.job.Resources.LastCall)
	cfg := rendezvous.Config{
		Job: &s, Facts: h.job.facts(), Named: h.job.hasID, Lease: silence, KillTime: kill, Warn: h.warn, Note: h.say,
		Candidate: p.candidate, Own: p.own, Term: term, Journal: journal, Joined: m.joined, Observe: func(d wire.Decision) {
			m.decided(d)
			h.observe(decisionOf(d))
		},
	}
	if term == nil {
		cfg.Expect, cfg.Whole, cfg.Nodes = h.job.together(), h.job.whole(), h.job.started()
	}
	return rendezvous.NewCoordinator(cfg)
}

// serve takes nodes, and those that may come to coordinate the job, where they first meet.
func (t *turn) serve(p part) error {
	if p.candidate != nil {
		return p.candidate.Serve(p.listener)
	}
	return t.coordinator.Serve(p.listener, p.tls)
}

// run coordinates for as long as the turn lasts.
func (t *turn) run(ctx context.Context) (Result, error) {
	result, err := ended(t.coordinator.Run(ctx))
	if t.roster.lonely != nil {
		t.roster.lonely.Stop()
	}
	t.roster.tell()
	t.h.leads.CompareAndSwap(t.coordinator, nil)
	if t.served != nil {
		t.unfollow()
		t.follows.Wait()
		if err == nil {
			t.teller.end(result)
		}
		if failed := <-t.served; failed != nil {
			t.h.warn(failed)
		}
	}
	if failed := t.journal.Close(); failed != nil {
		t.h.warn(fmt.Errorf("cannot finish the journal: %w", failed))
	}
	return result, err
}

// resign leaves a job, which cannot go on with this process, to others; it ends where none of them can lead it, or stays.
func (h *here) resign(candidate *rendezvous.Candidate, why error) {
	switch c := h.leads.Load(); {
	case candidate != nil && (c == nil || candidate.Transfer()):
		candidate.Close()
	case c == nil: // the job has ended
	case errors.Is(why, agent.ErrLeft):
		c.Stop(rendezvous.Preempted(why.Error(), 0, false))
	default:
		_ = orCancel(c, why) // it is returned by who calls this
	}
}

// orCancel ends the job for an error: it would wait for nodes that cannot come.
func orCancel(c *rendezvous.Coordinator, err error) error {
	if err != nil {
		c.Cancel(125, err.Error())
	}
	return err
}

// node is the part of a node: an agent in this process, which does what f says.
func (h *here) node(m membership, f *signals.Node) part {
	return part{name: m.Node.Name, candidate: m.candidate, nodes: func(ctx context.Context) (Result, error) { return h.agent(ctx, m, f) }}
}

// begin is the part of the node that begins the job, and takes the others at a listener.
func (h *here) begin(ctx context.Context, l net.Listener, server *tls.Config, m membership) (Result, error) {
	return h.live(ctx, func(_ context.Context, f *signals.Node) (part, error) {
		own := rendezvous.NewOwn(m.Node)
		m.Began = own.Began
		p := h.node(m, f)
		p.listener, p.tls, p.own = l, server, own
		return p, nil
	})
}

// afar is the part of a process that begins the job, and starts its nodes in other processes. That they fail once the job has ended is no
// news.
func (h *here) afar(ctx context.Context, l net.Listener, server *tls.Config, nodes func(context.Context) error) (Result, error) {
	return h.live(ctx, func(context.Context, *signals.Node) (part, error) {
		return part{listener: l, tls: server, nodes: func(ctx context.Context) (Result, error) {
			err := nodes(ctx)
			if ctx.Err() != nil {
				err = nil
			}
			return Result{}, err
		}}, nil
	})
}

// errLate says that no coordinator answered within the placement timeout.
var errLate = errors.New("no coordinator came in time, see --placement-timeout")

// join takes part, as find says, in a job that another node leads at a target, and ends as it does. A stop makes this node leave the
// job in order, with the exit code of the signal.
func (h *here) join(ctx context.Context, node placement.Node, target string, find func(context.Context, placement.Node) (membership, error)) (Result, error) {
	var late *time.Timer
	return h.live(ctx, func(ctx context.Context, f *signals.Node) (part, error) {
		if late == nil {
			late = time.AfterFunc(orForever(h.job.Resources.PlacementTimeout), func() { f.Cancel(errLate) })
			context.AfterFunc(ctx, func() { late.Stop() })
		}
		node.Name = cmp.Or(h.alias, node.Name)
		if !h.muted {
			h.say(node.Name + " asks to join at " + target)
		}
		m, err := find(ctx, node)
		f.OnJoin = func() {
			late.Stop()
			h.joined.Store(true)
		}
		return h.node(m, f), err
	})
}

// rename has this node ask again under another name if its machine's own name is taken: machines
// may be named alike, and one machine may have several nodes.
func (h *here) rename(err error) bool {
	r, ok := errors.AsType[*session.RefusedError](err)
	if !ok || h.job.Network.Name != "" || r.Another() == "" {
		return false
	}
	h.alias = r.Another()
	h.warn(fmt.Errorf("%s; this node is %s", r.Why, h.alias))
	return true
}

// candidate is this node as one of those that may come to lead the job. It listens already where the nodes meet, or else they do so at
// home, HOST:PORT; both are empty where they find each other but once. A job on one or two nodes has no majority without it.
func (h *here) candidate(node placement.Node, token mtls.Token, listens, home string) *rendezvous.Candidate {
	if h.job.Resources.MaxNodes+h.job.Resources.Spares < 3 {
		return nil
	}
	id := h.identity(node)
	silence, _ := leaseParts(h.job.Network.Lease)
	return rendezvous.NewCandidate(rendezvous.CandidateConfig{
		Listen: func(at netip.Addr) (net.Listener, error) {
			return h.job.Network.ports().Listen(context.Background(), at.String())
		},
		Node: node.Name, Addr: listens, Home: home, Lease: silence, Server: mtls.Server(token, id), Client: mtls.Client(token, id), Warn: h.warn,
	})
}
