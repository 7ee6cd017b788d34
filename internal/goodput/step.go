package goodput

import (
	"cmp"
	"slices"
	"time"
)

// sample is that a step was reached when that much had been trained and not lost.
type sample struct{ step, trained int64 }

// maxSteps bounds the samples. When there are more, every other goes, so that what is long ago is known less precisely.
const maxSteps = 256

// Step tells that the whole job, which is one unit, has come to a step. The first one after an interruption shows what that lost: all
// that was trained since the job was at this step before. A job that ends before it comes to a step again has lost nothing that is
// known.
func (l *Ledger) Step(at time.Time, step int64) {
	trained := l.trained(l.clock(at))
	i, _ := slices.BinarySearchFunc(l.steps, step, func(s sample, step int64) int { return cmp.Compare(s.step, step) })
	if back := l.back; i < len(l.steps) {
		if back == nil {
			return // the same step again
		}
		lost := trained - l.steps[i].trained
		l.lost += lost
		back.lost += lost
		trained = l.steps[i].trained
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

// trained is what was trained and not lost.
func (l *Ledger) trained(now int64) int64 {
	sum := l.used[Training] - l.lost
	for _, u := range l.units {
		if u.use == Training {
			sum += u.until(now)
		}
	}
	return sum
}
