package stacks

import (
	"context"
	"errors"
	"os"
	"sync"
)

const (
	// readers bounds the number of processes that are read at the same time on this node, and
	// readersOfUser the number of such processes of one user. If the kernel blocks on the memory of
	// a process, such as a page on a hung file system, the process keeps its reader for that time.
	readers       = 16
	readersOfUser = 4
)

var (
	errLate = errors.New("its memory could not be read in time")
	errHeld = errors.New("an earlier reader of its memory still waits")
	errBusy = errors.New("too many processes are being read on this node, or for this user")
)

// readerSlots gives out the readers of this node: at most one per process, and a share per user. So
// if a user blocks readers with processes of their own, other users still have their readers.
type readerSlots struct {
	mu      sync.Mutex
	reading map[int]bool   // processes
	ofUser  map[uint32]int // readers
	change  chan struct{}  // closed when a reader is returned
}

func newReaderSlots() *readerSlots {
	return &readerSlots{reading: make(map[int]bool), ofUser: make(map[uint32]int), change: make(chan struct{})}
}

// nodeReaders are the readers of this node.
var nodeReaders = newReaderSlots()

// user is the user from whose share a process takes its reader.
func (p Process) user() uint32 {
	if p.Rights != nil {
		return p.Rights.UID
	}
	return uint32(os.Geteuid())
}

// await waits for a reader until ctx ends, and reports the reason for the wait.
func (t *readerSlots) await(ctx context.Context, p Process, tell func(why error)) bool {
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

// take takes a reader. If there is none, it returns the reason and a channel that is closed when a
// reader may be free.
func (t *readerSlots) take(p Process) (change <-chan struct{}, why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.reading[p.PID]:
		return t.change, errHeld
	case len(t.reading) == readers || t.ofUser[p.user()] == readersOfUser:
		return t.change, errBusy
	}
	t.reading[p.PID] = true
	t.ofUser[p.user()]++
	return nil, nil
}

// giveBack returns a reader.
func (t *readerSlots) giveBack(p Process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.reading, p.PID)
	if t.ofUser[p.user()]--; t.ofUser[p.user()] == 0 {
		delete(t.ofUser, p.user())
	}
	close(t.change)
	t.change = make(chan struct{})
}
