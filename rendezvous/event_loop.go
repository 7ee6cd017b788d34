package rendezvous

import (
	"context"
	"sync"

	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
)

// eventLoop is how others reach the goroutine of Run, which owns the coordinator's state.
type eventLoop struct {
	// inbox has functions for that goroutine; done is closed when it ends.
	inbox chan func()
	done  chan struct{}
	// ready are the agents whose messages wait. Their heartbeats do not wait behind those.
	ready      *waiting[readyStream]
	heartbeats *waiting[waitingHeartbeat]
}

func newEventLoop() eventLoop {
	return eventLoop{
		inbox: make(chan func(), 256), done: make(chan struct{}),
		ready: newWaiting[readyStream](), heartbeats: newWaiting[waitingHeartbeat](),
	}
}

// maxBatch bounds what is handled at a time. The entries of a batch go to the voters together.
const maxBatch = 256

// drainInbox runs what waits, so that one round of votes is enough for all of it.
func (l *eventLoop) drainInbox() {
	for range maxBatch {
		select {
		case f := <-l.inbox:
			f()
		default:
			return
		}
	}
}

// post gives f to the goroutine of Run. It is false when that has ended.
func (l *eventLoop) post(f func()) bool {
	select {
	case l.inbox <- f:
		return true
	case <-l.done:
		return false
	}
}

// ask has f answer in the goroutine of Run.
func ask[T any](c *Coordinator, f func() (T, error)) (answer T, err error) {
	answered := make(chan struct{})
	c.post(func() {
		answer, err = f()
		close(answered)
	})
	if _, ok := await(context.Background(), c, answered); !ok {
		var none T
		return none, c.endError()
	}
	return answer, err
}

// await waits for an answer until ctx or the coordinator ends. An answer that came before that
// counts: it may be why the coordinator has ended.
func await[T any](ctx context.Context, c *Coordinator, answers <-chan T) (answer T, ok bool) {
	select {
	case answer = <-answers:
		return answer, true
	case <-ctx.Done():
	case <-c.done:
	}
	select {
	case answer = <-answers:
		return answer, true
	default:
		return answer, false
	}
}

// readyStream is a stream whose messages the coordinator has yet to take.
type readyStream struct {
	member *member
	stream *agentStream
}

// waitingHeartbeat is a heartbeat that the coordinator has yet to answer.
type waitingHeartbeat struct {
	readyStream
	*pb.Heartbeat
}

// waiting is what waits for the goroutine of Run, in order. It wakes that.
type waiting[T any] struct {
	wake chan struct{}
	mu   sync.Mutex
	all  []T
}

func newWaiting[T any]() *waiting[T] { return &waiting[T]{wake: make(chan struct{}, 1)} }

func (w *waiting[T]) add(t T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, t)
	w.signal()
}

// next removes the first batch. What remains wakes the coordinator again.
func (w *waiting[T]) next() []T {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := min(len(w.all), maxBatch)
	next := w.all[:n:n]
	if w.all = w.all[n:]; len(w.all) > 0 {
		w.signal()
	}
	return next
}

func (w *waiting[T]) signal() {
	select {
	case w.wake <- struct{}{}:
	default: // it is signalled already
	}
}
