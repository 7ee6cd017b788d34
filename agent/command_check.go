package agent

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/golaunch/golaunch/internal/process/proc"
	"github.com/golaunch/golaunch/launcher/report"
)

const (
	// slowCheck is when a warning names the file system that does not answer.
	slowCheck = 10 * time.Second
	// checkLimit is how long a file system may be silent: a failover takes minutes.
	checkLimit = 5 * time.Minute
)

// commandCheck looks for a job's command and working directory, which may be on a file system that
// does not answer. Then it goes on, and only a wait for it can be ended.
type commandCheck struct {
	job *jobOnNode
	// at is the path that it looks at.
	at atomic.Pointer[string]
	// exit is that of a rank, once done is closed.
	exit report.Exit
	// arrived is closed when the job's workspace is here, or cannot be.
	arrived, done chan struct{}
}

// checkCommand returns the check that runs, or a new one: on a dead file system, one check of a job
// hangs at most.
func (j *jobOnNode) checkCommand() *commandCheck {
	if c := j.checks.command; c != nil {
		select {
		case <-c.done:
		default:
			return c
		}
	}
	c := &commandCheck{job: j, arrived: make(chan struct{}), done: make(chan struct{})}
	j.checks.command = c
	command, check := j.sampleCommand(), j.node.hooks.check
	if check == nil {
		check = proc.Check
	}
	command.Looking = func(path string) { c.at.Store(&path) }
	go func() {
		defer close(c.done)
		if err := j.arriveOnce(c.arrived); err != nil {
			c.exit = startExit(err)
			return
		}
		if err := check(command); err != nil {
			c.exit = err.Exit
		}
	}()
	return c
}

// wait returns the exit of a rank that could not be started, or the zero Exit if ctx ends first.
func (c *commandCheck) wait(ctx context.Context) report.Exit {
	select {
	case <-ctx.Done():
		return report.Exit{}
	case <-c.arrived:
	}
	slow, late := time.NewTimer(slowCheck), time.NewTimer(checkLimit)
	defer slow.Stop()
	defer late.Stop()
	for {
		select {
		case <-ctx.Done():
			return report.Exit{}
		case <-c.done:
			return c.exit
		case <-slow.C:
			c.job.node.Warn(fmt.Errorf("job %s: %s has not answered for %v: is its file system there?", c.job.id, c.path(), slowCheck))
		case <-late.C:
			return startExit(fmt.Errorf("start %q: %s has not answered for %v: is its file system there?", c.job.work.Task.Command[0], c.path(), checkLimit))
		}
	}
}

func (c *commandCheck) path() string {
	if at := c.at.Load(); at != nil {
		return *at
	}
	return "the file system"
}
