package rendezvous

import (
	"sync"

	"github.com/golaunch/golaunch/internal/wire"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/rendezvous/internal/server"
)

// agentStream is one stream to an agent. Its goroutine sends the queued orders when woken, and ends
// it with the error in cut; over is closed at the end.
type agentStream struct {
	wake chan struct{}
	cut  chan error
	over chan struct{}
	conn *server.Conn
	// room is sent to when received messages were taken.
	room chan struct{}

	mu    sync.Mutex
	queue []*pb.ToAgent
	// received are messages that the coordinator has not taken yet, and size is their size in bytes.
	received []*pb.FromAgent
	size     int
	// beat is the newest heartbeat that the coordinator has not answered yet; nil if there is none.
	beat *pb.Heartbeat
}

// maxReceived and maxReceivedSize, in bytes before the last message, bound the messages of an agent
// that wait for the coordinator. Behind more, heartbeats wait too.
const (
	maxReceived     = 256
	maxReceivedSize = 256 << 10
)

func newAgentStream(conn *server.Conn) *agentStream {
	return &agentStream{wake: make(chan struct{}, 1), cut: make(chan error, 1), over: make(chan struct{}), room: make(chan struct{}, 1), conn: conn}
}

// push is false when the queue is full.
func (s *agentStream) push(msg *pb.ToAgent) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) >= maxOrders {
		return false
	}
	s.queue = append(s.queue, msg)
	select {
	case s.wake <- struct{}{}:
	default: // awake already
	}
	return true
}

func (s *agentStream) drain() []*pb.ToAgent {
	s.mu.Lock()
	defer s.mu.Unlock()
	queue := s.queue
	s.queue = nil
	return queue
}

// receive adds a message. first says that no other waits, and full that no other may be received.
func (s *agentStream) receive(msg *pb.FromAgent) (first, full bool) {
	size := wire.SizeBound(msg)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.received, s.size = append(s.received, msg), s.size+size
	return len(s.received) == 1, len(s.received) >= maxReceived || s.size >= maxReceivedSize
}

// receiveHeartbeat replaces the heartbeat that waits. first says that none did.
func (s *agentStream) receiveHeartbeat(b *pb.Heartbeat) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first, s.beat = s.beat == nil, b
	return first
}

// takeHeartbeat removes and returns the heartbeat that waits.
func (s *agentStream) takeHeartbeat() *pb.Heartbeat {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.beat
	s.beat = nil
	return b
}

// take removes and returns the received messages.
func (s *agentStream) take() []*pb.FromAgent {
	s.mu.Lock()
	received := s.received
	s.received, s.size = nil, 0
	s.mu.Unlock()
	select {
	case s.room <- struct{}{}:
	default: // it was told already
	}
	return received
}
