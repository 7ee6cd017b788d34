package launcher

import (
	"context"
	"fmt"
	"iter"
	"math"
	"os"
	"slices"
	"time"

	"github.com/golaunch/golaunch/launcher/internal/reporter"
	"github.com/golaunch/golaunch/launcher/internal/trainjob"
	"github.com/golaunch/golaunch/launcher/report"
)

// Progress is how far a job has come, by the heartbeats of its ranks. Unknown values are NaN, or a
// zero time.
type Progress struct {
	// Step is the newest of any rank, of Total. StepTime is the median of the ranks', in seconds.
	Step, Total, StepTime float64
	// Still is for how many seconds no rank has told a step, if that is so long that the job stands
	// still; else 0.
	Still float64
	// Done is when the job ends at this pace; zero if it stands still.
	Done time.Time
}

// maxETA is the longest remaining time that is shown.
const maxETA = 10 * 365 * 24 * time.Hour

// ProgressOf is the progress that running ranks tell.
func ProgressOf(ranks []report.Usage, now time.Time) Progress {
	p := Progress{Step: math.NaN(), Total: math.NaN(), StepTime: math.NaN()}
	var times []float64
	newest := math.Inf(1)
	for _, r := range ranks {
		if r.StepTime > 0 {
			times = append(times, r.StepTime)
		}
		p.Step, p.Total = higher(p.Step, r.Step), higher(p.Total, r.Total)
		if r.BeatAge < newest {
			newest = r.BeatAge
		}
	}
	if len(times) > 0 {
		slices.Sort(times)
		p.StepTime = times[len(times)/2]
	}
	if !math.IsInf(newest, 1) && newest >= report.Late(p.StepTime) {
		p.Still = newest
		return p
	}
	if left := p.Total - p.Step; left >= 0 && left*p.StepTime < maxETA.Seconds() {
		p.Done = now.Add(time.Duration(left * p.StepTime * float64(time.Second)))
	}
	return p
}

// higher is the higher of two numbers, one of which may be NaN.
func higher(a, b float64) float64 {
	if math.IsNaN(a) || b > a {
		return b
	}
	return a
}

// String is the progress in one line: "step 120 of 1000, 2.3 steps a second, done at 14:32", or
// "step 120 of 1000, no heartbeat for 55s". It is empty if nothing is known.
func (p Progress) String() string {
	if math.IsNaN(p.Step) {
		return ""
	}
	text := fmt.Sprintf("step %.0f", p.Step)
	if p.Total > 0 {
		text += fmt.Sprintf(" of %.0f", p.Total)
	}
	switch {
	case p.Still > 0:
		return text + fmt.Sprintf(", no heartbeat for %v", time.Duration(p.Still)*time.Second)
	case !(p.StepTime > 0):
	case p.StepTime < 1:
		text += fmt.Sprintf(", %.3g steps a second", 1/p.StepTime)
	default:
		text += fmt.Sprintf(", %.3g s a step", p.StepTime)
	}
	if !p.Done.IsZero() {
		text += ", done " + when(p.Done, time.Now())
	}
	return text
}

// when is a time for people, in their zone: "at 14:32", "on Tue at 14:32", "on 2026-12-24".
func when(at, now time.Time) string {
	at, now = at.Local(), now.Local()
	switch {
	case at.YearDay() == now.YearDay() && at.Year() == now.Year():
		return "at " + at.Format("15:04")
	case at.Sub(now) < 6*24*time.Hour:
		return "on " + at.Format("Mon") + " at " + at.Format("15:04")
	}
	return "on " + at.Format(time.DateOnly)
}

// sampling is [Client.Samples], of one client or another.
type sampling func(context.Context, SampleQuery) iter.Seq2[NodeSamples, error]

// sampleHere asks the job's own coordinator, by its socket.
func sampleHere(ctx context.Context, q SampleQuery) iter.Seq2[NodeSamples, error] {
	return func(yield func(NodeSamples, error) bool) {
		c, err := connectLocal(ctx, q.Job)
		if err != nil {
			yield(NodeSamples{}, err)
			return
		}
		defer c.Close()
		c.Samples(ctx, q)(yield)
	}
}

// progressAfter is how long a job must last before golaunch tells how far it is.
const progressAfter = 2 * time.Second

// followProgress reports the job's progress until ctx ends: on the last line of a terminal, and to
// Kubeflow's Trainer. It asks no node if neither is there; it then returns nil.
func (l *localRun) followProgress(ctx context.Context, ask sampling) *progressReporter {
	trainer, err := trainjob.Here(os.Getenv)
	if err != nil {
		l.Warn(err)
	}
	shows := !l.Quiet && !l.JSON && l.job.Output.Torch == nil && l.HasStatus()
	if trainer == nil && !shows {
		return nil
	}
	p := &progressReporter{Reporter: l.Reporter, trainer: trainer, shows: shows, ranks: map[int]rankSeen{}}
	select {
	case <-time.After(progressAfter):
	case <-ctx.Done():
		return p
	}
	for ctx.Err() == nil { // a coordinator may be started again
		for n, err := range ask(ctx, SampleQuery{Job: l.job.ID, Every: time.Second}) {
			if err != nil {
				break // the job has ended, or its watch says why not
			}
			p.take(ctx, n, time.Now())
		}
		select {
		case <-time.After(progressAfter):
		case <-ctx.Done():
		}
	}
	if shows {
		l.Status("")
	}
	return p
}

// rankSeen is what a rank's node last reported of it, and when.
type rankSeen struct {
	report.Series
	at time.Time
}

// seenFor is how long such a report counts.
const seenFor = 10 * time.Second

// progressReporter reports a job's progress.
type progressReporter struct {
	*reporter.Reporter
	trainer *trainjob.Status
	shows   bool
	ranks   map[int]rankSeen
	told    time.Time
	pushed  time.Time
	failed  bool
	// unpushed is the newest progress if it was not pushed yet, or nil.
	unpushed *Progress
}

func (p *progressReporter) take(ctx context.Context, n NodeSamples, now time.Time) {
	for _, s := range n.Series {
		if s.Rank >= 0 {
			p.ranks[s.Rank] = rankSeen{s, now}
		}
	}
	if now.Sub(p.told) < time.Second/2 {
		return
	}
	p.told = now
	var running []report.Usage
	for rank, s := range p.ranks {
		if now.Sub(s.at) > seenFor { // its node was lost, or the job has fewer ranks now
			delete(p.ranks, rank)
			continue
		}
		if s.Exit == nil && len(s.Samples) > 0 {
			running = append(running, s.Samples[len(s.Samples)-1].Usage)
		}
	}
	progress := ProgressOf(running, now)
	if p.shows {
		p.Status(progress.String())
	}
	if p.trainer == nil || math.IsNaN(progress.Step) {
		return
	}
	if p.unpushed = &progress; now.Sub(p.pushed) >= trainjob.Every {
		p.pushed, p.unpushed = now, nil
		p.push(ctx, forTrainer(progress, now))
	}
}

// end reports the job's last progress to Kubeflow's Trainer.
func (p *progressReporter) end(ending report.Ending) {
	if p == nil || p.trainer == nil || ending == "" {
		return
	}
	ctx, now := context.Background(), time.Now() // a push has a limit of its own
	switch {
	case ending == report.EndSuccess:
		p.push(ctx, trainjob.Progress{Percent: 100, At: now})
	case p.unpushed != nil:
		last := forTrainer(*p.unpushed, now)
		last.Remaining = -1
		p.push(ctx, last)
	}
}

// forTrainer is progress in the terms of Kubeflow's Trainer.
func forTrainer(p Progress, now time.Time) trainjob.Progress {
	status := trainjob.Progress{Percent: -1, Remaining: -1, At: now}
	if p.Total > 0 {
		status.Percent = int(100 * p.Step / p.Total)
	}
	if !p.Done.IsZero() {
		status.Remaining = p.Done.Sub(now)
	}
	return status
}

// push warns of the first failure alone: the job does not depend on it.
func (p *progressReporter) push(ctx context.Context, progress trainjob.Progress) {
	err := p.trainer.Push(ctx, progress)
	if err != nil && !p.failed && ctx.Err() == nil {
		p.Warn(err)
	}
	p.failed = p.failed || err != nil
}
