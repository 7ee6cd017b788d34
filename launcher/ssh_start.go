package launcher

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/golaunch/golaunch/internal/host/helper"
	"github.com/golaunch/golaunch/internal/process/internalverbs"
	"github.com/golaunch/golaunch/launcher/internal/hostfile"
	"github.com/golaunch/golaunch/launcher/internal/shellword"
)

const (
	// sshFanOut is how many connections are made at once: each is a process that computes keys. A server sees one of them.
	sshFanOut = 64
	// sshLimit is how long ssh may take to start an agent, unless ssh_config gives it less (ConnectTimeout), and then the agent to join
	// the coordinator, which listens.
	sshLimit = time.Minute
	// sshHangup is how long an agent may take to hear of the job's end from the coordinator. One that has not joined never does.
	sshHangup = 2 * time.Second
	// sshSilences is how many questions a server may leave without an answer; the default of ssh_config(5).
	sshSilences = 3
)

// errUnreached says that a host has no agent. The job need not be given time to end by itself: the coordinator knows of no node.
var errUnreached = errors.New("no agent")

// errLeft says that a job has too few agents left, all of which ended as they should.
var errLeft = errors.New("too few hosts are left")

// overSSH runs a job on machines on which ssh starts an agent each. When so many are gone that the rest cannot hold the job, it ends:
// no other node will ever come.
func (h *here) overSSH(ctx context.Context) (Result, error) {
	var running sync.WaitGroup
	result, err := h.remotely(ctx, func(ctx context.Context, e enlistment) error {
		f, err := h.fleet(e)
		if err != nil {
			return err
		}
		ended := make(chan error, len(h.job.Network.Hosts))
		for _, host := range h.job.Network.Hosts {
			running.Go(func() { ended <- f.start(ctx, host) })
		}
		spare := len(h.job.Network.Hosts) - h.job.Resources.MinNodes
		for range h.job.Network.Hosts {
			err := <-ended
			spare--
			switch {
			case ctx.Err() != nil:
			case spare < 0:
				return cmp.Or(err, errLeft)
			case err != nil:
				h.warn(fmt.Errorf("%w; the job has hosts to spare", err))
			}
		}
		return nil
	})
	running.Wait()
	return result, err
}

// fleet is what the hosts of a job have in common.
type fleet struct {
	*here
	enlistment
	// dir is where an agent runs, as here, and exe is the golaunch that it is.
	dir, exe string
	// setup bounds the connections that are being made.
	setup chan struct{}
}

func (h *here) fleet(e enlistment) (*fleet, error) {
	f := &fleet{here: h, enlistment: e, setup: make(chan struct{}, sshFanOut)}
	var err error
	if f.exe, err = h.job.golaunch(); err != nil {
		return nil, err
	}
	if f.dir, err = filepath.Abs(e.Job.Dir); err != nil {
		return nil, fmt.Errorf("cannot tell the working directory: %w; give one with --dir", err)
	}
	j := &f.Job
	j.Dir, j.Network.Scheduler, j.Resources.PlacementTimeout, f.Tied = "", noScheduler, sshLimit, true
	if j.Output.LogDir != "" {
		if j.Output.LogDir, err = filepath.Abs(j.Output.LogDir); err != nil {
			return nil, fmt.Errorf("cannot tell where the logs go: %w", err)
		}
	}
	return f, nil
}

// start runs the agent of a host to its end. Once ctx has ended, the error means nothing.
func (f *fleet) start(ctx context.Context, host Host) error {
	select {
	case f.setup <- struct{}{}:
	case <-ctx.Done():
		return nil
	}
	up := sync.OnceFunc(func() { <-f.setup })
	defer up()
	e := f.enlistment
	e.Job.Network.Name, e.Slots = hostfile.NodeName(host.Name), host.Slots
	if !e.Job.Resources.GPU {
		e.Job.Resources.Slots = host.Slots
	}
	order, err := json.Marshal(e)
	if err != nil {
		return err
	}
	// The login shell of any user reads this line: that of sh, csh or fish.
	c := &connection{host: host, line: "cd " + shellword.Quote(f.dir) + " && exec " + shellword.Quote(f.exe) + " " + internalverbs.Node}
	c.cmd = exec.CommandContext(ctx, "ssh", append(f.sshFlags(), "--", host.Name, c.line)...)
	c.cmd.Env = helper.Env()
	return c.run(f.here, order, up)
}

// sshFlags leave to ssh_config(5) how a host is reached. They rule out questions, which nobody could answer for many hosts at once,
// and what would outlive this ssh or disturb its streams; and a connection that is silent for the lease is over, as for the
// coordinator.
func (f *fleet) sshFlags() []string {
	alive := max(1, int(f.Job.Network.Lease/time.Second)/sshSilences)
	return []string{
		"-T", "-x", "-oBatchMode=yes", "-oControlMaster=no", "-oClearAllForwardings=yes", "-oPermitLocalCommand=no", "-oRemoteCommand=none",
		fmt.Sprintf("-oServerAliveInterval=%d", alive), fmt.Sprintf("-oServerAliveCountMax=%d", sshSilences),
	}
}
