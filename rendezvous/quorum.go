package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/golaunch/golaunch/internal/quorum"
	"github.com/golaunch/golaunch/internal/wire"
	pb "github.com/golaunch/golaunch/rendezvous/rendezvouspb"
)

// joinServer is where agents ask for the coordinator.
type joinServer struct {
	pb.UnimplementedRendezvousServer
	candidate *Candidate
	audit     *audit
}

// Join serves an agent if the coordinator is here. One that is new to the job hears where else it may be.
func (j joinServer) Join(stream pb.Rendezvous_JoinServer) error {
	c, err := j.candidate.lead(stream.Context())
	if err != nil {
		return err
	}
	return service{c: c, audit: j.audit}.Join(stream)
}

// Deliver takes output for a reader.
func (j joinServer) Deliver(stream pb.Rendezvous_DeliverServer) error {
	c, err := j.candidate.lead(stream.Context())
	if err != nil {
		return err
	}
	return service{c: c, audit: j.audit}.Deliver(stream)
}

// holdsPerLease is the part of a lease for which who asks for the coordinator is held up while nobody leads: thousands that ask again and
// again would hold up the election.
const holdsPerLease = 8

// lead is the coordinator here, or says where else it may be. Where nobody leads for the moment it waits for that.
func (s *Candidate) lead(ctx context.Context) (*Coordinator, error) {
	limit := time.NewTimer(s.cfg.Lease / holdsPerLease)
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
		if leads := log.Leader(); leads.ID != 0 && leads.ID != s.voter.ID {
			return nil, s.nowhere()
		}
		select {
		case <-settled:
		case <-limit.C:
			return nil, s.nowhere()
		case <-log.Ended():
			return nil, s.nowhere()
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
}

// nowhere says that the coordinator is not here, and where it may be.
func (s *Candidate) nowhere() error {
	switch addrs := s.known.Load(); {
	case len(s.cfg.Peers) > 0:
		return s.elsewhere().Status()
	case addrs != nil:
		return (&wire.ElsewhereError{Why: s.idle(), Addrs: *addrs}).Status()
	}
	return status.Error(codes.Unavailable, s.idle())
}

func (s *Candidate) idle() string {
	return "node " + s.cfg.Node + " does not coordinate the job, and may not: it knows of no majority that wants it"
}

// quorumServer is what voters say to each other.
type quorumServer struct {
	pb.UnimplementedQuorumServer
	candidate *Candidate
}

// Step takes a message when all its chunks are there.
func (q quorumServer) Step(stream pb.Quorum_StepServer) error {
	var from quorum.Voter
	defer q.candidate.intake.leave(stream)
	for {
		p, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return stream.SendAndClose(&pb.Greeting{})
		}
		if err != nil {
			return err
		}
		if p.GetFrom() != nil {
			from = wire.ToVoter(p.GetFrom())
		}
		message, err := q.candidate.intake.add(stream, p)
		if err != nil {
			return err
		}
		if log := q.candidate.logged(); log != nil && message != nil {
			log.Step(from, message)
		}
	}
}

func (q quorumServer) Greet(context.Context, *pb.Greeting) (*pb.Greeting, error) {
	return q.candidate.greeting(), nil
}

// greeting says who this is.
func (s *Candidate) greeting() *pb.Greeting {
	log := s.logged()
	return &pb.Greeting{Voter: wire.FromVoter(s.voter), Begun: log != nil && log.Begun(), Facts: s.cfg.Facts}
}

// way is a connection to another voter, which is made when it is used.
func (s *Candidate) way(addr string) (*grpc.ClientConn, error) {
	creds := insecure.NewCredentials()
	if s.cfg.Client != nil {
		creds = credentials.NewTLS(s.cfg.Client)
	}
	return grpc.NewClient("passthrough:///"+addr,
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return s.cfg.Dial(ctx, addr) }),
		grpc.WithTransportCredentials(creds),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: s.cfg.Lease / 100, Multiplier: 1.6, Jitter: 0.2, MaxDelay: s.cfg.Lease / 15},
			MinConnectTimeout: s.cfg.Lease / 4,
		}),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithIdleTimeout(0),
	)
}

// greet makes sure that a voter can be reached, and is who it says.
func (s *Candidate) greet(v quorum.Voter) error {
	who, err := s.ask(v.Addr, s.cfg.Lease/4)
	if err == nil && who.ID != v.ID {
		err = fmt.Errorf("somebody else answers at %s", v.Addr)
	}
	return err
}

// ask finds out who can be reached at HOST:PORT, for as long as the limit.
func (s *Candidate) ask(addr string, limit time.Duration) (who quorum.Voter, err error) {
	g, err := s.meet(addr, limit)
	return wire.ToVoter(g.GetVoter()), err
}

// meet hears who is at HOST:PORT, and tells who this is.
func (s *Candidate) meet(addr string, limit time.Duration) (g *pb.Greeting, err error) {
	err = s.visit(addr, limit, func(ctx context.Context, q pb.QuorumClient) error {
		if g, err = q.Greet(ctx, s.greeting(), grpc.WaitForReady(true)); err != nil {
			return fmt.Errorf("%s does not answer: %s", addr, status.Convert(err).Message())
		}
		return nil
	})
	return g, err
}

// visit speaks with who is at HOST:PORT on a connection of its own.
func (s *Candidate) visit(addr string, limit time.Duration, speak func(context.Context, pb.QuorumClient) error) error {
	conn, err := s.way(addr)
	if err != nil {
		return fmt.Errorf("cannot talk to %s: %w", addr, err)
	}
	defer func() { _ = conn.Close() }() // closed once only
	ctx, cancel := context.WithTimeout(s.closed, limit)
	defer cancel()
	return speak(ctx, pb.NewQuorumClient(conn))
}
