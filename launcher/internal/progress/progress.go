// Package progress follows the progress of a job, and reports it on a terminal and to Kubeflow's
// Trainer.
package progress

import (
	"context"
	"iter"
	"math"
	"os"
	"time"

	"github.com/golaunch/golaunch/launcher/internal/reporter"
	"github.com/golaunch/golaunch/launcher/internal/trainjob"
	"github.com/golaunch/golaunch/launcher/report"
)

// startsAfter is how long a job must last before golaunch reports its progress.
const startsAfter = 2 * time.Second

// Samples asks a job's nodes what they measure, until the job or ctx ends, or an error occurs.
type Samples func(ctx context.Context) iter.Seq2[[]report.Series, error]

// Follow reports the job's progress until ctx ends: on the last line of a terminal if shows says
// so, and to Kubeflow's Trainer. If the progress goes to neither, Follow asks no node and returns
// nil.
func Follow(ctx context.Context, r *reporter.Reporter, shows bool, ask Samples) *Follower {
	trainer, err := trainjob.Here(os.Getenv)
	if err != nil {
		r.Warn(err)
	}
	shows = shows && !r.Quiet && !r.JSON && r.HasStatus()
	if trainer == nil && !shows {
		return nil
	}
	p := &Follower{Reporter: r, trainer: trainer, shows: shows, ranks: map[int]rankSeen{}}
	select {
	case <-time.After(startsAfter):
	case <-ctx.Done():
		return p
	}
	for ctx.Err() == nil { // so that Follow continues when a coordinator is started again
		for series, err := range ask(ctx) {
			if err != nil {
				break // the job has ended, or its watch reports the error
			}
			p.take(ctx, series, time.Now())
		}
		select {
		case <-time.After(startsAfter):
		case <-ctx.Done():
		}
	}
	if shows {
		r.Status("")
	}
	return p
}

// rankSeen is the last report of a node about a rank, and when it arrived.
type rankSeen struct {
	report.Series
	at time.Time
}

// seenFor is how long the last report about a rank counts.
const seenFor = 10 * time.Second

// Follower follows a job's progress.
type Follower struct {
	*reporter.Reporter
	trainer *trainjob.Status
	shows   bool
	ranks   map[int]rankSeen
	told    time.Time
	pushed  time.Time
	failed  bool
	// unpushed is the newest progress if it has not been pushed to the Trainer yet, else nil.
	unpushed *report.Progress
}

func (p *Follower) take(ctx context.Context, series []report.Series, now time.Time) {
	for _, s := range series {
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
		if now.Sub(s.at) > seenFor { // the rank's node was lost, or the job has fewer ranks now
			delete(p.ranks, rank)
			continue
		}
		if s.Exit == nil && len(s.Samples) > 0 {
			running = append(running, s.Last().Usage)
		}
	}
	progress := report.ProgressOf(running, now)
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

// End reports the job's last progress to Kubeflow's Trainer.
func (p *Follower) End(ending report.Ending) {
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

// forTrainer translates progress into the terms of Kubeflow's Trainer.
func forTrainer(p report.Progress, now time.Time) trainjob.Progress {
	status := trainjob.Progress{Percent: -1, Remaining: -1, At: now}
	if p.Total > 0 {
		status.Percent = int(100 * p.Step / p.Total)
	}
	if !p.Done.IsZero() {
		status.Remaining = p.Done.Sub(now)
	}
	return status
}

// push sends progress to the Trainer. It warns only of the first failure, because the job does not
// depend on pushes.
func (p *Follower) push(ctx context.Context, progress trainjob.Progress) {
	err := p.trainer.Push(ctx, progress)
	if err != nil && !p.failed && ctx.Err() == nil {
		p.Warn(err)
	}
	p.failed = p.failed || err != nil
}
