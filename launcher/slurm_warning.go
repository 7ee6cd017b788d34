package launcher

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/golaunch/golaunch/agent"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/launcher/internal/signals"
	"github.com/golaunch/golaunch/launcher/internal/slurm"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/rendezvous"
)

// warnOfEnd has the ranks get ready for the end of the job if the signal is Slurm's warning of it.
func (j Job) warnOfEnd(s syscall.Signal, say func(string), stop func(job.Cancel)) {
	if !j.inSlurm() {
		return
	}
	go func() {
		end, known := slurm.JobEnd()
		left := "Slurm does not tell how much time is left"
		if known {
			left = fmt.Sprintf("Slurm ends the job in %v", time.Until(end.At).Round(time.Second))
		}
		say(fmt.Sprintf("got %s, which goes to the ranks; %s", signals.Name(s), left))
		if within := time.Until(end.At).Truncate(time.Second); known && end.Near() && within > 0 {
			stop(rendezvous.Preempted(end.String(), within, true))
		}
	}()
}

// forward tells the leading node of a warning or a stop that Slurm gives to the tasks of a step
// alone, since golaunch in the batch script does not hear it. Node 0 does so for all.
func (h *here) forward(f *signals.Node, s os.Signal) {
	if !h.job.reached() || h.job.place.Node > 0 || !f.Joined() {
		return
	}
	tell := func(ev job.Cancel) { f.Leave <- agent.Departure{Why: ev.Why, Within: ev.Within, All: true} }
	if sig, ok := s.(syscall.Signal); ok && signals.ForRanks(sig) {
		h.job.warnOfEnd(sig, h.say, tell)
		return
	}
	if s == syscall.SIGTERM && !f.Stopped() {
		ev := job.Signalled(int(syscall.SIGTERM), "got SIGTERM", 0)
		h.terminated(&ev, tell)
		if ev.Ending == report.EndPreempted {
			go tell(rendezvous.Preempted(ev.Why, max(ev.Within, time.Second), true))
		}
	}
}

// terminated gives the ranks the time to get ready that a first SIGTERM leaves them, and finds out
// whether Slurm takes the nodes. Unless the environment tells, the answer comes later, through stop.
func (h *here) terminated(ev *job.Cancel, stop func(job.Cancel)) {
	ev.Within = h.job.Stopping.DrainTime
	if !h.job.inSlurm() {
		return
	}
	within := max(ev.Within, time.Second)
	if end, known := slurm.EndFromEnv(); known && time.Until(end.At) < time.Minute {
		ev.Ending, ev.Why = report.EndPreempted, "got SIGTERM, "+end.String()
		return
	}
	go func() {
		if end, known := slurm.JobEnd(); known && end.Near() && !end.Cancelled {
			stop(rendezvous.Preempted("got SIGTERM, "+end.String(), within, true))
		}
	}()
}

func (j Job) inSlurm() bool { return j.place != nil && j.place.By == "Slurm" }
