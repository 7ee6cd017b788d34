package goodput

import (
	"cmp"
	"slices"
	"time"
)

// sample is the training time, without lost time, until a step was reached.
type sample struct{ step, trained int64 }

// maxSteps bounds the samples. If there are more, every other sample is dropped, so old ones are
// less precise.
const maxSteps = 256

// step records that the job has reached a step. The first step after an interruption shows what the
// interruption lost: not only the training since the last checkpoint, but all training since the
// job first reached this step. If the job ends before it makes a step, no further loss is known.
func (l *Ledger) step(at, step int64) {
	trained := l.trained(at)
	i, _ := slices.BinarySearchFunc(l.steps, step, func(s sample, step int64) int { return cmp.Compare(s.step, step) })
	if i < len(l.steps) {
		if l.back == nil {
			return // the same step again
		}
		before := min(l.reached(i, step), trained)
		l.lost += trained - before
		l.back.lost += trained - before
		trained = before
		l.saved = min(l.saved, trained)
		l.steps = l.steps[:i]
	}
	l.back = nil
	if len(l.steps) == maxSteps {
		for i := range maxSteps / 2 {
			l.steps[i] = l.steps[2*i]
		}
		l.steps = l.steps[:maxSteps/2]
	}
	l.steps = append(l.steps, sample{step, trained})
}

// loseSince charges an account for all training since a checkpoint. saved is the training time
// until that checkpoint began.
func (l *Ledger) loseSince(saved int64, blame *account) {
	lost := max(0, l.trained(l.now)-saved)
	l.lost += lost
	blame.lost += lost
	l.steps = slices.DeleteFunc(l.steps, func(s sample) bool { return s.trained > saved })
}

// AtRisk returns for how long a job, which is one unit, has trained since the newest complete
// checkpoint began, or since its start.
func (l *Ledger) AtRisk(at time.Time) time.Duration {
	if l.ranks == 0 {
		return 0
	}
	return time.Duration(max(0, l.trained(max(l.now, at.UnixMilli()))-l.saved)/l.ranks) * time.Millisecond
}

// reached returns the training time when the job first reached a step. Sample i is the first sample
// that is not before the step. Steps between samples are assumed to be equally long. Before the
// first sample nothing is known, so all training counts as lost.
func (l *Ledger) reached(i int, step int64) int64 {
	to := l.steps[i]
	switch {
	case to.step == step:
		return to.trained
	case i == 0:
		return 0
	}
	from := l.steps[i-1]
	return from.trained + int64(float64(to.trained-from.trained)*float64(step-from.step)/float64(to.step-from.step))
}

// trained returns the training time, without lost time, until a time. The job must still have been
// training at that time, and the time must not be before the newest step.
func (l *Ledger) trained(at int64) int64 {
	if n := len(l.steps); n > 0 {
		return max(l.trainedUntil(at), l.steps[n-1].trained)
	}
	return l.trainedUntil(at)
}

func (l *Ledger) trainedUntil(at int64) int64 {
	sum := l.used[Training] - l.lost
	for _, u := range l.units {
		switch u.use {
		case Training:
			sum += max(0, u.until(at))
		case Stopping:
			sum += min(0, u.until(at))
		}
	}
	return max(sum, 0)
}
