package rendezvous

import (
	"context"
	"sync"

	"github.com/golaunch/golaunch/rendezvous/internal/server"
)

// eventLoop is how other goroutines reach the goroutine of Run. That goroutine owns the
// coordinator's state.
type eventLoop struct {
	// inbox has functions for the goroutine of Run. done is closed when that goroutine ends.
	inbox chan func()
	done  chan struct{}
	// ready lists each stream with waiting messages once. heartbeats lists the streams with a
	// waiting heartbeat. With separate lists, heartbeats do not wait behind messages.
	ready, heartbeats readyStreams
}

func newEventLoop() eventLoop {
	return eventLoop{
		inbox: make(chan func(), 256), done: make(chan struct{}),
		ready: readyStreams{wake: make(chan struct{}, 1)}, heartbeats: readyStreams{wake: make(chan struct{}, 1)},
	}
}

// maxBatch bounds how many functions, or streams, the goroutine of Run handles before it flushes
// the log. The log sends the entries of a batch to the voters together.
const maxBatch = 256

// drainInbox runs all waiting functions, maxBatch at most, so that one round of votes is enough for
// all of them.
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

// post sends f to the goroutine of Run. It returns false when that goroutine has ended.
func (l *eventLoop) post(f func()) bool {
	select {
	case l.inbox <- f:
		return true
	case <-l.done:
		return false
	}
}

// ask makes the goroutine of Run call f, and returns f's answer.
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

// await waits for an answer until ctx or the coordinator ends. If an answer arrived before that
// end, await returns it: the answer may be the reason why the coordinator has ended.
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

// readyStreams are the streams that wait for the goroutine of Run, in order. A value in wake wakes
// that goroutine.
type readyStreams struct {
	wake chan struct{}
	mu   sync.Mutex
	all  []readyStream
}

type readyStream struct {
	member *member
	stream *server.AgentStream
}

func (r *readyStreams) add(s readyStream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, s)
	r.signal()
}

// next removes and returns the first batch. If streams remain, it wakes the goroutine of Run again.
func (r *readyStreams) next() []readyStream {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := min(len(r.all), maxBatch)
	next := r.all[:n:n]
	if r.all = r.all[n:]; len(r.all) > 0 {
		r.signal()
	}
	return next
}

func (r *readyStreams) signal() {
	select {
	case r.wake <- struct{}{}:
	default: // the goroutine has a signal already
	}
}
