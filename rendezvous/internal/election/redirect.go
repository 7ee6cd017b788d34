package election

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/quorum"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/rendezvous/internal/server"
)

// A process that is not the coordinator tells callers where the coordinator is. While no leader is
// known, it holds a caller on its connection. Most of the cost of a question is its connection with
// the TLS handshake. If thousands of callers reconnected repeatedly, they would delay the election
// that they wait for.

const (
	// A caller that does not say how long it waits is held for a lease divided by HoldsPerLease. A
	// caller that says how long is held for a lease divided by MaxHoldsPerLease at most.
	HoldsPerLease    = 8
	MaxHoldsPerLease = 4
	// Callers without a leader return at random times within a lease divided by spreadsPerLease.
	spreadsPerLease = 20
	// Pace is the mean time between callers that go to a new leader.
	Pace = 100 * time.Microsecond
)

// Caller is a process that asks for the coordinator. It says how long it may be held, and which
// address it has just failed to reach.
type Caller struct {
	Hold time.Duration
	Lost string
}

// Client returns the Caller for a client, which says nothing about itself.
func (p *Participant) Client() Caller { return Caller{Hold: p.cfg.Lease / HoldsPerLease} }

// Agent returns the Caller for an agent that has sent this hello.
func (p *Participant) Agent(h *pb.Hello) Caller {
	c := p.Client()
	if patience := h.GetPatience().AsDuration(); patience > 0 {
		c.Hold = min(wire.HeldOf(patience), p.cfg.Lease/MaxHoldsPerLease)
	}
	c.Lost = h.GetLost()
	return c
}

// AwaitCoordinator returns nil once the coordinator is in this process, or an error with other
// places where the coordinator may be. It waits while this process knows no leader, or only the
// leader that the caller has just lost, because that leader may have died. If that leader still
// leads, the error has its address: this process returns it with the leader's next message.
func (p *Participant) AwaitCoordinator(ctx context.Context, caller Caller) error {
	p.asking.Add(1)
	defer p.asking.Add(-1)
	limit := time.NewTimer(caller.Hold)
	defer limit.Stop()
	for {
		changed, heard := p.leaderChanged.next(), p.leaderHeard.next()
		if p.cfg.Coordinates() {
			return nil
		}
		log := p.quorumLog()
		if log == nil {
			return p.Elsewhere()
		}
		if leader := p.leader(); leader.ID != 0 && leader.Addr != caller.Lost {
			return p.Elsewhere()
		}
		select {
		case <-changed:
			caller.Lost = ""
		case <-heard:
			caller.Lost = ""
		case <-limit.C:
			return p.Elsewhere()
		case <-log.Ended():
			return p.Elsewhere()
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
}

// ErrElsewhere ends a connection before the handshake, to save its cost.
var ErrElsewhere = errors.New("the coordinator is elsewhere")

// maxHandshakeHold bounds the time for which HoldHandshake holds a caller. It is shorter than the
// longest time that an agent waits for a handshake.
const maxHandshakeHold = 25 * time.Second

// HoldHandshake is a [server.HoldFunc]. It admits a few callers, so that they learn where the
// coordinator is. If there are many callers, the others wait before their handshakes. Each waiting
// caller costs one handshake if this process becomes the coordinator, and none otherwise. A caller
// that is disconnected tries the next address of its list.
func (p *Participant) HoldHandshake(ctx context.Context, waiting *atomic.Int64) error {
	if p.quorumLog() == nil {
		return nil
	}
	limit := time.NewTimer(min(p.cfg.Lease/MaxHoldsPerLease, maxHandshakeHold))
	defer limit.Stop()
	for {
		changed := p.leaderChanged.next()
		crowd := waiting.Load()
		if p.cfg.Coordinates() || crowd <= server.MaxHandshakes {
			return nil
		}
		if p.leader().ID != 0 {
			limit.Reset(rand.N(time.Duration(crowd) * Pace))
			changed = nil
		}
		select {
		case <-changed:
		case <-limit.C:
			return ErrElsewhere
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// leader returns the other process that leads, if this process knows it. It returns the zero Voter
// if there is none.
func (p *Participant) leader() quorum.Voter {
	if log := p.quorumLog(); log != nil {
		if leader := log.Leader(); leader.ID != p.self.ID {
			return leader
		}
	}
	return quorum.Voter{}
}

// Elsewhere returns an error that says that the coordinator is not in this process, and where it
// may be.
func (p *Participant) Elsewhere() error {
	e := &wire.ElsewhereError{Leader: p.leader().Addr}
	idle := "node " + p.cfg.Node + " does not coordinate the job, and must not: no majority has elected it"
	switch addrs := p.coordinators.Load(); {
	case len(p.cfg.Peers) > 0:
		e.Addrs = p.OtherPeers()
		e.Why = p.cfg.Addr + " does not lead the cluster, and knows of no leader at the moment"
		if e.Leader != "" {
			e.Why = p.cfg.Addr + " does not lead the cluster: " + e.Leader + " does"
		}
	case addrs != nil:
		e.Addrs, e.Why = *addrs, idle
	default:
		return status.Error(codes.Unavailable, idle)
	}
	e.Wait = rand.N(time.Duration(max(1, p.asking.Load())) * Pace)
	if e.Leader == "" {
		e.Wait = rand.N(p.cfg.Lease / spreadsPerLease)
	}
	return e.Status()
}

// broadcast wakes all its waiters.
type broadcast struct {
	mu sync.Mutex
	c  chan struct{}
}

// next returns a channel that the next send closes.
func (b *broadcast) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.c == nil {
		b.c = make(chan struct{})
	}
	return b.c
}

func (b *broadcast) send() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.c != nil {
		close(b.c)
		b.c = nil
	}
}
