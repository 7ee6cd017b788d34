package rendezvous

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/quorum"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/rendezvous/internal/server"
)

// Who asks for the coordinator where it is not hears where it is. While that is not known it is held on its connection until there is news: a
// connection with its TLS handshake costs more than all else about a question, and if thousands asked again and again, nobody would be left
// to elect a leader.

const (
	// holdsPerLease is the part of a lease for which somebody is held who does not say how long it waits, and longestHold of one who does.
	holdsPerLease = 8
	longestHold   = 4
	// spreadsPerLease is the part of a lease over which those come again that have heard no news.
	spreadsPerLease = 20
	// pace is how far apart those come to the leader, on average, that have heard of it together.
	pace = 100 * time.Microsecond
)

// question is what is known of somebody who asks for the coordinator: how long it is held at most, and where it has just found nobody.
type question struct {
	held time.Duration
	lost string
}

// question is that of who says no more.
func (s *Candidate) question() question { return question{held: s.cfg.Lease / holdsPerLease} }

// questionOf is an agent's.
func (s *Candidate) questionOf(h *pb.Hello) question {
	q := s.question()
	if patience := h.GetPatience().AsDuration(); patience > 0 {
		q.held = min(wire.HeldOf(patience), s.cfg.Lease/longestHold)
	}
	q.lost = h.GetLost()
	return q
}

// lead is the coordinator here, or says where else it may be. Where nobody leads for the moment, or who has just been lost, it waits for the
// news. That one leads after all is news too: it has been heard again.
func (s *Candidate) lead(ctx context.Context, q question) (*Coordinator, error) {
	s.asking.Add(1)
	defer s.asking.Add(-1)
	limit := time.NewTimer(q.held)
	defer limit.Stop()
	for {
		settled := s.led.next()
		if c := s.head.Load(); c != nil {
			return c, nil
		}
		log := s.logged()
		if log == nil {
			return nil, s.nowhere()
		}
		if leads := s.leader(); leads.ID != 0 && leads.Addr != q.lost {
			return nil, s.nowhere()
		}
		select {
		case <-settled:
			q.lost = ""
		case <-limit.C:
			return nil, s.nowhere()
		case <-log.Ended():
			return nil, s.nowhere()
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
}

// errLedElsewhere spares a handshake.
var errLedElsewhere = errors.New("the coordinator is elsewhere")

// maxAwait is less than an agent waits for a handshake at the longest.
const maxAwait = 25 * time.Second

// await has somebody wait for the news who has not had a handshake yet, and is one of a crowd: if the coordinator comes to be here, it costs one
// handshake to be greeted, and if not, none. Who is sent on without a word goes through its list. A few are greeted, and told where to go.
func (s *Candidate) await(over context.Context, waiting *atomic.Int64) error {
	if s.logged() == nil {
		return nil
	}
	limit := time.NewTimer(min(s.cfg.Lease/longestHold, maxAwait))
	defer limit.Stop()
	for {
		settled := s.led.next()
		crowd := waiting.Load()
		if s.head.Load() != nil || crowd <= server.MaxHandshakes {
			return nil
		}
		if s.leader().ID != 0 {
			limit.Reset(rand.N(time.Duration(crowd) * pace))
			settled = nil
		}
		select {
		case <-settled:
		case <-limit.C:
			return errLedElsewhere
		case <-over.Done():
			return over.Err()
		}
	}
}

// leader is another process that leads, as far as this one knows; its ID is 0 if that is none.
func (s *Candidate) leader() quorum.Voter {
	if log := s.logged(); log != nil {
		if leads := log.Leader(); leads.ID != s.voter.ID {
			return leads
		}
	}
	return quorum.Voter{}
}

// nowhere says that the coordinator is not here, and where it is, or may be.
func (s *Candidate) nowhere() error {
	e := &wire.ElsewhereError{Leader: s.leader().Addr}
	switch known := s.known.Load(); {
	case len(s.cfg.Peers) > 0:
		e.Addrs = s.fellows()
		e.Why = s.cfg.Addr + " does not lead the cluster, and knows of nobody who does at the moment"
		if e.Leader != "" {
			e.Why = s.cfg.Addr + " does not lead the cluster: " + e.Leader + " does"
		}
	case known != nil:
		e.Addrs, e.Why = *known, s.idle()
	default:
		return status.Error(codes.Unavailable, s.idle())
	}
	e.Wait = rand.N(time.Duration(max(1, s.asking.Load())) * pace)
	if e.Leader == "" {
		e.Wait = rand.N(s.cfg.Lease / spreadsPerLease)
	}
	return e.Status()
}

func (s *Candidate) idle() string {
	return "node " + s.cfg.Node + " does not coordinate the job, and may not: it knows of no majority that wants it"
}
