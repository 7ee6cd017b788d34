package launcher

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"

	"github.com/golaunch/golaunch/launcher/internal/enlist"
	"github.com/golaunch/golaunch/launcher/internal/slurm"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// bySlurm runs a job on the nodes of a Slurm allocation, from its batch script or from under
// salloc: one srun starts an agent on each node.
func (l *localRun) bySlurm(ctx context.Context) (report.Result, error) {
	p := l.job.place
	if l.job.Resources.GPU && p.Groups == 0 {
		l.slurmGPUs = slurm.GPUsPerTask(ctx)
	}
	step := slurm.Step{
		Nodes: p.Nodes, Groups: p.Groups, GPUs: l.slurmGPUs, Relay: l.relay,
		KillOnBadExit: l.job.Resources.MinNodes == p.Nodes, // an agent that cannot start makes the job impossible
	}
	return l.remotely(ctx, func(ctx context.Context, e enlistment) error {
		order, err := json.Marshal(e)
		if err != nil {
			return err
		}
		self, err := enlist.Golaunch(l.job.Network.Golaunch)
		if err != nil {
			return err
		}
		return step.Run(ctx, self, order)
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
