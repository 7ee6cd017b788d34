// Package asyncwriter has words reach people without anybody waiting for them.
package asyncwriter

import (
	"sync"
	"time"
)

// Speaker calls functions in order, in a goroutine of its own, for an owner who must never wait for a terminal, a pipe or a disk.
type Speaker struct {
	mu     sync.Mutex
	queue  []func()
	idle   chan struct{}
	missed int

	overrun func(missed int)
}

// Limit is how many functions may wait to be called, and Patience how long an end may wait for that.
const (
	Limit    = 4096
	Patience = 2 * time.Second
)

// New returns a Speaker that tells by overrun how many functions were not called, because those before took too long. It may be nil where
// less than Limit is said.
func New(overrun func(missed int)) *Speaker {
	return &Speaker{idle: make(chan struct{}, 1), overrun: overrun}
}

// Say has f called, unless too much waits already. It never waits.
func (s *Speaker) Say(f func()) {
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

// run calls what waits, and ends when nothing does.
func (s *Speaker) run() {
	for {
		s.mu.Lock()
		queue, missed := s.queue, s.missed
		if len(queue) == 0 && missed == 0 {
			s.queue = nil
			s.mu.Unlock()
			select {
			case s.idle <- struct{}{}:
			default: // nobody has looked since
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

// Finish waits until all was called, for as long as the limit, and says whether it was.
func (s *Speaker) Finish(limit time.Duration) bool {
	late := time.NewTimer(limit)
	defer late.Stop()
	for {
		s.mu.Lock()
		idle := s.queue == nil
		s.mu.Unlock()
		if idle {
			return true
		}
		select {
		case <-s.idle:
		case <-late.C:
			return false
		}
	}
}
