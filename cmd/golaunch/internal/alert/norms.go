package alert

import (
	"math"
	"time"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/units"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
	"github.com/golaunch/golaunch/launcher/report"
)

// Norms are the medians of the running ranks of a job; NaN where unknown.
type Norms struct {
	ranks                            int
	StepTime, use, power, PowerLimit float64
	powerSpread, CPUs, Memory        float64
	// BeatAge and SilenceAge are the ages of the newest heartbeat and the newest line of any rank,
	// in seconds.
	BeatAge, SilenceAge float64
	// step is the highest step that any rank has reported, and at is the time of that sample.
	step float64
	at   time.Time
}

func normsOf(ranks []*view.Rank) Norms {
	n := Norms{step: math.NaN(), BeatAge: math.NaN(), SilenceAge: math.NaN(), PowerLimit: math.NaN(), CPUs: math.NaN(), Memory: math.NaN()}
	var times, uses, powers []float64
	for _, r := range ranks {
		if r.Exit != nil {
			continue
		}
		n.ranks++
		times, uses, powers = addKnown(times, r.Now.StepTime), addKnown(uses, r.Now.GPUUse), addKnown(powers, r.Now.GPUPower)
		n.add(r)
	}
	n.StepTime, n.use, n.power = units.Median(times), units.Median(uses), units.Median(powers)
	for i := range powers {
		powers[i] = math.Abs(powers[i] - n.power)
	}
	n.powerSpread = units.Median(powers)
	return n
}

func (n *Norms) add(r *view.Rank) {
	if r.Now.Step > n.step || units.Known(r.Now.Step) && !units.Known(n.step) {
		n.step = r.Now.Step
		if len(r.Samples) > 0 {
			n.at = r.Samples[len(r.Samples)-1].At
		}
	}
	n.BeatAge = lowest(n.BeatAge, r.Now.BeatAge)
	if r.Now.LogBytes != 0 { // before the first line, SilenceAge is the age of the rank
		n.SilenceAge = lowest(n.SilenceAge, r.Now.SilenceAge)
	}
	n.PowerLimit, n.CPUs = highest(n.PowerLimit, r.Now.GPUPowerLimit), highest(n.CPUs, r.Now.CPUs)
	n.Memory = highest(n.Memory, r.Now.Memory)
}

func addKnown(all []float64, v float64) []float64 {
	if units.Known(v) {
		all = append(all, v)
	}
	return all
}

// highest returns the higher known value.
func highest(a, b float64) float64 {
	if !units.Known(a) || b > a {
		return b
	}
	return a
}

// lowest returns the lower known value.
func lowest(a, b float64) float64 {
	if !units.Known(a) || b < a {
		return b
	}
	return a
}

// Late and stuck are the ages of a heartbeat, in seconds, from which it is late, or its rank stuck.
func (n *Norms) Late() float64  { return report.Usage{StepTime: n.StepTime}.Late() }
func (n *Norms) stuck() float64 { return max(stuckAfter.Seconds(), n.Steps(stuckSteps)) }

// Steps is the time that a number of steps takes, in seconds; 0 if unknown.
func (n *Norms) Steps(number float64) float64 {
	if !units.Known(n.StepTime) {
		return 0
	}
	return number * n.StepTime
}
