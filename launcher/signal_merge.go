package launcher

import (
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"time"
)

// hearing is a channel of signals that knows which of them are one event.
type hearing struct {
	heard chan os.Signal
	// at is when the newest stop came, in nanoseconds of the Unix time, and came is sent to then.
	at   atomic.Int64
	came chan struct{}
}

// sameEvent is how long after a stop each further one is the same event: a terminal that closes
// sends HUP twice, by the shell and by the kernel, timeout(1) and Slurm send TERM twice, and a
// shell and a scheduler may send different ones.
const sameEvent = time.Second

// listen takes signals, of which those in stops are stops too, until left is closed.
func listen(signals <-chan os.Signal, stops []os.Signal, left <-chan struct{}) *hearing {
	h := &hearing{heard: make(chan os.Signal), came: make(chan struct{}, 1)}
	if signals == nil {
		h.heard = nil
		return h
	}
	go h.listen(signals, stops, left)
	return h
}

// listen hears a signal when it comes, whenever it is acted upon.
func (h *hearing) listen(signals <-chan os.Signal, stops []os.Signal, left <-chan struct{}) {
	var began time.Time
	var queue []os.Signal
	for signals != nil || len(queue) > 0 {
		var out chan os.Signal
		var next os.Signal
		if len(queue) > 0 {
			out, next = h.heard, queue[0]
		}
		select {
		case s, open := <-signals:
			switch sig, ok := s.(syscall.Signal); {
			case !open:
				signals = nil
				continue
			case ok && passedOn(s) && slices.Contains(stops, s):
				s = stopSignal{sig}
			}
			if !passedOn(s) {
				if time.Since(began) < sameEvent {
					continue
				}
				began = time.Now()
				h.note(began)
			}
			if len(queue) < maxQueue {
				queue = append(queue, s)
			}
		case out <- next:
			queue = queue[1:]
		case <-left:
			return
		}
	}
	close(h.heard)
}

// maxQueue bounds the signals that wait to be acted upon: several of one kind are one, as for the
// kernel.
const maxQueue = 64

func (h *hearing) note(at time.Time) {
	h.at.Store(at.UnixNano())
	select {
	case h.came <- struct{}{}:
	default: // the one before has not been looked at yet
	}
}

// reached says whether a stop has come just now, or comes within the time of one event: who has
// signalled this process has then signalled its ranks.
func (h *hearing) reached() bool {
	late := time.NewTimer(sameEvent)
	defer late.Stop()
	for {
		if time.Since(time.Unix(0, h.at.Load())) < 2*sameEvent {
			return true
		}
		select {
		case <-h.came:
		case <-late.C:
			return false
		}
	}
}
