package launcher

import (
	"context"
	"os"
	"syscall"
	"time"

	"github.com/golaunch/golaunch/agent"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/launcher/internal/pod"
	"github.com/golaunch/golaunch/launcher/internal/signals"
	"github.com/golaunch/golaunch/launcher/internal/spot"
	"github.com/golaunch/golaunch/rendezvous"
)

// hear passes on to the whole job what this process is told while it leads that; pass has USR1 and
// USR2 for the ranks. The first signal that stops has the coordinator stop the job in order, of a
// TERM after the time that ranks have to get ready. A later one ends that time, and from then on a
// person's ^C kills.
func (h *here) hear(c *rendezvous.Coordinator, pass func(syscall.Signal), s os.Signal) {
	if sig, ok := s.(syscall.Signal); ok && signals.ForRanks(sig) {
		h.job.warnOfEnd(sig, h.say, c.Stop)
		pass(sig)
		return
	}
	first := !h.told
	h.told = true
	ev := job.Signalled(int(signals.Of(s)), "got "+signals.Name(s), 0)
	ev.Once = first || !signals.FromKeyboard(s)
	if first && s == syscall.SIGTERM {
		h.terminated(&ev, c.Stop)
	}
	c.Stop(ev)
}

// attend passes on what this process is told: to the whole job while it leads it, and to this node otherwise. Who started all nodes
// together sends each of them the signals for its ranks. A pod that is to go can be replaced, so that it leaves the job to the others if
// they can lead it; where all pods are, each of them leaves.
func (h *here) attend(f *signals.Node) {
	for {
		select {
		case <-h.left:
			return
		case s, open := <-h.job.Stopping.Signals:
			c := h.leads.Load()
			switch {
			case !open:
				return
			case c == nil, s == syscall.SIGTERM && pod.Inside() && c.Shared():
				h.forward(f, s)
				f.Tell(s)
			case h.job.alike():
				h.hear(c, func(s syscall.Signal) { f.Tell(s) }, s)
			default:
				h.hear(c, c.Signal, s)
			}
		}
	}
}

// alike says that who sends a signal to this process sends it to the other nodes too, or to the ranks: a scheduler has started them all.
func (j Job) alike() bool {
	return j.reached() || j.place != nil && j.place.Each && j.Network.Rendezvous == ""
}

// reached says that the ranks hear what this process is sent: Slurm signals all processes of a step, not only its tasks.
func (j Job) reached() bool { return j.place != nil && j.place.By == "Slurm" && j.place.Each }

// watchSpot has this node leave in time when the cloud takes its machine back, and the job end when no other node can lead it then.
func (h *here) watchSpot(ctx context.Context, f *signals.Node) {
	watchSpot(ctx, h.job.Stopping.Spot, h.warn, func(d agent.Departure) {
		if c := h.leads.Load(); c != nil && !c.Shared() {
			c.Stop(rendezvous.Preempted(d.Why, d.Within, false))
		} else if f != nil {
			f.Depart(d)
		}
	})
}

// watchSpot says when the cloud takes this machine back, which it is asked unless it has no name.
func watchSpot(ctx context.Context, cloud string, warn func(error), leave func(agent.Departure)) {
	if cloud == "" {
		return
	}
	go func() {
		n, err := spot.Watch(ctx, cloud, warn)
		if err != nil {
			return // ctx has ended
		}
		left := time.Until(n.At)
		leave(agent.Departure{Why: n.Why, Within: left - min(left/3, spotMargin)})
	}()
}

// spotMargin is how long before the end of a machine its ranks are stopped.
const spotMargin = 15 * time.Second
