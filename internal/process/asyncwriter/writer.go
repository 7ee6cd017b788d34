// Package asyncwriter runs functions that write to a terminal, a pipe or a disk without blocking
// their caller.
package asyncwriter

import (
	"sync"
	"time"
)

// Writer calls functions in order in a goroutine of its own.
type Writer struct {
	mu     sync.Mutex
	queue  []func()
	idle   chan struct{}
	missed int

	overrun func(missed int)
}

// Limit is the number of functions that may wait. Patience is how long an ending program should
// wait for them.
const (
	Limit    = 4096
	Patience = 2 * time.Second
)

// New returns a Writer. It calls overrun with the number of functions that were dropped because
// earlier ones took too long. overrun may be nil if never more than Limit functions wait.
func New(overrun func(missed int)) *Writer {
	return &Writer{idle: make(chan struct{}, 1), overrun: overrun}
}

// Say queues f, or drops it if too many functions wait. It never blocks.
func (s *Writer) Say(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) >= Limit {
		s.missed++
		return
	}
	if s.queue == nil {
		s.queue = []func(){}
		go s.run()
	}
	s.queue = append(s.queue, f)
}

// run calls the waiting functions and ends when there are none.
func (s *Writer) run() {
	for {
		s.mu.Lock()
		queue, missed := s.queue, s.missed
		if len(queue) == 0 && missed == 0 {
			s.queue = nil
			s.mu.Unlock()
			select {
			case s.idle <- struct{}{}:
			default: // the last signal was not received yet
			}
			return
		}
		s.queue, s.missed = []func(){}, 0
		s.mu.Unlock()
		for _, f := range queue {
			f()
		}
		if missed > 0 {
			s.overrun(missed)
		}
	}
}

// Finish waits until all functions were called, at most for the limit, and reports whether all were
// called.
func (s *Writer) Finish(limit time.Duration) bool {
	late := time.After(limit)
	for {
		s.mu.Lock()
		idle := s.queue == nil
		s.mu.Unlock()
		if idle {
			return true
		}
		select {
		case <-s.idle:
		case <-late:
			return false
		}
	}
}
