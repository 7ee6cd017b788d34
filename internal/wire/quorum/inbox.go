package quorum

import (
	"sync"

	"go.etcd.io/raft/v3/raftpb"
)

// maxSteps bounds the messages that wait to be handled. Raft repeats lost messages.
const maxSteps = 256

// inbox has the messages and functions that other goroutines give to the log's goroutine.
type inbox struct {
	steps   chan *step
	wake    chan struct{}
	closing chan struct{}

	mu     sync.Mutex
	posted []func()
	ended  bool
}

// step is a message of another voter.
type step struct {
	from Voter
	*raftpb.Message
}

func newInbox() inbox {
	return inbox{steps: make(chan *step, maxSteps), wake: make(chan struct{}, 1), closing: make(chan struct{})}
}

// step makes the log's goroutine handle a message, unless too many messages wait.
func (b *inbox) step(s *step) {
	select {
	case b.steps <- s:
	default:
	}
}

// post makes the log's goroutine call f, and never blocks. It returns false when that goroutine has
// ended.
func (b *inbox) post(f func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return false
	}
	b.posted = append(b.posted, f)
	select {
	case b.wake <- struct{}{}:
	default:
	}
	return true
}

// callPosted calls the posted functions.
func (b *inbox) callPosted() {
	b.mu.Lock()
	posted := b.posted
	b.posted = nil
	b.mu.Unlock()
	for _, f := range posted {
		f()
	}
}

// end calls the posted functions, and refuses later ones.
func (b *inbox) end() {
	b.mu.Lock()
	b.ended = true
	b.mu.Unlock()
	b.callPosted()
}
