package launcher

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/agent"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/launcher/internal/spot"
	"github.com/golaunch/golaunch/rendezvous"
)

// hear passes on to the whole job what this process is told while it leads that; pass has USR1 and
// USR2 for the ranks. The first signal that stops has the coordinator stop the job in order, of a
// TERM after the time that ranks have to get ready. A later one ends that time, and from then on a
// person's ^C kills.
func (h *here) hear(c *rendezvous.Coordinator, pass func(syscall.Signal), s os.Signal) {
	if sig, ok := s.(syscall.Signal); ok && passedOn(sig) {
		h.job.warnOfEnd(sig, h.say, c.Stop)
		pass(sig)
		return
	}
	first := !h.told
	h.told = true
	ev := job.Signalled(number(s), "got "+name(s), 0)
	ev.Once = first || !typed(s)
	if first && s == syscall.SIGTERM {
		h.terminated(&ev, c.Stop)
	}
	c.Stop(ev)
}

// attend passes on what this process is told: to the whole job while it leads it, and to this node otherwise. Who started all nodes
// together sends each of them the signals for its ranks. A pod that is to go can be replaced, so that it leaves the job to the others if
// they can lead it; where all pods are, each of them leaves.
func (h *here) attend(f *follower) {
	for {
		select {
		case <-h.left:
			return
		case s, open := <-h.job.Stopping.Signals:
			c := h.leads.Load()
			switch {
			case !open:
				return
			case c == nil, s == syscall.SIGTERM && inPod() && c.Shared():
				h.forward(f, s)
				f.tell(s)
			case h.job.alike():
				h.hear(c, func(s syscall.Signal) { f.tell(s) }, s)
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

// follower passes on what this process is told while another node leads. The first stop makes this
// node leave in order, or give up joining; a later one ends the time that its ranks have to get
// ready, and a person's ^C kills them.
type follower struct {
	pass  chan syscall.Signal
	leave chan agent.Departure
	// within is how long ranks have to get ready after a SIGTERM.
	within time.Duration
	// all says that a stop is told to every node's process: then the job is to end.
	all    bool
	cancel context.CancelCauseFunc
	// member says that the coordinator has taken this node in, which joined hears if it is set.
	member atomic.Bool
	joined func()
	// stop is the number of the first signal that stops; 0 before. foretold says that the node leaves without one.
	stop     atomic.Int32
	foretold atomic.Bool
	// handOver, if set, is closed at a HUP, which then is no stop.
	handOver chan struct{}
}

func newFollower(cancel context.CancelCauseFunc) *follower {
	return &follower{pass: make(chan syscall.Signal, 8), leave: make(chan agent.Departure, 2), cancel: cancel}
}

func (f *follower) follow(signals <-chan os.Signal, left <-chan struct{}, tell func(os.Signal)) {
	for {
		select {
		case <-left:
			return
		case s, open := <-signals:
			if !open {
				return
			}
			tell(s)
		}
	}
}

// watchSpot has this node leave in time when the cloud takes its machine back, and the job end when no other node can lead it then.
func (h *here) watchSpot(ctx context.Context, f *follower) {
	watchSpot(ctx, h.job.Stopping.Spot, h.warn, func(d agent.Departure) {
		if c := h.leads.Load(); c != nil && !c.Shared() {
			c.Stop(rendezvous.Preempted(d.Why, d.Within, false))
		} else if f != nil {
			f.depart(d)
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

// depart has this node leave the job, which a stop may hasten, or give up joining.
func (f *follower) depart(d agent.Departure) {
	switch {
	case f.stop.Load() != 0 || f.foretold.Swap(true):
	case f.member.Load():
		f.leave <- d
	default:
		f.cancel(errors.New(d.Why))
	}
}

// spotMargin is how long before the end of a machine its ranks are stopped.
const spotMargin = 15 * time.Second

// tell never waits: a stop must get past whatever else was sent.
func (f *follower) tell(s os.Signal) {
	if sig, ok := s.(syscall.Signal); ok && passedOn(sig) {
		select {
		case f.pass <- sig:
		default: // several are one, as for the kernel
		}
		return
	}
	first := f.stop.CompareAndSwap(0, int32(number(s)))
	switch d := (agent.Departure{Why: "got " + name(s), All: f.all, Signal: signalOf(s)}); {
	case s == syscall.SIGHUP && f.handOver != nil:
		if first {
			close(f.handOver)
		}
	case !f.member.Load(), !first && typed(s):
		f.cancel(errors.New(d.Why))
	case first && s == syscall.SIGTERM:
		d.Within = f.within
		f.leave <- d
	default:
		select {
		case f.leave <- d:
		default: // it is to leave at once already
		}
	}
}

// welcome hears that the coordinator has taken this node in.
func (f *follower) welcome() {
	f.member.Store(true)
	if f.joined != nil {
		f.joined()
	}
}

// code is the exit code of a node that was told to stop; 0 when it was not.
func (f *follower) code() int {
	switch n := f.stop.Load(); {
	case n != 0:
		return 128 + int(n)
	case f.foretold.Load():
		return 128 + int(syscall.SIGTERM)
	}
	return 0
}

// passedOn says that a signal is not a stop but goes to the ranks.
func passedOn(s os.Signal) bool { return s == syscall.SIGUSR1 || s == syscall.SIGUSR2 }

// typed says that a person sends such a signal, by a key of a terminal.
func typed(s os.Signal) bool { return s == syscall.SIGINT || s == syscall.SIGQUIT }

// stopSignal stops the job, whatever it is.
type stopSignal struct{ by syscall.Signal }

func (s stopSignal) String() string { return s.by.String() }

// Signal makes it an [os.Signal].
func (s stopSignal) Signal() {}

// signalOf is the signal itself.
func signalOf(s os.Signal) syscall.Signal {
	if stop, ok := s.(stopSignal); ok {
		return stop.by
	}
	sig, _ := s.(syscall.Signal)
	return sig
}

func number(s os.Signal) int { return int(signalOf(s)) }

func name(s os.Signal) string {
	if name := unix.SignalName(signalOf(s)); name != "" {
		return name
	}
	return s.String()
}
