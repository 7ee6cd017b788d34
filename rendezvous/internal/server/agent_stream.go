package server

import (
	"sync"

	"github.com/golaunch/golaunch/internal/wire/plainpb"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
)

// AgentStream is one stream to an agent. Its goroutine sends the queued orders after Wake, and ends
// the stream with the error from Cut. Over is closed when the stream has ended.
type AgentStream struct {
	Wake chan struct{}
	Cut  chan error
	Over chan struct{}
	Conn *Conn
	// Room receives a value when the coordinator has taken received messages.
	Room chan struct{}

	mu    sync.Mutex
	queue []*pb.ToAgent
	// received are messages that the coordinator has not taken yet. size is their size in bytes.
	received []*pb.FromAgent
	size     int
	// beat is the newest heartbeat that the coordinator has not answered yet; nil if there is none.
	beat *pb.Heartbeat
}

const (
	// MaxOrders bounds the messages queued for one agent. A node whose ranks restart one by one
	// gets a message for each rank.
	MaxOrders = 4096
	// maxReceived bounds how many messages of an agent wait for the coordinator. maxReceivedSize
	// bounds their size in bytes, except for the last message. At either limit the agent's stream
	// is not read, so that heartbeats wait too.
	maxReceived     = 256
	maxReceivedSize = 256 << 10
)

// NewAgentStream returns the stream of a connection.
func NewAgentStream(conn *Conn) *AgentStream {
	return &AgentStream{Wake: make(chan struct{}, 1), Cut: make(chan error, 1), Over: make(chan struct{}), Room: make(chan struct{}, 1), Conn: conn}
}

// Push queues an order. It returns false when the queue is full.
func (s *AgentStream) Push(msg *pb.ToAgent) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) >= MaxOrders {
		return false
	}
	s.queue = append(s.queue, msg)
	select {
	case s.Wake <- struct{}{}:
	default: // awake already
	}
	return true
}

// Drain removes and returns the queued orders.
func (s *AgentStream) Drain() []*pb.ToAgent {
	s.mu.Lock()
	defer s.mu.Unlock()
	queue := s.queue
	s.queue = nil
	return queue
}

// Receive adds a message. first says that no other message waits. full says that no further message
// may be received.
func (s *AgentStream) Receive(msg *pb.FromAgent) (first, full bool) {
	size := plainpb.SizeBound(msg)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.received, s.size = append(s.received, msg), s.size+size
	return len(s.received) == 1, len(s.received) >= maxReceived || s.size >= maxReceivedSize
}

// ReceiveHeartbeat replaces the waiting heartbeat. first says that no heartbeat was waiting.
func (s *AgentStream) ReceiveHeartbeat(b *pb.Heartbeat) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first, s.beat = s.beat == nil, b
	return first
}

// TakeHeartbeat removes and returns the waiting heartbeat.
func (s *AgentStream) TakeHeartbeat() *pb.Heartbeat {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.beat
	s.beat = nil
	return b
}

// Take removes and returns the received messages.
func (s *AgentStream) Take() []*pb.FromAgent {
	s.mu.Lock()
	received := s.received
	s.received, s.size = nil, 0
	s.mu.Unlock()
	select {
	case s.Room <- struct{}{}:
	default: // the goroutine has a signal already
	}
	return received
}
