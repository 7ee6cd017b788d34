package rendezvous

import (
	"sync"

	"google.golang.org/protobuf/proto"

	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/rendezvous/internal/server"
)

// link is one stream to an agent. Its goroutine sends what is queued when woken, and ends the stream with what is in cut; over is closed at
// the end of it.
type link struct {
	wake chan struct{}
	cut  chan error
	over chan struct{}
	conn *server.Conn
	// room is sent to when messages that came were taken.
	room chan struct{}

	mu    sync.Mutex
	queue []*pb.ToAgent
	// came are messages that the coordinator has not taken yet, and size is that of all of them.
	came []*pb.FromAgent
	size int
}

// maxCame bounds the messages of an agent that wait for the coordinator, and maxCameSize what they are together, in bytes, but for the last of them.
// Behind more, heartbeats wait too.
const (
	maxCame     = 256
	maxCameSize = 256 << 10
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

// add notes a message that came: the first that waits, or one behind which no other may.
func (l *link) add(msg *pb.FromAgent) (first, last bool) {
	size := proto.Size(msg)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.came, l.size = append(l.came, msg), l.size+size
	return len(l.came) == 1, len(l.came) >= maxCame || l.size >= maxCameSize
}

// take returns the messages that came.
func (l *link) take() []*pb.FromAgent {
	l.mu.Lock()
	came := l.came
	l.came, l.size = nil, 0
	l.mu.Unlock()
	select {
	case l.room <- struct{}{}:
	default: // it was told already
	}
	return came
}

// arrivals are the links whose messages the coordinator has to take, each of them once.
type arrivals struct {
	wake chan struct{}
	mu   sync.Mutex
	on   []arrival
}

type arrival struct {
	member *member
	link   *link
}

func (a *arrivals) add(on arrival) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.on = append(a.on, on)
	a.tell()
}

// next are the first of them. What is left wakes the coordinator again.
func (a *arrivals) next() []arrival {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := min(len(a.on), maxBatch)
	next := a.on[:n:n]
	if a.on = a.on[n:]; len(a.on) > 0 {
		a.tell()
	}
	return next
}

func (a *arrivals) tell() {
	select {
	case a.wake <- struct{}{}:
	default: // it will look
	}
}
