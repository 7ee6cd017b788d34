package stacks

import (
	"context"
	"errors"
	"os"
	"sync"
)

const (
	// readers bounds the processes that are read at a time on this node, and readersOfUser those of one user. One whose memory the kernel
	// does not let go of (a page that a file system does not bring) keeps its reader until it does.
	readers       = 16
	readersOfUser = 4
)

var (
	errLate = errors.New("its memory could not be read in time")
	errHeld = errors.New("who began to read its memory before still waits for it")
	errBusy = errors.New("all that may be read at a time on this node, or for this user, is being read")
)

// turns gives out the readers of this node. No process has two, and no user more than his share: whoever keeps those waiting that look into
// his own processes leaves the others theirs.
type turns struct {
	mu     sync.Mutex
	read   map[int]bool   // the processes that are
	ofUser map[uint32]int // how many readers each has
	change chan struct{}  // closed when a reader comes back
}

func newTurns() *turns {
	return &turns{read: make(map[int]bool), ofUser: make(map[uint32]int), change: make(chan struct{})}
}

// node are those of this node.
var node = newTurns()

// user is whose share a process is read with.
func (p Process) user() uint32 {
	if p.Rights != nil {
		return p.Rights.UID
	}
	return uint32(os.Geteuid())
}

// await waits for a reader of a process until ctx ends, and tells what it waits for.
func (t *turns) await(ctx context.Context, p Process, tell func(why error)) bool {
	for ctx.Err() == nil {
		change, why := t.take(p)
		if why == nil {
			return true
		}
		tell(why)
		select {
		case <-change:
		case <-ctx.Done():
		}
	}
	return false
}

// take takes a reader, or says why not, and what will be closed when that may have changed.
func (t *turns) take(p Process) (change <-chan struct{}, why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.read[p.PID]:
		return t.change, errHeld
	case len(t.read) == readers || t.ofUser[p.user()] == readersOfUser:
		return t.change, errBusy
	}
	t.read[p.PID] = true
	t.ofUser[p.user()]++
	return nil, nil
}

// giveBack ends the turn of a process.
func (t *turns) giveBack(p Process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.read, p.PID)
	if t.ofUser[p.user()]--; t.ofUser[p.user()] == 0 {
		delete(t.ofUser, p.user())
	}
	close(t.change)
	t.change = make(chan struct{})
}
