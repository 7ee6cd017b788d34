package election

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

// transport queues Raft messages for other voters. Long messages have a separate queue and
// connection, so that heartbeats do not wait for them.
type transport struct {
	p      *Participant
	mu     sync.Mutex
	queues map[route]*sendQueue
}

type route struct {
	voter uint64
	bulk  bool
}

// sendQueue holds messages that wait for a voter or are on their way, in order.
type sendQueue struct {
	route
	addr     string
	messages chan outgoing
	// size is the size of all messages, in bytes.
	size int
}

type outgoing struct {
	quorum.Message
	size int
}

// maxQueued bounds the messages in a queue. maxQueuedBytes bounds their size, except for the last
// message. Messages beyond the bounds are dropped, and Raft repeats them. chunkSize is how many
// bytes of a message are sent at a time.
const (
	maxQueued      = 64
	maxQueuedBytes = 8 << 20
	chunkSize      = 128 << 10
)

// MaxBacklog bounds the bytes that wait for a voter in both of its queues, except for the last
// message of each.
const MaxBacklog = 2 * maxQueuedBytes

var errQueueFull = errors.New("too many bytes wait for this voter")

// send never blocks.
func (t *transport) send(m quorum.Message) {
	if !t.enqueue(m) {
		m.Done(errQueueFull)
	}
}

func (t *transport) enqueue(m quorum.Message) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	to := route{m.To.ID, m.Bulk()}
	q := t.queues[to]
	if q == nil || q.addr != m.To.Addr { // the voter may have moved
		q = &sendQueue{route: to, addr: m.To.Addr, messages: make(chan outgoing, maxQueued)}
		t.queues[to] = q
		t.p.busy.Go(func() { t.drain(q) })
	}
	if q.size > maxQueuedBytes {
		return false
	}
	size := m.Size()
	select {
	case q.messages <- outgoing{m, size}:
		q.size += size
		return true
	default:
		return false
	}
}

// sent reports the result of messages to Raft, and makes room for others.
func (t *transport) sent(q *sendQueue, batch []outgoing, err error) {
	for _, m := range batch {
		m.Done(err)
		t.mu.Lock()
		q.size -= m.size
		t.mu.Unlock()
	}
}

// removeIdle removes a queue if it has no new messages, and reports whether it did.
func (t *transport) removeIdle(q *sendQueue) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if q.size > 0 {
		return false
	}
	if t.queues[q.route] == q {
		delete(t.queues, q.route)
	}
	return true
}

// Backlog returns how many bytes wait for each voter, by its ID.
func (p *Participant) Backlog() map[uint64]int {
	p.transport.mu.Lock()
	defer p.transport.mu.Unlock()
	sizes := map[uint64]int{}
	for to, q := range p.transport.queues {
		sizes[to.voter] += q.size
	}
	return sizes
}

// drain sends the messages of a queue. It ends after a time without messages, which is as long as a
// server keeps an idle connection. After a failed call it closes the connection, because a
// partition may leave the connection dead for longer than a lease.
func (t *transport) drain(q *sendQueue) {
	var conn *grpc.ClientConn
	disconnect := func() {
		if conn != nil {
			_ = conn.Close() // it fails only if it was closed before
			conn = nil
		}
	}
	defer disconnect()
	for {
		select {
		case m := <-q.messages:
			batch := q.batch(m)
			var err error
			if conn == nil {
				conn, err = t.p.connect(q.addr)
			}
			if err == nil {
				err = t.sendBatch(conn, batch)
			}
			if err != nil {
				disconnect()
			}
			t.sent(q, batch, err)
		case <-time.After(2 * wire.PingAfter):
			if t.removeIdle(q) {
				return
			}
		case <-t.p.closed.Done():
			return
		}
	}
}

// batch returns a message with messages queued behind it, up to one chunk.
func (q *sendQueue) batch(m outgoing) (all []outgoing) {
	size := m.size
	for all = append(all, m); size < chunkSize; all = append(all, m) {
		select {
		case m = <-q.messages:
			size += m.size
		default:
			return all
		}
	}
	return all
}

// sendBatch sends messages in one call. It gives up when there is no progress for a quarter of a
// lease. A shorter limit could always fail on a busy machine with slow handshakes.
func (t *transport) sendBatch(conn *grpc.ClientConn, batch []outgoing) error {
	limit := t.p.cfg.Lease / 4
	ctx, cancel := context.WithCancel(t.p.closed)
	defer cancel()
	late := time.AfterFunc(limit, cancel)
	defer late.Stop()
	stream, err := pb.NewQuorumClient(conn).Step(ctx, grpc.WaitForReady(true))
	if err != nil {
		return fmt.Errorf("cannot reach another voter: %w", err)
	}
	chunks := 0
	for _, m := range batch {
		n, err := t.sendChunks(stream, m, func() { late.Reset(limit) })
		if chunks += n; err != nil {
			break // CloseAndRecv returns the reason
		}
	}
	// As many chunks as the window holds may still be on their way.
	late.Reset(limit * time.Duration(max(1, min(chunks, wire.Window/chunkSize))))
	if _, err := stream.CloseAndRecv(); err != nil {
		return fmt.Errorf("cannot send messages to another voter: %w", err)
	}
	return nil
}

// sendChunks sends a message in chunks and returns the number of chunks.
func (t *transport) sendChunks(stream pb.Quorum_StepClient, m outgoing, progress func()) (chunks int, err error) {
	data := m.Bytes()
	c := &pb.Chunk{From: wire.FromVoter(t.p.self), Size: uint64(len(data))}
	for c.Data = range slices.Chunk(data, chunkSize) {
		if err := stream.Send(c); err != nil {
			return chunks, err
		}
		progress()
		c = &pb.Chunk{}
		chunks++
	}
	return chunks, nil
}
