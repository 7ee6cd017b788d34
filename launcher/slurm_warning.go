package launcher

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/golaunch/golaunch/agent"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/rendezvous"
)

// nearEnd is how soon Slurm must end a job for a signal to be the warning of that (sbatch(1), --signal): who asks the ranks for a
// checkpoint with so little left is not wrong about the end either.
const nearEnd = 10 * time.Minute

// foretell has the ranks get ready for the end of the job when the signal is Slurm's warning of that.
func (j Job) foretell(s syscall.Signal, say func(string), stop func(job.Cancel)) {
	if !j.inSlurm() {
		return
	}
	go func() {
		end, known := slurmEnd()
		left := "Slurm does not tell how much time is left"
		if known {
			left = fmt.Sprintf("Slurm ends the job in %v", time.Until(end.at).Round(time.Second))
		}
		say(fmt.Sprintf("got %s, which goes to the ranks; %s", name(s), left))
		if within := time.Until(end.at).Truncate(time.Second); known && end.near() && within > 0 {
			stop(rendezvous.Preempted(end.why(), within, true))
		}
	}()
}

// forward has the node that leads hear of a warning, or of the reason to stop, that Slurm gives to
// its steps alone: then golaunch in the script does not. One node does that for all.
func (h *here) forward(f *follower, s os.Signal) {
	if !h.job.reached() || h.job.place.Node > 0 || !f.member.Load() {
		return
	}
	tell := func(ev job.Cancel) { f.leave <- agent.Departure{Why: ev.Why, Within: ev.Within, All: true} }
	if sig, ok := s.(syscall.Signal); ok && passedOn(sig) {
		h.job.foretell(sig, h.say, tell)
		return
	}
	if s == syscall.SIGTERM && f.stop.Load() == 0 {
		ev := job.Signalled(int(syscall.SIGTERM), "got SIGTERM", 0)
		h.terminated(&ev, tell)
		if ev.Ending == report.EndPreempted {
			go tell(rendezvous.Preempted(ev.Why, max(ev.Within, time.Second), true))
		}
	}
}

// terminated gives ranks the time to get ready that the first TERM leaves them, and finds out whether it is Slurm that takes the nodes. Unless
// the environment tells, that may take a while, and nothing waits for it.
func (h *here) terminated(ev *job.Cancel, stop func(job.Cancel)) {
	ev.Within = h.job.Stopping.DrainTime
	if !h.job.inSlurm() {
		return
	}
	within := max(ev.Within, time.Second)
	if end, known := slurmEnv(); known && time.Until(end.at) < time.Minute {
		ev.Ending, ev.Why = report.EndPreempted, "got SIGTERM, "+end.why()
		return
	}
	go func() {
		if end, known := slurmEnd(); known && end.near() && !end.cancelled {
			stop(rendezvous.Preempted("got SIGTERM, "+end.why(), within, true))
		}
	}()
}

func (j Job) inSlurm() bool { return j.place != nil && j.place.By == "Slurm" }

// slurmTime is when Slurm ends the job; cancelled says that somebody asked for that.
type slurmTime struct {
	at        time.Time
	cancelled bool
}

func (t slurmTime) near() bool { return time.Until(t.at) < nearEnd }

func (t slurmTime) why() string { return "Slurm ends the job at " + t.at.Format(time.TimeOnly) }

// slurmEnd is what the controller says, who may have changed it since the job began, or else the environment.
func slurmEnd() (slurmTime, bool) {
	out, err := slurmJob(context.Background())
	match := endTime.Get().FindSubmatch(out)
	if err != nil || match == nil {
		return slurmEnv()
	}
	at, err := time.ParseInLocation("2006-01-02T15:04:05", string(match[1]), time.Local)
	return slurmTime{at, cancelled.Get().Match(out)}, err == nil
}

// slurmEnv is what Slurm has said at the start, from 23.02 on.
func slurmEnv() (slurmTime, bool) {
	s, err := strconv.ParseInt(os.Getenv("SLURM_JOB_END_TIME"), 10, 64)
	return slurmTime{at: time.Unix(s, 0)}, err == nil
}
