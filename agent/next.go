package agent

import (
	"fmt"
	"sync"
	"time"

	"github.com/golaunch/golaunch/agent/internal/ranks"
	"github.com/golaunch/golaunch/internal/process/proc"
)

// next are forks that wait to become the ranks of a unit's next attempt here. The fork of a process
// that has imported torch takes 10 ms of CPU time, which that attempt then does not wait for.
type next struct {
	// failed is closed when a rank fails, and over when the attempt is over.
	failed, over chan struct{}
	hurry        func()
	settle       func()
	// making is the goroutine that forks; scope is its result.
	making sync.WaitGroup
	number int
	scope  *proc.Scope
}

func newNext() *next {
	n := &next{failed: make(chan struct{}), over: make(chan struct{})}
	n.hurry = sync.OnceFunc(func() { close(n.failed) })
	n.settle = sync.OnceFunc(func() { close(n.over) })
	return n
}

const (
	// aheadAfter is how long ranks have run when the next ones are forked. These would compete with
	// the start of the first for CPUs.
	aheadAfter = time.Second
	// A process that waits has forkMemory of its own at most, in bytes, half of it page tables, and
	// all that wait may take one part in aheadShare of what is available.
	forkMemory = 16 << 20
	aheadShare = 16
)

// prepare forks ranks of the next attempt when those of this one have run for a while, or when one
// of them fails.
func (n *next) prepare(a *attempt) {
	count := len(a.order.Group.Bundles)
	if a.forks.forker == nil || a.forks.report.Forked < count || a.order.World.MaxRestarts == 0 || a.job.node.starter.Keeper != nil {
		return
	}
	n.making.Go(func() {
		wait := time.NewTimer(aheadAfter)
		defer wait.Stop()
		select {
		case <-wait.C:
		case <-n.failed:
		case <-n.over:
			return
		}
		if err := n.make(a, count); err != nil {
			a.job.node.Warn(fmt.Errorf("%s: the next attempt's ranks are not forked ahead: %w", a.node(), err))
		}
	})
}

func (n *next) make(a *attempt, count int) error {
	if !a.roomAhead(count) {
		return nil // the next attempt forks when it starts
	}
	number := a.order.Attempt + 1
	scope, err := a.job.node.starter.Supervisor.Scope(a.scopeName(number))
	if err != nil {
		return err
	}
	n.number, n.scope = number, scope
	for range count {
		select {
		case <-a.job.ending.over:
			return nil
		default:
		}
		if forked := scope.Ahead(a.forks.forker, a.job.rights()) == nil; !forked {
			break // the next attempt finds out why, and says so
		}
	}
	return nil
}

// roomAhead reports whether there is room for processes beside those that run and the next ones.
func (a *attempt) roomAhead(count int) bool {
	files, processes := a.job.checkFiles(2*count), proc.Room(2*count, a.job.rights())
	return files == nil && processes == nil && count*forkMemory <= proc.Memory()/aheadShare
}

// take returns the scope that was made for an attempt, or nil.
func (n *next) take(attempt int, warn func(error)) ranks.Scope {
	n.making.Wait()
	if n.number != attempt {
		n.discard(warn)
	}
	if n.scope == nil {
		return nil
	}
	scope := n.scope
	n.scope = nil
	return scope
}

// discard ends what was forked ahead.
func (n *next) discard(warn func(error)) {
	n.making.Wait()
	if n.scope == nil {
		return
	}
	if err := n.scope.Close(); err != nil {
		warn(fmt.Errorf("end what was forked ahead: %w", err))
	}
	n.scope = nil
}
