package launcher

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/golaunch/golaunch/internal/host/helper"
	"github.com/golaunch/golaunch/internal/process/internalverbs"
	"github.com/golaunch/golaunch/launcher/internal/slurm"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// srunEndLimit is how long agents may take to end after the job: they show the last output of their
// ranks.
const srunEndLimit = 90 * time.Second

// bySlurm runs a job on the nodes of a Slurm allocation, from its batch script or from under
// salloc: one srun starts an agent on each node.
func (l *localRun) bySlurm(ctx context.Context) (report.Result, error) {
	p := l.job.place
	if l.job.Resources.GPU && p.Groups == 0 {
		l.slurmGPUs = slurm.GPUsPerTask(ctx)
	}
	step := slurm.Step{
		Nodes: p.Nodes, Groups: p.Groups, GPUs: l.slurmGPUs, Variable: remoteVar,
		KillOnBadExit: l.job.Resources.MinNodes == p.Nodes, // an agent that cannot start makes the job impossible
	}
	return l.remotely(ctx, func(ctx context.Context, e enlistment) error {
		order, err := json.Marshal(e)
		if err != nil {
			return err
		}
		self, err := l.job.golaunch()
		if err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, "srun", append(step.Flags(), self, internalverbs.Node)...)
		cmd.Env, cmd.Stdin = slices.DeleteFunc(helper.Env(), slurm.Narrows), bytes.NewReader(order)
		if p.Groups > 0 { // standard input reaches only the first component of a heterogeneous job
			cmd.Env, cmd.Stdin = append(cmd.Env, remoteVar+"="+string(order)), nil
		}
		// The agents end by themselves after the job, and srun after them.
		cmd.Cancel = func() error {
			time.AfterFunc(srunEndLimit, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
			return nil
		}
		cmd.WaitDelay = 2 * srunEndLimit
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a ^C on the terminal is for the coordinator
		var output *errgroup.Group
		if output, err = l.relay(cmd); err == nil {
			err = cmd.Start()
		}
		if err != nil {
			return fmt.Errorf("%w: %w; it wants Slurm's commands in PATH, or --scheduler none", errUnstarted, err)
		}
		if err := errors.Join(output.Wait(), cmd.Wait()); err != nil {
			return fmt.Errorf("%w: srun ended: %w", errUnstarted, err)
		}
		return nil
	})
}

// holdsMore records how many GPUs the job holds if this task of a step may have been given those of
// one task alone.
func (l *localRun) holdsMore(ctx context.Context) {
	if l.job.place.RanksHear() && l.job.Resources.GPU {
		l.slurmGPUs = slurm.GPUsOfStep(ctx, l.job.place.Nodes)
	}
}

// SlurmScript is a batch script for sbatch that runs argv, a golaunch command line, on the nodes
// and GPUs that the job wants. Options are sbatch's own and follow those that the job implies.
func (j Job) SlurmScript(argv, options []string) (string, error) {
	j.Network.Scheduler = noScheduler // a job may be submitted from within another
	j, err := j.complete()
	if err != nil {
		return "", err
	}
	r := j.Resources
	s := slurm.Script{
		Name: filepath.Base(j.Command[0]), MinNodes: r.MinNodes + r.Spares, MaxNodes: r.MaxNodes + r.Spares, NoKill: r.Spares > 0,
		GPU: r.GPU, Options: options, Command: argv,
	}
	if r.PerNode[0] != placement.AllGPUs {
		s.Ranks = slices.Max(r.PerNode)
	}
	return s.Text()
}
