package agent

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/golaunch/golaunch/agent/internal/ahead"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/process/proc"
)

// forks says how a fork server forks the ranks of an attempt.
type forks struct {
	// forker is nil if the ranks import their modules themselves. It may be used until release is
	// called.
	forker  proc.Forker
	release func()
	mu      sync.Mutex
	report  job.Imports
	// ahead are the forks for the next attempt.
	ahead *ahead.Forks
}

// awaitImports waits until it is known whether the ranks can be forked. The error says why they
// must not start at all.
func (a *attempt) awaitImports() error {
	servers := a.job.imports
	if servers == nil {
		return nil
	}
	began := time.Now()
	env := a.command(a.order.Group.Bundles[0], nil).Env
	server, release, err := servers.Ready(a.halt.ctx, env)
	a.forks.release = release
	a.forks.report.Waited = time.Since(began)
	switch {
	case a.halt.ctx.Err() != nil:
		return errors.New("stopped while modules were imported for the ranks")
	case err == nil:
		a.forks.forker, a.forks.report.Took = server.Forker(), server.Took()
		a.forks.report.Modules = server.Modules()
	case a.job.work.Task.PreloadStrict:
		return fmt.Errorf("the ranks cannot be forked (--preload-strict): %w", err)
	default:
		a.notForked(err)
	}
	return nil
}

// noteFork counts a rank that was forked, and notes why a rank was not.
func (a *attempt) noteFork(p *proc.Process) {
	a.forks.mu.Lock()
	defer a.forks.mu.Unlock()
	switch forked, err := p.Forked(); {
	case forked:
		a.forks.report.Forked++
	case err != nil:
		a.notForked(err)
	}
}

func (a *attempt) notForked(why error) {
	if a.forks.report.Why == "" {
		a.forks.report.Why = why.Error()
	}
	a.job.imports.Unforked(why)
}

// forkAhead forks ranks of the next attempt, if they too can be forked.
func (a *attempt) forkAhead() {
	count, starter := len(a.order.Group.Bundles), a.job.node.starter
	if a.forks.forker == nil || a.forks.report.Forked < count || a.order.World.MaxRestarts == 0 || starter.Keeper != nil {
		return
	}
	number := a.order.Attempt + 1
	a.forks.ahead.Prepare(ahead.Attempt{
		Number: number, Count: count, Forker: a.forks.forker, Rights: a.job.rights(), JobOver: a.job.ending.ctx.Done(),
		Scope: func() (*proc.Scope, error) { return starter.Supervisor.Scope(a.scopeName(number)) },
		Warn:  func(err error) { a.job.node.Warn(fmt.Errorf("%s: %w", a.node(), err)) },
	})
}
