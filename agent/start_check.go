package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/agent/internal/masterport"
	"github.com/golaunch/golaunch/agent/internal/saves"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/host/bind"
	"github.com/golaunch/golaunch/internal/host/ports"
	"github.com/golaunch/golaunch/internal/process/proc"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// startChecks are the coordinator's questions before an attempt: could this node start its ranks?
type startChecks struct {
	// ends end the newest questions of each kind.
	ends map[question]context.CancelFunc
	// command is the newest check of the command; nil before the first.
	command *commandCheck
}

// question is the kind of a question: a [job.Reach] or a [job.Prepare] of a unit.
type question struct {
	unit  int
	reach bool
}

// renew ends the question before of that kind, and returns the context of the new one.
func (c *startChecks) renew(q question) context.Context {
	if end := c.ends[q]; end != nil {
		end()
	}
	ctx, cancel := context.WithCancel(context.Background())
	if c.ends == nil {
		c.ends = map[question]context.CancelFunc{}
	}
	c.ends[q] = cancel
	return ctx
}

// cancel ends all questions.
func (c *startChecks) cancel() {
	for _, end := range c.ends {
		end()
	}
}

// reach reports whether this node could start its ranks and reaches the master's port. It goes on
// when attempts stop: other nodes may wait for the answer.
func (j *jobOnNode) reach(o job.Reach) {
	ctx := j.checks.renew(question{o.Unit, true})
	j.checkStart(ctx, o.Ranks, func(unable report.Exit) {
		answer := job.Reached{Node: o.Node, Seq: o.Seq, Unable: unable}
		if unable.OK() {
			rank0Listens := o.Late && j.work.Task.Rank0Store
			if err := masterport.Reach(ctx, net.JoinHostPort(o.Addr, strconv.Itoa(o.Port)), rank0Listens); err != nil {
				answer.Err = err.Error()
				if why := ports.Why(err); why != "" {
					answer.Err += " (" + why + ")"
				}
			}
		}
		if ctx.Err() == nil {
			j.report(answer)
		}
	})
}

// checkStart calls then with the exit of a rank that this node could not start, or with the zero
// Exit if it could start that many ranks. It does so on another goroutine, unless ctx ends first.
func (j *jobOnNode) checkStart(ctx context.Context, count int, then func(unable report.Exit)) {
	unable := j.unable(count)
	var check *commandCheck
	if unable.OK() {
		check = j.checkCommand()
	}
	j.node.living.Go(func() {
		if check != nil {
			unable = check.wait(ctx)
		}
		if ctx.Err() == nil {
			then(unable)
		}
	})
}

// unable checks what needs no look at a file system.
func (j *jobOnNode) unable(count int) report.Exit {
	if j.err != nil {
		return startExit(j.err)
	}
	for _, a := range j.attempts {
		select {
		case <-a.gone:
		default:
			count -= len(a.order.Group.Bundles) // their files are open, or will be soon
		}
	}
	err := fitsKernel(j.sampleCommand())
	if count > 0 {
		err = errors.Join(err, j.checkFiles(count), proc.Room(count, j.rights()))
	}
	if err != nil {
		return startExit(err)
	}
	return report.Exit{}
}

// sampleCommand returns the command of a rank without what differs between ranks and attempts.
func (j *jobOnNode) sampleCommand() proc.Command {
	a := newAttempt(j, job.Start{Group: placement.Group{Bundles: make([]placement.Bundle, 1)}})
	a.setup = rankSetup{env: j.work.Task.Env, bindings: make([]bind.Binding, 1)}
	return a.command(a.order.Group.Bundles[0], "", "", "")
}

// A rank takes filesPerRank open files of this process: the ends of its pipes, its log files and a
// pidfd. While it starts, it takes more.
const (
	filesPerRank = 5
	filesAtStart = 24
)

// checkFiles fails if this process may not open as many files as the ranks need.
func (j *jobOnNode) checkFiles(count int) error {
	if j.node.starter.Keeper != nil {
		return nil // the keeper opens them
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("read the limit of open files: %w", err)
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("count the open files: %w", err)
	}
	if need := uint64(len(open) + filesPerRank*count + filesAtStart); need > limit.Cur {
		return fmt.Errorf("%d ranks need %d open files, and golaunch may have %d on this node: raise the limit (ulimit -n; LimitNOFILE= of a systemd unit)",
			count, need, limit.Cur)
	}
	return nil
}

// These are the limits of execve(2), in bytes: for one string, and the least and the most for all
// strings, whatever the stack's limit.
const (
	maxString    = 128 << 10
	leastStrings = 128 << 10
	mostStrings  = 6 << 20
	// fileVariables is what the names of a rank's files may take of its environment.
	fileVariables = 16 << 10
)

// fitsKernel fails if the kernel would not take the arguments and the environment of a command.
func fitsKernel(c proc.Command) error {
	size := fileVariables
	for _, list := range [][]string{c.Args, c.Env} {
		for _, text := range list {
			if len(text) >= maxString {
				return fmt.Errorf("an argument or variable of the command has %d bytes, and the kernel takes %d: %.40q...", len(text), maxString-1, text)
			}
			size += len(text) + 1 + 8 // with its NUL and its pointer
		}
	}
	var stack unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_STACK, &stack); err != nil {
		return fmt.Errorf("read the limit of the stack: %w", err)
	}
	if most := max(leastStrings, min(mostStrings, stack.Cur/4)); uint64(size) > most {
		return fmt.Errorf("arguments and environment of a rank have %d bytes, and the kernel takes %d, a quarter of its stack (ulimit -s): raise that, or shorten them",
			size, most)
	}
	return nil
}

// leftovers returns what looks for partial checkpoints before an attempt starts. It waits only if
// they are to be set aside: no rank of the job lives yet.
func (j *jobOnNode) leftovers(o job.Prepare) func(context.Context) {
	task := j.work.Task
	l := saves.Leftovers{
		Base: job.Saved{Node: o.Node, Unit: o.Unit, Attempt: o.Attempt}, Dirs: j.places.Dirs(), Alone: j.alone(o.Peers), Rights: j.rights(),
		SetAside: task.SetAsidePartial, Report: func(ev job.Saved) { j.report(ev) }, Say: j.node.Say,
	}
	if dir := task.checkpointDir(); dir != "" {
		l.Dirs = []string{dir}
	}
	return func(ctx context.Context) {
		switch {
		case len(l.Dirs) == 0:
		case l.SetAside:
			l.Check(ctx)
		default:
			j.node.living.Go(func() { l.Check(ctx) })
		}
	}
}

// alone reports whether all nodes of a job are on this machine.
func (j *jobOnNode) alone(peers []netip.Addr) bool {
	node := j.node.session.Node
	return !slices.ContainsFunc(peers, func(peer netip.Addr) bool {
		return !peer.IsLoopback() && peer != node.Addr && !slices.Contains(node.Others, peer)
	})
}
