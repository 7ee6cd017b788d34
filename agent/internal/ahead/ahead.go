// Package ahead forks the ranks of a unit's next attempt before that attempt starts.
package ahead

import (
	"fmt"
	"sync"
	"time"

	"github.com/golaunch/golaunch/agent/internal/ranks"
	"github.com/golaunch/golaunch/agent/internal/startcheck"
	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/internal/process/proc"
)

// Forks are forks that wait to become the ranks of a unit's next attempt here. Forking a process
// that has imported torch takes 10 ms of CPU time. The next attempt does not have to wait for that.
type Forks struct {
	// Hurry must be called when a rank fails, and Settle when the attempt ends.
	Hurry, Settle func()
	failed, over  chan struct{}
	// making waits for the goroutine that forks; scope is its result.
	making sync.WaitGroup
	number int
	scope  *proc.Scope
}

// New returns Forks that has forked nothing yet.
func New() *Forks {
	f := &Forks{failed: make(chan struct{}), over: make(chan struct{})}
	f.Hurry = sync.OnceFunc(func() { close(f.failed) })
	f.Settle = sync.OnceFunc(func() { close(f.over) })
	return f
}

// Attempt is the next attempt of a unit.
type Attempt struct {
	// Number is the number of the attempt, and Count is how many ranks it has.
	Number, Count int
	Forker        proc.Forker
	// Scope makes the scope of the attempt's processes, which have the Rights.
	Scope  func() (*proc.Scope, error)
	Rights *safefile.Rights
	// JobOver is closed when no further attempt of the job will begin.
	JobOver <-chan struct{}
	Warn    func(error)
}

const (
	// startAfter is how long ranks must have run before the ranks of the next attempt are forked.
	// Earlier forks would compete with the start of the running ranks for CPUs.
	startAfter = time.Second
	// forkMemory bounds the memory that a waiting process does not share with its fork server, in
	// bytes. Half of it is page tables. All waiting processes together may take 1/memoryShare of
	// the available memory.
	forkMemory  = 16 << 20
	memoryShare = 16
)

// Prepare forks ranks of the next attempt when the ranks of this attempt have run for a while, or
// when one of them fails.
func (f *Forks) Prepare(a Attempt) {
	f.making.Go(func() {
		select {
		case <-time.After(startAfter):
		case <-f.failed:
		case <-f.over:
			return
		}
		if err := f.make(a); err != nil {
			a.Warn(fmt.Errorf("the next attempt's ranks are not forked ahead: %w", err))
		}
	})
}

func (f *Forks) make(a Attempt) error {
	if !room(a) {
		return nil // the next attempt forks when it starts
	}
	scope, err := a.Scope()
	if err != nil {
		return err
	}
	f.number, f.scope = a.Number, scope
	for range a.Count {
		select {
		case <-a.JobOver:
			return nil
		default:
		}
		if forked := scope.Ahead(a.Forker, a.Rights) == nil; !forked {
			break // the next attempt finds out why, and reports it
		}
	}
	return nil
}

// room reports whether files, processes and memory suffice for forks that wait, besides the running
// ranks and the ranks of the next attempt.
func room(a Attempt) bool {
	files, processes := startcheck.Files(2*a.Count), proc.Room(2*a.Count, a.Rights)
	return files == nil && processes == nil && a.Count*forkMemory <= proc.Memory()/memoryShare
}

// Take returns the scope that was made for an attempt, or nil.
func (f *Forks) Take(attempt int, warn func(error)) ranks.Scope {
	f.making.Wait()
	if f.number != attempt {
		f.Discard(warn)
	}
	if f.scope == nil {
		return nil
	}
	scope := f.scope
	f.scope = nil
	return scope
}

// Discard ends what was forked ahead.
func (f *Forks) Discard(warn func(error)) {
	f.making.Wait()
	if f.scope == nil {
		return
	}
	if err := f.scope.Close(); err != nil {
		warn(fmt.Errorf("end what was forked ahead: %w", err))
	}
	f.scope = nil
}
