package launcher

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/golaunch/golaunch/launcher/internal/enlist"
	"github.com/golaunch/golaunch/launcher/internal/hostfile"
	"github.com/golaunch/golaunch/launcher/internal/ssh"
	"github.com/golaunch/golaunch/launcher/report"
)

// overSSH runs a job on machines. ssh starts an agent on each.
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
	exe, err := enlist.Golaunch(l.job.Network.Golaunch)
	if err != nil {
		return nil, err
	}
	dir := "/" // the ranks run in the workspace
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
