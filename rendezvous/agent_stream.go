package rendezvous

import (
	"sync"

	"google.golang.org/protobuf/proto"

	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/rendezvous/internal/server"
)

// link is one stream to an agent. Its goroutine sends the queued orders when woken, and ends the stream
// with the error in cut; over is closed at the end.
type link struct {
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
}

// maxReceived and maxReceivedSize, in bytes before the last message, bound the messages of an agent that
// wait for the coordinator. Behind more, heartbeats wait too.
const (
	maxReceived     = 256
	maxReceivedSize = 256 << 10
)

func newLink(conn *server.Conn) *link {
	return &link{wake: make(chan struct{}, 1), cut: make(chan error, 1), over: make(chan struct{}), room: make(chan struct{}, 1), conn: conn}
}

// push is false when the queue is full.
func (l *link) push(msg *pb.ToAgent) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) >= maxOrders {
		return false
	}
	l.queue = append(l.queue, msg)
	select {
	case l.wake <- struct{}{}:
	default: // awake already
	}
	return true
}

func (l *link) drain() []*pb.ToAgent {
	l.mu.Lock()
	defer l.mu.Unlock()
	queue := l.queue
	l.queue = nil
	return queue
}

// receive adds a message. first says that no other waits, and full that no other may be received.
func (l *link) receive(msg *pb.FromAgent) (first, full bool) {
	size := proto.Size(msg)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.received, l.size = append(l.received, msg), l.size+size
	return len(l.received) == 1, len(l.received) >= maxReceived || l.size >= maxReceivedSize
}

// take removes and returns the received messages.
func (l *link) take() []*pb.FromAgent {
	l.mu.Lock()
	received := l.received
	l.received, l.size = nil, 0
	l.mu.Unlock()
	select {
	case l.room <- struct{}{}:
	default: // it was told already
	}
	return received
}
