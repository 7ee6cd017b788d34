package startcheck

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
	// CommandLimit is how long a file system may be silent. A failover takes minutes.
	CommandLimit = 5 * time.Minute
)

// CommandOptions describe a check of a command.
type CommandOptions struct {
	// Job is the job's ID, and Name its command as the user gave it.
	Job, Name string
	Command   proc.Command
	// Arrive waits for the job's workspace. It calls arrived when the workspace is here, or when it
	// is clear that it cannot be.
	Arrive func(arrived func()) error
	// Check looks for the command; [proc.Check] if nil.
	Check func(proc.Command) *proc.StartError
	Warn  func(error)
}

// Command is a check that looks for a job's command and working directory. If they are on a file
// system that does not answer, the check keeps running. A wait for the check can then be ended; the
// check itself cannot.
type Command struct {
	o CommandOptions
	// at is the path that the check looks at.
	at atomic.Pointer[string]
	// exit is the exit of a rank. It is valid once done is closed.
	exit          report.Exit
	arrived, done chan struct{}
}

// NewCommand begins a check.
func NewCommand(o CommandOptions) *Command {
	c := &Command{o: o, arrived: make(chan struct{}), done: make(chan struct{})}
	if c.o.Check == nil {
		c.o.Check = proc.Check
	}
	command := o.Command
	command.Looking = func(path string) { c.at.Store(&path) }
	go func() {
		defer close(c.done)
		if err := o.Arrive(func() { close(c.arrived) }); err != nil {
			c.exit = Exit(err)
			return
		}
		if err := c.o.Check(command); err != nil {
			c.exit = err.Exit
		}
	}()
	return c
}

// Done reports whether the check has ended.
func (c *Command) Done() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// Wait returns the exit of a rank that could not be started. It returns the zero Exit if ctx ends
// first, or if the rank could be started.
func (c *Command) Wait(ctx context.Context) report.Exit {
	select {
	case <-ctx.Done():
		return report.Exit{}
	case <-c.arrived:
	}
	slow, late := time.After(slowCheck), time.After(CommandLimit)
	for {
		select {
		case <-ctx.Done():
			return report.Exit{}
		case <-c.done:
			return c.exit
		case <-slow:
			c.o.Warn(fmt.Errorf("job %s: %s has not answered for %v: is its file system there?", c.o.Job, c.path(), slowCheck))
		case <-late:
			return Exit(fmt.Errorf("start %q: %s has not answered for %v: is its file system there?", c.o.Name, c.path(), CommandLimit))
		}
	}
}

func (c *Command) path() string {
	if at := c.at.Load(); at != nil {
		return *at
	}
	return "the file system"
}
