package top

import (
	"math"
	"slices"
	"time"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
	"github.com/golaunch/golaunch/launcher"
)

// norms are what is usual among the ranks of a job that run: medians, and NaN where nothing is known.
type norms struct {
	ranks                            int
	stepTime, use, power, powerLimit float64
	powerSpread, cpus, memory        float64
	// beatAge and silenceAge are of the newest heartbeat and line of output of any rank.
	beatAge, silenceAge float64
	// step is the newest of any rank, as it was known at a time.
	step float64
	at   time.Time
}

func normsOf(ranks []*view.Rank) norms {
	n := norms{step: math.NaN(), beatAge: math.NaN(), silenceAge: math.NaN(), powerLimit: math.NaN(), cpus: math.NaN(), memory: math.NaN()}
	var times, uses, powers []float64
	for _, r := range ranks {
		if r.Ended != "" {
			continue
		}
		n.ranks++
		times, uses, powers = addKnown(times, r.Now.StepTime), addKnown(uses, r.Now.GPUUse), addKnown(powers, r.Now.GPUPower)
		n.add(r)
	}
	n.stepTime, n.use, n.power = median(times), median(uses), median(powers)
	for i := range powers {
		powers[i] = math.Abs(powers[i] - n.power)
	}
	n.powerSpread = median(powers)
	return n
}

func (n *norms) add(r *view.Rank) {
	if r.Now.Step > n.step || known(r.Now.Step) && !known(n.step) {
		n.step = r.Now.Step
		if len(r.Samples) > 0 {
			n.at = r.Samples[len(r.Samples)-1].At
		}
	}
	n.beatAge, n.silenceAge = lowest(n.beatAge, r.Now.BeatAge), lowest(n.silenceAge, r.Now.SilenceAge)
	n.powerLimit, n.cpus = highest(n.powerLimit, r.Now.GPUPowerLimit), highest(n.cpus, r.Now.CPUs)
	n.memory = highest(n.memory, r.Now.Memory)
}

func addKnown(all []float64, v float64) []float64 {
	if known(v) {
		all = append(all, v)
	}
	return all
}

// highest is the higher one of those that are known.
func highest(a, b float64) float64 {
	if !known(a) || b > a {
		return b
	}
	return a
}

// lowest is the lower one of those that are known.
func lowest(a, b float64) float64 {
	if !known(a) || b < a {
		return b
	}
	return a
}

// late and stuck are after how many seconds without a heartbeat one is said to be so.
func (n *norms) late() float64  { return max(lateAfter.Seconds(), n.steps(lateSteps)) }
func (n *norms) stuck() float64 { return max(stuckAfter.Seconds(), n.steps(stuckSteps)) }

// steps is what so many take, in seconds; 0 where that is not known.
func (n *norms) steps(number float64) float64 {
	if !known(n.stepTime) {
		return 0
	}
	return number * n.stepTime
}

func median(all []float64) float64 {
	if len(all) == 0 {
		return math.NaN()
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// mean is of what is known of several.
func mean[T any](all []T, of func(T) float64) float64 {
	sum, n := 0.0, 0
	for _, v := range all {
		if x := of(v); known(x) {
			sum, n = sum+x, n+1
		}
	}
	if n == 0 {
		return math.NaN()
	}
	return sum / float64(n)
}

// paceOf is the time of a step, or since the last one where that is longer.
func paceOf(u *launcher.Usage) float64 {
	if u.BeatAge > u.StepTime {
		return u.BeatAge
	}
	return u.StepTime
}

func stepTimeOf(u *launcher.Usage) float64 { return u.StepTime }
func beatAgeOf(u *launcher.Usage) float64  { return u.BeatAge }
func useOf(u *launcher.Usage) float64      { return u.GPUUse }
func powerOf(u *launcher.Usage) float64    { return u.GPUPower }
func cpusOf(u *launcher.Usage) float64     { return u.CPUs }
func memoryOf(u *launcher.Usage) float64   { return u.Memory }
