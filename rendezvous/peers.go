package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/golaunch/golaunch/internal/quorum"
	pb "github.com/golaunch/golaunch/rendezvous/rendezvouspb"
)

// peers are the ways to other voters.
type peers struct {
	seat  *Seat
	mu    sync.Mutex
	lanes map[way]*lane
}

// way is where messages go. Those that may be long have a connection of their own, so that heartbeats need not wait for them.
type way struct {
	voter uint64
	bulk  bool
}

// lane has what waits for a voter, or is on its way to it, in its order.
type lane struct {
	way
	addr  string
	queue chan letter
	size  int
}

type letter struct {
	quorum.Message
	size int
}

// Bounds on what waits for a voter in a lane or is on its way, in messages, and in bytes before the last one: what is more is lost, and Raft
// says it again. maxParcel is how much of it is sent at a time, in bytes.
const (
	maxWaiting = 64
	maxLane    = 8 << 20
	maxParcel  = 128 << 10
)

var errBusy = errors.New("too much waits for this voter")

// send never waits.
func (p *peers) send(m quorum.Message) {
	if !p.queue(m) {
		m.Done(errBusy)
	}
}

func (p *peers) queue(m quorum.Message) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	to := way{m.To.ID, m.Bulk()}
	l := p.lanes[to]
	if l == nil {
		l = &lane{way: to, addr: m.To.Addr, queue: make(chan letter, maxWaiting)}
		p.lanes[to] = l
		p.seat.busy.Go(func() { p.seat.carry(l) })
	}
	if l.size > maxLane {
		return false
	}
	size := m.Size()
	select {
	case l.queue <- letter{m, size}:
		l.size += size
		return true
	default:
		return false
	}
}

// done makes room for others.
func (p *peers) done(l *lane, letters []letter, err error) {
	for _, m := range letters {
		m.Done(err)
		p.mu.Lock()
		l.size -= m.size
		p.mu.Unlock()
	}
}

// leave ends a lane on which nothing is to be carried.
func (p *peers) leave(l *lane) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.size > 0 {
		return false
	}
	delete(p.lanes, l.way)
	return true
}

// carry takes messages to a voter until there have been none for as long as its server bears. A connection on which a call has failed is
// given up: after a cut it may be as good as dead for longer than a lease.
func (s *Seat) carry(l *lane) {
	var conn *grpc.ClientConn
	drop := func() {
		if conn != nil {
			_ = conn.Close() // closed once only
			conn = nil
		}
	}
	defer drop()
	for {
		select {
		case m := <-l.queue:
			letters := l.collect(m)
			var err error
			if conn == nil {
				conn, err = s.way(l.addr)
			}
			if err == nil {
				err = s.deliver(conn, letters)
			}
			if err != nil {
				drop()
			}
			s.peers.done(l, letters, err)
		case <-time.After(2 * pingAfter):
			if s.peers.leave(l) {
				return
			}
		case <-s.closed.Done():
			return
		}
	}
}

// collect is a message with those that wait behind it, unless that makes a long call.
func (l *lane) collect(m letter) (all []letter) {
	size := m.size
	for all = append(all, m); size < maxParcel; all = append(all, m) {
		select {
		case m = <-l.queue:
			size += m.size
		default:
			return all
		}
	}
	return all
}

// deliver carries messages in one call, which is given up when it does not get on for a quarter of a lease. A handshake takes a machine with
// much to do its time, so that to give up earlier could be to give up for ever.
func (s *Seat) deliver(conn *grpc.ClientConn, letters []letter) error {
	limit := s.cfg.Lease / 4
	ctx, cancel := context.WithCancel(s.closed)
	defer cancel()
	late := time.AfterFunc(limit, cancel)
	defer late.Stop()
	stream, err := pb.NewQuorumClient(conn).Step(ctx, grpc.WaitForReady(true))
	if err != nil {
		return fmt.Errorf("cannot reach another voter: %w", err)
	}
	parcels := 0
	for _, m := range letters {
		n, err := s.mail(stream, m, func() { late.Reset(limit) })
		if parcels += n; err != nil {
			break // the answer says why
		}
	}
	late.Reset(limit * time.Duration(max(1, min(parcels, window/maxParcel)))) // so many may still be on their way
	if _, err := stream.CloseAndRecv(); err != nil {
		return fmt.Errorf("cannot carry messages to another voter: %w", err)
	}
	return nil
}

// mail sends a message in parcels, and says how many there were.
func (s *Seat) mail(stream pb.Quorum_StepClient, m letter, sent func()) (parcels int, err error) {
	data := m.Bytes()
	p := &pb.Parcel{From: fromVoter(s.voter), Size: uint64(len(data))}
	for p.Data = range slices.Chunk(data, maxParcel) {
		if err := stream.Send(p); err != nil {
			return parcels, err
		}
		sent()
		p = &pb.Parcel{}
		parcels++
	}
	return parcels, nil
}
