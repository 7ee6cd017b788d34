package slurm

import (
	"fmt"
	"syscall"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/launcher/internal/signals"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/rendezvous"
)

// OnSignal finds out whether s, a signal for the ranks, is Slurm's warning of the job's end. If so,
// it calls stop, which makes the ranks get ready for that end. OnSignal itself returns at once.
func OnSignal(s syscall.Signal, say func(string), stop func(job.Cancel)) {
	go func() {
		end, known := jobEnd()
		left := "Slurm does not say how much time is left"
		if known {
			left = fmt.Sprintf("Slurm ends the job in %v", time.Until(end.At).Round(time.Second))
		}
		say(fmt.Sprintf("got %s, which goes to the ranks; %s", signals.Name(s), left))
		if within := time.Until(end.At).Truncate(time.Second); known && end.near() && within > 0 {
			stop(rendezvous.Preempted(end.String(), within, true))
		}
	}()
}

// OnTerm finds out whether the SIGTERM behind ev means that Slurm takes the nodes. If the
// environment shows this, OnTerm writes it into ev. Otherwise it asks the controller, and may call
// stop after it has returned.
func OnTerm(ev *job.Cancel, stop func(job.Cancel)) {
	within := max(ev.Within, time.Second)
	if end, known := EndFromEnv(); known && time.Until(end.At) < time.Minute {
		ev.Ending, ev.Why = report.EndPreempted, "got SIGTERM, "+end.String()
		return
	}
	go func() {
		if end, known := jobEnd(); known && end.near() && !end.Cancelled {
			stop(rendezvous.Preempted("got SIGTERM, "+end.String(), within, true))
		}
	}()
}
