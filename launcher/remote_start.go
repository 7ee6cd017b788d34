package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/golaunch/golaunch/internal/wire/mtls"
	"github.com/golaunch/golaunch/launcher/internal/hostfile"
	"github.com/golaunch/golaunch/launcher/internal/slurm"
	"github.com/golaunch/golaunch/launcher/internal/ssh"
	"github.com/golaunch/golaunch/launcher/report"
)

// startLimit bounds the wait for the job's agents. It can be short, because they are all started at
// once.
const startLimit = 5 * time.Minute

// endOfJob is how long a job that has lost all its nodes may take to end.
const endOfJob = 2 * time.Second

// remotely runs the coordinator in this process. It calls start, which starts agents on other
// machines and gives them the enlistment. start must return when all agents have ended, or when too
// few are left for the job. Its context ends when the job ends.
func (l *localRun) remotely(ctx context.Context, start func(context.Context, enlistment) error) (report.Result, error) {
	own, err := l.job.machine().Reachable(ctx)
	if err != nil {
		return report.Result{}, err
	}
	if err := l.pack(); err != nil {
		return report.Result{}, err
	}
	listener, err := l.job.Network.ports().Listen(ctx, own.String())
	if err != nil {
		return report.Result{}, fmt.Errorf("cannot listen on %v for the nodes of the job: %w", own, err)
	}
	token := mtls.NewToken()
	e := enlistment{Job: l.job, Coordinator: listener.Addr().String(), Token: token.Text(), Run: l.files.ID}
	if l.job.Resources.PlacementTimeout == 0 {
		l.job.Resources.PlacementTimeout = startLimit
	}
	n := &e.Job.Network
	n.Address, n.Interface, n.Name, n.TokenFile, n.Hosts, e.Job.Ranks.Stdin = "", "", "", "", nil, false
	l.filesOnNodes = true
	return l.role().BeginRemote(ctx, listener, mtls.Server(token, mtls.Identity{Job: l.job.ID}), func(ctx context.Context) error {
		err := start(ctx, e)
		if err == nil || errors.Is(err, ssh.ErrNoAgent) {
			return err
		}
		select { // agents may fail while the job ends
		case <-ctx.Done():
			return nil
		case <-time.After(endOfJob):
			return err
		}
	})
}

// bySlurm runs a job on the nodes of a Slurm allocation, from the batch script or under salloc: one
// srun starts an agent on each node.
func (l *localRun) bySlurm(ctx context.Context) (report.Result, error) {
	p := l.job.place
	if l.job.Resources.GPU && p.Groups == 0 {
		l.slurmGPUs = slurm.GPUsPerTask(ctx)
	}
	step := slurm.Step{
		Nodes: p.Nodes, Groups: p.Groups, GPUs: l.slurmGPUs, Relay: l.relay,
		KillOnBadExit: l.job.Resources.MinNodes == p.Nodes, // if the job needs all nodes, it cannot run when one agent cannot start
	}
	return l.remotely(ctx, func(ctx context.Context, e enlistment) error {
		order, err := json.Marshal(e)
		if err != nil {
			return err
		}
		self, err := l.job.Network.golaunch()
		if err != nil {
			return err
		}
		return step.Run(ctx, self, order)
	})
}

// golaunch returns the path of the golaunch command on other machines: the chosen path, or else the
// one in this machine's PATH.
func (n Network) golaunch() (string, error) {
	if n.Golaunch != "" {
		return n.Golaunch, nil
	}
	path, err := exec.LookPath("golaunch")
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", fmt.Errorf("cannot start golaunch on the nodes: %w; install golaunch here and there at the same path", err)
	}
	return path, nil
}

// holdsMore records how many GPUs the job holds. That may be more than Slurm has given to the tasks
// of this step, which golaunch then reports.
func (l *localRun) holdsMore(ctx context.Context) {
	if l.job.place.RanksHear() && l.job.Resources.GPU {
		l.slurmGPUs = slurm.GPUsOfStep(ctx, l.job.place.Nodes)
	}
}

// overSSH runs a job on the machines in Network.Hosts, on each of which ssh starts an agent.
func (l *localRun) overSSH(ctx context.Context) (report.Result, error) {
	wait := func() {}
	result, err := l.remotely(ctx, func(ctx context.Context, e enlistment) error {
		f, err := l.fleet(e)
		if err == nil {
			wait, err = f.Run(ctx)
		}
		return err
	})
	wait()
	return result, err
}

func (l *localRun) fleet(e enlistment) (*ssh.Fleet, error) {
	exe, err := l.job.Network.golaunch()
	if err != nil {
		return nil, err
	}
	dir := "/" // any directory will do, since the ranks run in the workspace
	if e.Job.Workspace == "" {
		if dir, err = filepath.Abs(e.Job.Dir); err != nil {
			return nil, fmt.Errorf("cannot tell the working directory: %w; give one with --dir", err)
		}
		e.Job.Dir = ""
	}
	e.Job.Network.Scheduler, e.Job.Resources.PlacementTimeout, e.Tied = noScheduler, ssh.JoinLimit, true
	if e.Job.Output.LogDir != "" {
		if e.Job.Output.LogDir, err = filepath.Abs(e.Job.Output.LogDir); err != nil {
			return nil, fmt.Errorf("cannot tell where the logs go: %w", err)
		}
	}
	hosts := l.job.Network.Hosts
	names := make([]string, len(hosts))
	for i, h := range hosts {
		names[i] = h.Name
	}
	order := func(i int) ([]byte, error) {
		e := e
		e.Job.Network.Name, e.Slots = hostfile.NodeName(hosts[i].Name), hosts[i].Slots
		if !e.Job.Resources.GPU {
			e.Job.Resources.Slots = hosts[i].Slots
		}
		return json.Marshal(e)
	}
	return &ssh.Fleet{
		Hosts: names, Order: order, Need: l.job.Resources.MinNodes, Dir: dir, Golaunch: exe, Lease: e.Job.Network.Lease,
		Show: l.Relay, Warn: l.Warn,
	}, nil
}
