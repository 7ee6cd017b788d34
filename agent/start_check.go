package agent

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/golaunch/golaunch/agent/internal/masterport"
	"github.com/golaunch/golaunch/agent/internal/saves"
	"github.com/golaunch/golaunch/agent/internal/startcheck"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/host/bind"
	"github.com/golaunch/golaunch/internal/host/ports"
	"github.com/golaunch/golaunch/internal/process/proc"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// startChecks are the coordinator's questions before an attempt: could this node start its ranks?
type startChecks struct {
	// ends has, for each kind of question, a function that ends the newest question.
	ends map[question]context.CancelFunc
	// command is the newest check of the command; nil before the first.
	command *startcheck.Command
}

// question is the kind of a question: a [job.Reach] or a [job.Prepare] of a unit.
type question struct {
	unit  int
	reach bool
}

// renew ends the previous question of a kind, and returns the context of the new one.
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

// prepare reports the MASTER_PORT if this node could start its ranks, and otherwise why it could
// not. A repeated question gets the same answer, even if some nodes were replaced by others.
func (j *jobOnNode) prepare(o job.Prepare) {
	store := j.stores.Of(o.Unit, o.Fresh)
	store.Admit(o.Peers)
	ctx := j.checks.renew(question{o.Unit, false})
	if answer, ok := store.Answered(o); ok {
		j.report(answer)
		return
	}
	left := j.leftovers(o)
	j.checkStart(ctx, o.Ranks, func(unable report.Exit) {
		if unable.OK() {
			left(ctx)
		}
		j.node.later(ctx, func() {
			if unable.OK() {
				j.report(store.Answer(o))
			} else {
				j.report(job.Prepared{Node: o.Node, Unit: o.Unit, Attempt: o.Attempt, Unable: unable})
			}
		})
	})
}

// reach reports whether this node could start its ranks and reaches the master's port. It continues
// when attempts stop, because other nodes may wait for the answer.
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

// checkStart finds out whether this node could start count ranks, and calls the function then on
// another goroutine. It passes the exit of a rank that this node could not start, or the zero Exit.
// If ctx ends first, it does not call then.
func (j *jobOnNode) checkStart(ctx context.Context, count int, then func(unable report.Exit)) {
	unable := j.unable(count)
	var check *startcheck.Command
	if unable.OK() {
		check = j.checkCommand()
	}
	j.node.living.Go(func() {
		if check != nil {
			unable = check.Wait(ctx)
		}
		if ctx.Err() == nil {
			then(unable)
		}
	})
}

// unable makes the checks that need no file system. It returns the exit of a rank that this node
// could not start, or the zero Exit.
func (j *jobOnNode) unable(count int) report.Exit {
	if j.err != nil {
		return startcheck.Exit(j.err)
	}
	for _, a := range j.attempts {
		select {
		case <-a.gone:
		default:
			count -= len(a.order.Group.Bundles) // count includes these ranks, whose files are open or will be soon
		}
	}
	err := startcheck.FitsKernel(j.sampleCommand())
	if count > 0 {
		err = errors.Join(err, j.checkFiles(count), proc.Room(count, j.rights()))
	}
	if err != nil {
		return startcheck.Exit(err)
	}
	return report.Exit{}
}

// checkFiles fails if this process may not open as many files as the ranks need.
func (j *jobOnNode) checkFiles(count int) error {
	if j.node.starter.Keeper != nil {
		return nil // the keeper opens the files
	}
	return startcheck.Files(count)
}

// checkCommand returns the running check, or begins a new one. So only one check of a job hangs if
// a file system does not answer.
func (j *jobOnNode) checkCommand() *startcheck.Command {
	if c := j.checks.command; c == nil || c.Done() {
		j.checks.command = startcheck.NewCommand(startcheck.CommandOptions{
			Job: j.id, Name: j.work.Task.Command[0], Command: j.sampleCommand(), Arrive: j.arriveOnce, Check: j.node.hooks.check, Warn: j.node.Warn,
		})
	}
	return j.checks.command
}

// sampleCommand returns the command of a rank, without the variables and arguments that differ
// between ranks and attempts.
func (j *jobOnNode) sampleCommand() proc.Command {
	a := newAttempt(j, job.Start{Group: placement.Group{Bundles: make([]placement.Bundle, 1)}})
	a.setup = rankSetup{env: j.work.Task.Env, bindings: make([]bind.Binding, 1)}
	return a.command(a.order.Group.Bundles[0], nil)
}

// leftovers returns a function that looks for partial checkpoints before an attempt starts. If
// partial checkpoints are to be set aside, the function returns only when it has renamed them,
// because no rank of the job may live meanwhile.
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
