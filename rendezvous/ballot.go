package rendezvous

import (
	"context"
	"fmt"
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

// office is where agents ask for the coordinator.
type office struct {
	pb.UnimplementedRendezvousServer
	seat  *Seat
	audit *audit
}

// Join serves an agent if the coordinator is here. One that is new to the job hears where else it may be.
func (o office) Join(stream pb.Rendezvous_JoinServer) error {
	if c := o.seat.head.Load(); c != nil {
		return service{c: c, audit: o.audit}.Join(stream)
	}
	why := "node " + o.seat.cfg.Node + " does not coordinate the job, and may not: it knows of no majority that wants it"
	if addrs := o.seat.known.Load(); addrs != nil {
		return (&ElsewhereError{why, *addrs}).status()
	}
	return status.Error(codes.Unavailable, why)
}

// ballots is what voters say to each other.
type ballots struct {
	pb.UnimplementedQuorumServer
	seat *Seat
}

func (b ballots) Step(_ context.Context, p *pb.Parcel) (*pb.Greeting, error) {
	b.seat.mu.Lock()
	log := b.seat.log
	b.seat.mu.Unlock()
	if log != nil {
		for _, m := range p.GetMessages() {
			log.Step(toVoter(p.GetFrom()), m)
		}
	}
	return &pb.Greeting{}, nil
}

func (b ballots) Greet(context.Context, *pb.Greeting) (*pb.Greeting, error) {
	return &pb.Greeting{Voter: fromVoter(b.seat.voter)}, nil
}

func fromVoter(v quorum.Voter) *pb.Voter { return &pb.Voter{Id: v.ID, Name: v.Name, Addr: v.Addr} }

func toVoter(v *pb.Voter) quorum.Voter {
	return quorum.Voter{ID: v.GetId(), Name: v.GetName(), Addr: v.GetAddr()}
}

// peers are the ways to other voters.
type peers struct {
	seat *Seat
	mu   sync.Mutex
	to   map[string]chan []byte
}

// Bounds on what waits for a voter, in messages, and on what is sent to it at once, in bytes. What it does not take is lost, and Raft
// says it again.
const (
	maxWaiting = 64
	maxParcel  = 1 << 20
)

// send never waits.
func (p *peers) send(to quorum.Voter, message []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	queue := p.to[to.Addr]
	if queue == nil {
		queue = make(chan []byte, maxWaiting)
		p.to[to.Addr] = queue
		p.seat.busy.Go(func() { p.seat.carry(to.Addr, queue) })
	}
	select {
	case queue <- message:
	default:
	}
}

// carry takes messages to a voter until the seat is closed. A connection on which no answer comes for a quarter of a lease is given up:
// after a cut it may be as good as dead for longer than that. A handshake takes a machine with much to do its time, so that to give up
// earlier could be to give up for ever.
func (s *Seat) carry(addr string, queue <-chan []byte) {
	var conn *grpc.ClientConn
	for {
		select {
		case m := <-queue:
			var err error
			if conn == nil {
				conn, err = s.way(addr)
			}
			if err == nil {
				err = s.deliver(conn, parcel(m, queue))
			}
			if err != nil && conn != nil {
				_ = conn.Close() // closed once only
				conn = nil
			}
		case <-s.closed.Done():
			if conn != nil {
				_ = conn.Close() // as above
			}
			return
		}
	}
}

// parcel is a message with those that wait behind it.
func parcel(m []byte, queue <-chan []byte) (all [][]byte) {
	size := len(m)
	for all = append(all, m); size < maxParcel; all = append(all, m) {
		select {
		case m = <-queue:
			size += len(m)
		default:
			return all
		}
	}
	return all
}

func (s *Seat) deliver(conn *grpc.ClientConn, messages [][]byte) error {
	ctx, cancel := context.WithTimeout(s.closed, s.cfg.Lease/4)
	defer cancel()
	_, err := pb.NewQuorumClient(conn).Step(ctx, &pb.Parcel{From: fromVoter(s.voter), Messages: messages}, grpc.WaitForReady(true))
	return err
}

// way is a connection to another voter, which is made when it is used.
func (s *Seat) way(addr string) (*grpc.ClientConn, error) {
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
func (s *Seat) greet(v quorum.Voter) error {
	who, err := s.ask(v.Addr, s.cfg.Lease/4)
	if err == nil && who.ID != v.ID {
		err = fmt.Errorf("somebody else answers at %s", v.Addr)
	}
	return err
}

// ask finds out who can be reached at HOST:PORT, for as long as the limit.
func (s *Seat) ask(addr string, limit time.Duration) (who quorum.Voter, err error) {
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
func (s *Seat) visit(addr string, limit time.Duration, speak func(context.Context, pb.QuorumClient) error) error {
	conn, err := s.way(addr)
	if err != nil {
		return fmt.Errorf("cannot talk to %s: %w", addr, err)
	}
	defer func() { _ = conn.Close() }() // closed once only
	ctx, cancel := context.WithTimeout(s.closed, limit)
	defer cancel()
	return speak(ctx, pb.NewQuorumClient(conn))
}
