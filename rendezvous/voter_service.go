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
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/quorum"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/rendezvous/internal/server"
)

// joinServer is where agents ask for the coordinator.
type joinServer struct {
	pb.UnimplementedRendezvousServer
	candidate *Candidate
	refusals  *server.Refusals
}

// Join serves an agent if the coordinator is here, and else tells it where it is.
func (j joinServer) Join(stream pb.Rendezvous_JoinServer) error {
	h, err := receiveHello(stream, j.refusals)
	if err != nil {
		return err
	}
	c, err := j.candidate.lead(stream.Context(), j.candidate.questionOf(h))
	if err != nil {
		return err
	}
	return agentService{c: c, refusals: j.refusals}.serve(stream, h)
}

// Deliver takes output for a reader.
func (j joinServer) Deliver(stream pb.Rendezvous_DeliverServer) error {
	c, err := j.candidate.lead(stream.Context(), j.candidate.question())
	if err != nil {
		return err
	}
	return agentService{c: c, refusals: j.refusals}.Deliver(stream)
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
		creds = credentials.NewTLS(server.VoterTLS(s.cfg.Client))
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
