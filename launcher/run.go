package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/golaunch/golaunch/internal/logs"
	"github.com/golaunch/golaunch/rendezvous"
)

// Limits on waiting that are not the user's to set.
const (
	resolveLimit = 10 * time.Second
	// killTime is how long an agent may take to kill its ranks once its lease has run out.
	killTime = 5 * time.Second
	// lastCall is how long a job with enough nodes waits for the most it can use, as torchrun's last_call_timeout.
	lastCall = 30 * time.Second
)

// Run runs a job to its end. The result says how the job ended; the error is about golaunch itself: a job that can never run
// (errors.Is ErrUsage), a coordinator that refused this node or was lost. With an error, the result's code is still the exit
// code that fits: 2 for a bad job, 125 otherwise.
//
// When Run returns, no process that it started lives any more.
func Run(ctx context.Context, j Job) (Result, error) {
	j, err := j.complete()
	if err != nil {
		return Result{Code: 2}, err
	}
	h := arrive(j)
	var result Result
	switch {
	case j.Simulate:
		result, err = h.simulate(ctx)
	case j.Rendezvous != "":
		result, err = h.meet(ctx)
	default:
		result, err = h.alone(ctx)
	}
	err = errors.Join(err, h.leave(result, err))
	if err != nil && result.Code == 0 {
		result.Code = 125
	}
	return result, err
}

// here is this process's part in a job.
type here struct {
	job      Job
	console  *logs.Console
	narrator narrator
	// dir takes the job's files; nil before open.
	dir *logs.Dir
	// left is closed when the job has ended here.
	left chan struct{}
}

func arrive(j Job) *here {
	console := logs.NewConsole(j.Stdout, j.Stderr)
	return &here{job: j, console: console, narrator: narrator{say: console.Say}, left: make(chan struct{})}
}

// open makes the directory of the job's files. The job's ID is the coordinator's to say.
func (h *here) open(id string) (err error) {
	if h.dir != nil {
		return nil
	}
	base := h.job.LogDir
	if base == "" {
		base = filepath.Join(os.TempDir(), fmt.Sprintf("golaunch-%d", os.Getuid()))
		if err := private(base); err != nil {
			return err
		}
	}
	h.dir, err = logs.OpenDir(base, id)
	return err
}

// private makes a directory in a place where others can make some too, and refuses one that is not this user's alone.
func private(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("cannot make a directory for logs: %w; choose one with --log-dir", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("cannot look at the directory for logs: %w; choose one with --log-dir", err)
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || int(owner.Uid) != os.Getuid() || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s is not a directory of uid %d alone; choose another with --log-dir", dir, os.Getuid())
	}
	return nil
}

// leave prints the report and clears up: the files of a job that succeeded, or never began, go unless the user said where he wants
// them.
func (h *here) leave(result Result, err error) error {
	close(h.left)
	h.narrator.end()
	if !h.job.Quiet && err == nil {
		h.report(result)
	}
	var errs []error
	switch {
	case h.dir == nil:
	case h.job.LogDir == "" && (result.Code == 0 || result.Attempts == 0):
		errs = append(errs, h.dir.Remove())
	default:
		errs = append(errs, h.dir.Close())
	}
	return errors.Join(append(errs, h.console.Close())...)
}

// warn tells what went wrong without ending the job.
func (h *here) warn(err error) {
	if !h.job.Quiet {
		h.console.Say("warning: %v", err)
	}
}

// alone runs coordinator and agent in this process, joined by a pipe in memory.
func (h *here) alone(ctx context.Context) (Result, error) {
	node, err := h.job.thisNode(ctx)
	if err != nil {
		return Result{}, err
	}
	if !node.Addr.IsValid() {
		node.Addr = loopback(0)
	}
	l, dial := rendezvous.Pipe()
	return h.lead(ctx, leadership{listener: l, agents: func(ctx context.Context) error {
		return h.work(ctx, membership{node: node, target: "this process", dial: dial})
	}})
}

// config is the coordinator's.
func (h *here) config(journal io.Writer) rendezvous.Config {
	j := h.job
	return rendezvous.Config{
		Spec: j.spec(), Facts: j.facts(), Lease: j.Lease, KillTime: killTime,
		PlacementTimeout: j.PlacementTimeout, LastCall: lastCall,
		BackoffMin: j.BackoffMin, BackoffMax: j.BackoffMax,
		Observe: h.observe, Journal: journal, Warn: h.warn,
	}
}
