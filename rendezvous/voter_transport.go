package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/quorum"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
)

// peers are the ways to other voters.
type peers struct {
	candidate *Candidate
	mu        sync.Mutex
	lanes     map[way]*lane
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
	queue chan outgoing
	size  int
}

type outgoing struct {
	quorum.Message
	size int
}

// Bounds on what waits for a voter in a lane or is on its way, in messages, and in bytes before the last one: what is more is lost, and Raft
// says it again. maxChunk is how much of it is sent at a time, in bytes.
const (
	maxWaiting = 64
	maxLane    = 8 << 20
	maxChunk   = 128 << 10
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
	if l == nil || l.addr != m.To.Addr { // it may have moved
		l = &lane{way: to, addr: m.To.Addr, queue: make(chan outgoing, maxWaiting)}
		p.lanes[to] = l
		p.candidate.busy.Go(func() { p.candidate.carry(l) })
	}
	if l.size > maxLane {
		return false
	}
	size := m.Size()
	select {
	case l.queue <- outgoing{m, size}:
		l.size += size
		return true
	default:
		return false
	}
}

// done makes room for others.
func (p *peers) done(l *lane, batch []outgoing, err error) {
	for _, m := range batch {
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
	if p.lanes[l.way] == l {
		delete(p.lanes, l.way)
	}
	return true
}

// carry takes messages to a voter until there have been none for as long as its server bears. A connection on which a call has failed is
// given up: after a cut it may be as good as dead for longer than a lease.
func (s *Candidate) carry(l *lane) {
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
			batch := l.collect(m)
			var err error
			if conn == nil {
				conn, err = s.way(l.addr)
			}
			if err == nil {
				err = s.deliver(conn, batch)
			}
			if err != nil {
				drop()
			}
			s.peers.done(l, batch, err)
		case <-time.After(2 * wire.PingAfter):
			if s.peers.leave(l) {
				return
			}
		case <-s.closed.Done():
			return
		}
	}
}

// collect is a message with those that wait behind it, unless that makes a long call.
func (l *lane) collect(m outgoing) (all []outgoing) {
	size := m.size
	for all = append(all, m); size < maxChunk; all = append(all, m) {
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
func (s *Candidate) deliver(conn *grpc.ClientConn, batch []outgoing) error {
	limit := s.cfg.Lease / 4
	ctx, cancel := context.WithCancel(s.closed)
	defer cancel()
	late := time.AfterFunc(limit, cancel)
	defer late.Stop()
	stream, err := pb.NewQuorumClient(conn).Step(ctx, grpc.WaitForReady(true))
	if err != nil {
		return fmt.Errorf("cannot reach another voter: %w", err)
	}
	chunks := 0
	for _, m := range batch {
		n, err := s.sendChunks(stream, m, func() { late.Reset(limit) })
		if chunks += n; err != nil {
			break // the answer says why
		}
	}
	late.Reset(limit * time.Duration(max(1, min(chunks, wire.Window/maxChunk)))) // so many may still be on their way
	if _, err := stream.CloseAndRecv(); err != nil {
		return fmt.Errorf("cannot carry messages to another voter: %w", err)
	}
	return nil
}

// sendChunks sends a message in chunks, and says how many there were.
func (s *Candidate) sendChunks(stream pb.Quorum_StepClient, m outgoing, sent func()) (chunks int, err error) {
	data := m.Bytes()
	p := &pb.Chunk{From: wire.FromVoter(s.voter), Size: uint64(len(data))}
	for p.Data = range slices.Chunk(data, maxChunk) {
		if err := stream.Send(p); err != nil {
			return chunks, err
		}
		sent()
		p = &pb.Chunk{}
		chunks++
	}
	return chunks, nil
}
