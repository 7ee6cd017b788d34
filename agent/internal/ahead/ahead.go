// Package ahead forks the ranks of a unit's next attempt before that starts.
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

// Forks are forks that wait to become the ranks of a unit's next attempt here. The fork of a process
// that has imported torch takes 10 ms of CPU time, which that attempt then does not wait for.
type Forks struct {
	// Hurry is for the failure of a rank, and Settle for the end of the attempt.
	Hurry, Settle func()
	failed, over  chan struct{}
	// making is the goroutine that forks; scope is its result.
	making sync.WaitGroup
	number int
	scope  *proc.Scope
}

// New returns no forks yet.
func New() *Forks {
	f := &Forks{failed: make(chan struct{}), over: make(chan struct{})}
	f.Hurry = sync.OnceFunc(func() { close(f.failed) })
	f.Settle = sync.OnceFunc(func() { close(f.over) })
	return f
}

// Attempt is the next attempt of a unit.
type Attempt struct {
	// Number is its number, and Count that of its ranks.
	Number, Count int
	Forker        proc.Forker
	// Scope makes the scope of its processes, which have the Rights.
	Scope  func() (*proc.Scope, error)
	Rights *safefile.Rights
	// JobOver is closed when no attempt of the job will begin any more.
	JobOver <-chan struct{}
	Warn    func(error)
}

const (
	// startAfter is how long ranks have run when the next ones are forked. These would compete with
	// the start of the first for CPUs.
	startAfter = time.Second
	// A process that waits has forkMemory of its own at most, in bytes, half of it page tables, and
	// all that wait may take one part in memoryShare of what is available.
	forkMemory  = 16 << 20
	memoryShare = 16
)

// Prepare forks ranks of the next attempt when those of this one have run for a while, or when one
// of them fails.
func (f *Forks) Prepare(a Attempt) {
	f.making.Go(func() {
		wait := time.NewTimer(startAfter)
		defer wait.Stop()
		select {
		case <-wait.C:
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
			break // the next attempt finds out why, and says so
		}
	}
	return nil
}

// room reports whether there is room for processes beside those that run and the next ones.
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
