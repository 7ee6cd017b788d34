package agent

import (
	"cmp"
	"fmt"
	"sync"
	"time"

	"github.com/golaunch/golaunch/agent/internal/gpulog"
	"github.com/golaunch/golaunch/agent/internal/masterport"
	"github.com/golaunch/golaunch/agent/internal/ranks"
	"github.com/golaunch/golaunch/agent/internal/startcheck"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/verdict"
	"github.com/golaunch/golaunch/internal/process/logs"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// exits reports the exits of an attempt one by one.
type exits struct {
	mu sync.Mutex
	// twins are the failures whose evidence the coordinator already has.
	twins verdict.Twins
}

// startFailed reports that a rank could not be started. This is no failure if the attempt was
// meanwhile ordered to stop.
func (a *attempt) startFailed(b placement.Bundle, err error) {
	if !a.wasStopped() {
		a.exited(b, startcheck.Exit(err), time.Now(), 0, nil)
	}
}

func (a *attempt) exited(b placement.Bundle, exit report.Exit, at time.Time, lived time.Duration, output *logs.Rank) {
	e := job.Exited{
		Node: a.node(), Unit: a.order.Unit, Attempt: a.order.Attempt, Rank: b.Rank, Exit: exit, At: at, Lived: lived, Told: a.wasStopped(),
	}
	if output != nil && !exit.OK() {
		if b.GPU != nil {
			e.Kernel = gpulog.Faults(lived)
		}
		e.Step, _ = ranks.LastHeartbeat(output).Step()
		e.Tail = a.withRequests(a.withAdvice(output.Tail()))
		var err error
		if e.Traceback, err = output.Traceback(); err != nil {
			a.job.node.Warn(err)
		}
	}
	a.exits.mu.Lock()
	defer a.exits.mu.Unlock()
	// Do not repeat evidence that the coordinator already has: if 100,000 ranks fail alike, it
	// would take a gigabyte.
	if !exit.OK() && !a.order.OwnRules && a.exits.twins.Known(e.Failure(b.GPU)) {
		e.Alike, e.Kernel, e.Tail, e.Traceback = true, "", "", ""
	}
	a.report(e)
}

// withAdvice adds advice to the last lines of a rank that found MASTER_PORT taken by golaunch's own
// store.
func (a *attempt) withAdvice(tail string) string {
	port := cmp.Or(int(a.setup.proxy.Port()), a.order.World.MasterPort)
	if a.job.work.Task.Rank0Store || !masterport.SaysTaken(tail, port) {
		return tail
	}
	return fmt.Sprintf("%s\n(golaunch serves torch's store at MASTER_PORT, %d; a program with a server of its own there needs --store rank0)",
		tail, port)
}
