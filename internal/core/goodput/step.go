package goodput

import (
	"cmp"
	"slices"
)

// sample is that a step was reached when that much had been trained and not lost.
type sample struct{ step, trained int64 }

// maxSteps bounds the samples. When there are more, every other goes, so that what is long ago is known less precisely.
const maxSteps = 256

// step takes that the job has come to a step. The first one after an interruption shows what that lost: all that was trained since the
// job was at this step before. A job that ends before it comes to a step again has lost nothing that is known.
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

// reached is how much had been trained when the job first came to a step, of which sample i is the first that is not before it.
// Between samples the steps are taken to be as long as each other; before the first one nothing is known, and all is lost.
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

// trained is what was trained and not lost until a time, at which the job trained, or was yet to stop.
func (l *Ledger) trained(at int64) int64 {
	sum := l.used[Training] - l.lost
	for _, u := range l.units {
		switch u.use {
		case Training:
			sum += max(0, u.until(at))
		case Stopping:
			sum += min(0, u.until(at))
		}
	}
	if n := len(l.steps); n > 0 {
		return max(sum, l.steps[n-1].trained)
	}
	return max(sum, 0)
}
