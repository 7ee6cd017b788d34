package signals

import (
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"time"
)

// Merged delivers signals on a channel. Of several stop signals that belong to one event, it
// delivers only the first.
type Merged struct {
	// C is nil if there is no source of signals.
	C chan os.Signal
	// newest is the time of the newest stop signal, in Unix nanoseconds. stopped gets a value for
	// each new stop signal.
	newest  atomic.Int64
	stopped chan struct{}
}

// oneEvent is how long after a stop signal a further stop signal counts as the same event. When a
// terminal closes, the shell and the kernel each send SIGHUP. timeout(1) and Slurm send SIGTERM
// twice. A shell and a scheduler may send different signals.
const oneEvent = time.Second

// maxQueue bounds the signals that wait for the receiver. Further signals are lost, as the kernel
// too may merge signals that wait.
const maxQueue = 64

// Merge receives signals until done is closed. SIGUSR1 and SIGUSR2 are stop signals only if they
// are in stops.
func Merge(signals <-chan os.Signal, stops []os.Signal, done <-chan struct{}) *Merged {
	m := &Merged{stopped: make(chan struct{}, 1)}
	if signals != nil {
		m.C = make(chan os.Signal)
		go m.run(signals, stops, done)
	}
	return m
}

// run receives signals, and sends them to C. It receives each signal at once, even if nothing
// receives from C.
func (m *Merged) run(signals <-chan os.Signal, stops []os.Signal, done <-chan struct{}) {
	var began time.Time
	var queue []os.Signal
	for signals != nil || len(queue) > 0 {
		var out chan os.Signal
		var next os.Signal
		if len(queue) > 0 {
			out, next = m.C, queue[0]
		}
		select {
		case s, open := <-signals:
			switch sig, ok := s.(syscall.Signal); {
			case !open:
				signals = nil
				continue
			case ok && ForRanks(s) && slices.Contains(stops, s):
				s = stop{sig}
			}
			if !ForRanks(s) {
				if time.Since(began) < oneEvent {
					continue
				}
				began = time.Now()
				m.note(began)
			}
			if len(queue) < maxQueue {
				queue = append(queue, s)
			}
		case out <- next:
			queue = queue[1:]
		case <-done:
			return
		}
	}
	close(m.C)
}

func (m *Merged) note(at time.Time) {
	m.newest.Store(at.UnixNano())
	select {
	case m.stopped <- struct{}{}:
	default: // JustStopped has not received the previous value yet, and one value is enough
	}
}

// JustStopped reports whether a stop signal arrived a moment ago, or arrives within oneEvent. If
// so, and if Slurm sent that signal, the ranks got it too.
func (m *Merged) JustStopped() bool {
	late := time.NewTimer(oneEvent)
	defer late.Stop()
	for {
		if time.Since(time.Unix(0, m.newest.Load())) < 2*oneEvent {
			return true
		}
		select {
		case <-m.stopped:
		case <-late.C:
			return false
		}
	}
}
