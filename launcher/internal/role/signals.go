package role

import (
	"context"
	"os"
	"syscall"
	"time"

	"github.com/golaunch/golaunch/agent"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/launcher/internal/pod"
	"github.com/golaunch/golaunch/launcher/internal/signals"
	"github.com/golaunch/golaunch/launcher/internal/slurm"
	"github.com/golaunch/golaunch/launcher/internal/spot"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/rendezvous"
)

// Signals says which signals this process gets, and what they mean.
type Signals struct {
	*signals.Merged
	// Done is closed when the process needs no more signals.
	Done <-chan struct{}
	// ReachRanks says that the ranks get this process's signals too: Slurm signals all processes of
	// a step.
	ReachRanks bool
	// ReachNodes says that the processes of other nodes get this process's signals too, because a
	// scheduler started them all.
	ReachNodes bool
	// EndJob says that a stop signal to this process ends the job, since the processes of all nodes
	// get the signal.
	EndJob bool
	// DrainTime is how long ranks have to get ready after a SIGTERM.
	DrainTime time.Duration
	// InSlurm says that Slurm may send a warning of the job's end. First says that this node
	// reports the warning to the coordinator.
	InSlurm, First bool
	// Spot is the cloud of this machine, which may take the machine back; empty for no cloud.
	Spot string
}

// hearSignals passes signals on: to the whole job while this process leads it, otherwise to this
// node. A SIGTERM to a pod does not end the job if other nodes can lead it, because Kubernetes may
// replace the pod. Only this node then leaves.
func (p *Process) hearSignals(n *signals.Node) {
	told := false
	for {
		select {
		case <-p.Signals.Done:
			return
		case s, open := <-p.Signals.C:
			c := p.leads.Load()
			switch {
			case !open:
				return
			case c == nil, s == syscall.SIGTERM && pod.Inside() && c.Shared():
				p.forward(n, s)
				n.Tell(s)
			case p.Signals.ReachNodes:
				told = p.stopJob(c, func(s syscall.Signal) { n.Tell(s) }, s, told)
			default:
				told = p.stopJob(c, c.Signal, s, told)
			}
		}
	}
}

// stopJob handles a signal while this process leads the job. It gives SIGUSR1 and SIGUSR2 to pass,
// which sends them to the ranks. The first stop signal ends the job in order; if it is a SIGTERM,
// the ranks have DrainTime first. A later stop signal ends that time, and a later ^C kills the
// ranks. told, and the result, say whether the job was told to stop.
func (p *Process) stopJob(c *rendezvous.Coordinator, pass func(syscall.Signal), s os.Signal, told bool) bool {
	if sig, ok := s.(syscall.Signal); ok && signals.ForRanks(sig) {
		if p.Signals.InSlurm {
			slurm.OnSignal(sig, p.Agent.Say, c.Stop)
		}
		pass(sig)
		return told
	}
	ev := job.Signalled(int(signals.Of(s)), "got "+signals.Name(s), 0)
	ev.Once = !told || !signals.FromKeyboard(s)
	if !told && s == syscall.SIGTERM {
		p.terminated(&ev, c.Stop)
	}
	c.Stop(ev)
	return true
}

func (p *Process) terminated(ev *job.Cancel, stop func(job.Cancel)) {
	ev.Within = p.Signals.DrainTime
	if p.Signals.InSlurm {
		slurm.OnTerm(ev, stop)
	}
}

// forward reports Slurm's warning, or its stop signal, to the leading node. This is needed if
// golaunch leads from the batch script, because Slurm may signal only the tasks of a step. Only the
// first node forwards.
func (p *Process) forward(n *signals.Node, s os.Signal) {
	if !p.Signals.ReachRanks || !p.Signals.First || !n.Joined() {
		return
	}
	tell := func(ev job.Cancel) { n.Leave <- agent.Departure{Why: ev.Why, Within: ev.Within, All: true} }
	if sig, ok := s.(syscall.Signal); ok && signals.ForRanks(sig) {
		slurm.OnSignal(sig, p.Agent.Say, tell)
		return
	}
	if s == syscall.SIGTERM && !n.Stopped() {
		ev := job.Signalled(int(syscall.SIGTERM), "got SIGTERM", 0)
		p.terminated(&ev, tell)
		if ev.Ending == report.EndPreempted {
			go tell(rendezvous.Preempted(ev.Why, max(ev.Within, time.Second), true))
		}
	}
}

// watchSpot makes this node leave in time when the cloud takes its machine back. The job ends if no
// other node can lead it.
func (p *Process) watchSpot(ctx context.Context, n *signals.Node) {
	spot.OnNotice(ctx, p.Signals.Spot, p.Agent.Warn, func(why string, within time.Duration) {
		if c := p.leads.Load(); c != nil && !c.Shared() {
			c.Stop(rendezvous.Preempted(why, within, false))
		} else {
			n.Depart(agent.Departure{Why: why, Within: within})
		}
	})
}
