package rankenv

import (
	"context"
	"slices"
	"sync"

	"github.com/golaunch/golaunch/internal/wire/rpcframe"
)

// queue has the calls to a worker that are not answered yet and whose answers are still wanted.
type queue struct {
	mu sync.Mutex
	// waiting are the calls that have not started, in order. more gets a message when a call is
	// added.
	waiting []rpcframe.Frame
	more    chan struct{}
	// running is the current call, and end cancels it. end is nil if the answer is not wanted, or
	// no call runs.
	running uint64
	end     func()
}

func newQueue() *queue { return &queue{more: make(chan struct{}, 1)} }

// put adds a call. It returns false if the queue is full.
func (q *queue) put(f rpcframe.Frame) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == rpcframe.MaxOutstanding {
		return false
	}
	q.waiting = append(q.waiting, f)
	select {
	case q.more <- struct{}{}:
	default:
	}
	return true
}

// cancel drops a call whose answer is no longer wanted.
func (q *queue) cancel(call uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.running == call && q.end != nil {
		q.end()
		q.end = nil
		return
	}
	q.waiting = slices.DeleteFunc(q.waiting, func(f rpcframe.Frame) bool { return f.Call == call })
}

// take waits for the next call, and returns it. The queue calls end to cancel that call.
func (q *queue) take(ctx context.Context, end func()) (f rpcframe.Frame, is bool) {
	for ctx.Err() == nil { // an ending worker answers no calls
		q.mu.Lock()
		if len(q.waiting) > 0 {
			f = q.waiting[0]
			q.waiting = slices.Delete(q.waiting, 0, 1)
			q.running, q.end = f.Call, end
			q.mu.Unlock()
			return f, true
		}
		q.mu.Unlock()
		select {
		case <-q.more:
		case <-ctx.Done():
		}
	}
	return f, false
}

// ended notes that the running call has finished, and reports whether its answer is still wanted.
func (q *queue) ended() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	wanted := q.end != nil
	q.end = nil
	return wanted
}
