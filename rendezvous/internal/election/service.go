package election

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

// Service answers other voters. It does not handle invitations.
type Service struct {
	pb.UnimplementedQuorumServer
	Participant *Participant
}

// Step passes messages to Raft once all their chunks are there.
func (s Service) Step(stream pb.Quorum_StepServer) error {
	var from quorum.Voter
	defer s.Participant.chunks.forget(stream)
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return stream.SendAndClose(&pb.Greeting{})
		}
		if err != nil {
			return err
		}
		if chunk.GetFrom() != nil {
			from = wire.ToVoter(chunk.GetFrom())
		}
		message, err := s.Participant.chunks.add(stream, chunk)
		if err != nil {
			return err
		}
		if log := s.Participant.quorumLog(); log != nil && message != nil {
			log.Step(from, message)
		}
	}
}

// Greet returns the identity of this participant.
func (s Service) Greet(context.Context, *pb.Greeting) (*pb.Greeting, error) {
	return s.Participant.greeting(), nil
}

func (p *Participant) greeting() *pb.Greeting {
	log := p.quorumLog()
	return &pb.Greeting{Voter: wire.FromVoter(p.self), Begun: log != nil && log.Begun(), Facts: p.cfg.Facts}
}

// connect returns a connection to another voter. The connection is made at first use.
func (p *Participant) connect(addr string) (*grpc.ClientConn, error) {
	creds := insecure.NewCredentials()
	if p.cfg.Client != nil {
		creds = credentials.NewTLS(server.VoterTLS(p.cfg.Client))
	}
	return grpc.NewClient("passthrough:///"+addr,
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return p.cfg.Dial(ctx, addr) }),
		grpc.WithTransportCredentials(creds),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: p.cfg.Lease / 100, Multiplier: 1.6, Jitter: 0.2, MaxDelay: p.cfg.Lease / 15},
			MinConnectTimeout: p.cfg.Lease / 4,
		}),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithIdleTimeout(0),
	)
}

// Verify checks that a voter can be reached and is the expected one.
func (p *Participant) Verify(v quorum.Voter) error {
	found, err := p.Identify(v.Addr, p.cfg.Lease/4)
	if err == nil && found.ID != v.ID {
		err = fmt.Errorf("another voter answers at %s", v.Addr)
	}
	return err
}

// Identify asks which voter listens at HOST:PORT.
func (p *Participant) Identify(addr string, limit time.Duration) (quorum.Voter, error) {
	g, err := p.Greet(addr, limit)
	return wire.ToVoter(g.GetVoter()), err
}

// Greet exchanges greetings with the voter at HOST:PORT.
func (p *Participant) Greet(addr string, limit time.Duration) (g *pb.Greeting, err error) {
	err = p.Call(addr, limit, func(ctx context.Context, q pb.QuorumClient) error {
		if g, err = q.Greet(ctx, p.greeting(), grpc.WaitForReady(true)); err != nil {
			return fmt.Errorf("%s does not answer: %s", addr, status.Convert(err).Message())
		}
		return nil
	})
	return g, err
}

// Call makes calls to the voter at HOST:PORT on a separate connection.
func (p *Participant) Call(addr string, limit time.Duration, f func(context.Context, pb.QuorumClient) error) error {
	conn, err := p.connect(addr)
	if err != nil {
		return fmt.Errorf("cannot talk to %s: %w", addr, err)
	}
	defer func() { _ = conn.Close() }() // it fails only if it was closed before
	ctx, cancel := context.WithTimeout(p.closed, limit)
	defer cancel()
	return f(ctx, pb.NewQuorumClient(conn))
}
