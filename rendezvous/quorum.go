package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/golaunch/golaunch/internal/quorum"
	pb "github.com/golaunch/golaunch/rendezvous/rendezvouspb"
)

// joinServer is where agents ask for the coordinator.
type joinServer struct {
	pb.UnimplementedRendezvousServer
	candidate *Candidate
	audit     *audit
}

// Join serves an agent if the coordinator is here. One that is new to the job hears where else it may be.
func (o joinServer) Join(stream pb.Rendezvous_JoinServer) error {
	if c := o.candidate.head.Load(); c != nil {
		return service{c: c, audit: o.audit}.Join(stream)
	}
	why := "node " + o.candidate.cfg.Node + " does not coordinate the job, and may not: it knows of no majority that wants it"
	if addrs := o.candidate.known.Load(); addrs != nil {
		return (&ElsewhereError{why, *addrs}).status()
	}
	return status.Error(codes.Unavailable, why)
}

// quorumServer is what voters say to each other.
type quorumServer struct {
	pb.UnimplementedQuorumServer
	candidate *Candidate
}

// Step takes a message when all its chunks are there.
func (b quorumServer) Step(stream pb.Quorum_StepServer) error {
	var from quorum.Voter
	defer b.candidate.intake.leave(stream)
	for {
		p, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return stream.SendAndClose(&pb.Greeting{})
		}
		if err != nil {
			return err
		}
		if p.GetFrom() != nil {
			from = toVoter(p.GetFrom())
		}
		message, err := b.candidate.intake.add(stream, p)
		if err != nil {
			return err
		}
		if log := b.candidate.logged(); log != nil && message != nil {
			log.Step(from, message)
		}
	}
}

func (b quorumServer) Greet(context.Context, *pb.Greeting) (*pb.Greeting, error) {
	return &pb.Greeting{Voter: fromVoter(b.candidate.voter)}, nil
}

func fromVoter(v quorum.Voter) *pb.Voter { return &pb.Voter{Id: v.ID, Name: v.Name, Addr: v.Addr} }

func toVoter(v *pb.Voter) quorum.Voter {
	return quorum.Voter{ID: v.GetId(), Name: v.GetName(), Addr: v.GetAddr()}
}

// intake is where chunks become a message. A candidate has one: only a leader sends what is longer than a chunk, one message at a time, so
// that the newer of two is the one that counts, and has the memory of the other.
type intake struct {
	mu   sync.Mutex
	call pb.Quorum_StepServer
	data []byte
}

// add is the message that a chunk completes, or nil.
func (i *intake) add(call pb.Quorum_StepServer, p *pb.Chunk) ([]byte, error) {
	switch size := p.GetSize(); {
	case size > quorum.MaxMessage:
		return nil, status.Errorf(codes.ResourceExhausted, "a message of %d bytes is over the limit of %d", size, quorum.MaxMessage)
	case size > 0 && size == uint64(len(p.GetData())):
		return p.GetData(), nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if p.GetSize() > 0 {
		i.call, i.data = call, make([]byte, 0, p.GetSize())
	}
	switch {
	case i.call != call:
		return nil, status.Error(codes.Aborted, "a newer message has come in between")
	case len(i.data)+len(p.GetData()) > cap(i.data):
		return nil, status.Error(codes.InvalidArgument, "a message is longer than it says")
	}
	i.data = append(i.data, p.GetData()...)
	if len(i.data) < cap(i.data) {
		return nil, nil
	}
	message := i.data
	i.call, i.data = nil, nil
	return message, nil
}

// leave forgets what a call that ends has not brought to its end.
func (i *intake) leave(call pb.Quorum_StepServer) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.call == call {
		i.call, i.data = nil, nil
	}
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
	err = s.visit(addr, limit, func(ctx context.Context, q pb.QuorumClient) error {
		g, err := q.Greet(ctx, &pb.Greeting{Voter: fromVoter(s.voter)}, grpc.WaitForReady(true))
		if err != nil {
			return fmt.Errorf("%s does not answer: %s", addr, status.Convert(err).Message())
		}
		who = toVoter(g.GetVoter())
		return nil
	})
	return who, err
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
