// Package ssh starts an agent on each of several hosts by ssh.
package ssh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"

	"github.com/golaunch/golaunch/internal/host/helper"
	"github.com/golaunch/golaunch/internal/process/console"
	"github.com/golaunch/golaunch/internal/process/internalverbs"
	"github.com/golaunch/golaunch/launcher/internal/shellword"
)

const (
	// fanOut is how many connections are made at once: each is a process that computes keys. Each
	// server gets only one connection.
	fanOut = 64
	// startLimit is how long ssh may take to start an agent, unless ssh_config gives it less
	// (ConnectTimeout).
	startLimit = time.Minute
	// hangUpAfter is how long an agent may take to learn of the job's end from the coordinator. An
	// agent that has not joined never learns of the end.
	hangUpAfter = 2 * time.Second
	// endLimit is how long an agent may take to end after hangUpAfter, since it shows the last
	// output of its ranks.
	endLimit = 90 * time.Second
	// aliveCount is how many questions a server may leave without an answer. The default of
	// ssh_config(5) is the same.
	aliveCount = 3
)

// JoinLimit is how long an agent may take to join the coordinator, which listens already.
const JoinLimit = startLimit

// ErrNoAgent says that no agent of a host has joined the coordinator.
var ErrNoAgent = errors.New("no agent")

// errTooFew says that a job has too few agents left, although the others ended in order.
var errTooFew = errors.New("too few hosts are left")

// Relay shows the output of an agent.
type Relay func(io.Reader, console.Stream) error

// Fleet is what the hosts of a job have in common.
type Fleet struct {
	Hosts []string
	// Order is what the agent of a host reads from its standard input.
	Order func(host int) ([]byte, error)
	// Need is how many hosts the job needs.
	Need int
	// Dir is the directory in which an agent runs, and Golaunch the path of its program.
	Dir, Golaunch string
	// Lease is after how much silence a connection counts as lost, as for the coordinator.
	Lease time.Duration
	Show  Relay
	Warn  func(error)
}

// Run starts the agents and returns when they have ended, or when too few are left for the job,
// since no other node will ever join. Its error means nothing once ctx has ended. wait returns when
// all ssh processes have ended.
func (f *Fleet) Run(ctx context.Context) (wait func(), err error) {
	var running sync.WaitGroup
	ended := make(chan error, len(f.Hosts))
	slots := make(chan struct{}, fanOut)
	for i := range f.Hosts {
		running.Go(func() { ended <- f.start(ctx, i, slots) })
	}
	spare := len(f.Hosts) - f.Need
	for range f.Hosts {
		err := <-ended
		spare--
		switch {
		case ctx.Err() != nil:
		case spare < 0:
			return running.Wait, cmp.Or(err, errTooFew)
		case err != nil:
			f.Warn(fmt.Errorf("%w; the job has hosts to spare", err))
		}
	}
	return running.Wait, nil
}

// start runs the agent of a host to its end. slots bounds how many connections are made at once.
func (f *Fleet) start(ctx context.Context, i int, slots chan struct{}) error {
	select {
	case slots <- struct{}{}:
	case <-ctx.Done():
		return nil
	}
	up := sync.OnceFunc(func() { <-slots })
	defer up()
	order, err := f.Order(i)
	if err != nil {
		return err
	}
	// The login shell of any user reads this line: sh, csh or fish.
	line := "cd " + shellword.Quote(f.Dir) + " && exec " + shellword.Quote(f.Golaunch) + " " + internalverbs.Node
	c := &connection{host: f.Hosts[i], line: line}
	c.cmd = exec.CommandContext(ctx, "ssh", append(Options(f.Lease/aliveCount), "--", c.host, line)...)
	c.cmd.Env = helper.Env()
	return c.run(order, f.Show, up)
}

// Options are ssh's options. They leave it to ssh_config(5) how to reach a host. They exclude
// questions, because a person could not answer these for many hosts at once, and everything that
// would outlive this ssh or disturb its streams. A server that is silent for aliveCount times every
// counts as lost.
func Options(every time.Duration) []string {
	return []string{
		"-T", "-x", "-oBatchMode=yes", "-oControlMaster=no", "-oClearAllForwardings=yes", "-oPermitLocalCommand=no", "-oRemoteCommand=none",
		fmt.Sprintf("-oServerAliveInterval=%d", max(1, int(every/time.Second))), fmt.Sprintf("-oServerAliveCountMax=%d", aliveCount),
	}
}
