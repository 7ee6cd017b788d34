package top

import (
	"math"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/units"
	"github.com/golaunch/golaunch/launcher/report"
)

// mean returns the mean of the known values.
func mean[T any](all []T, of func(T) float64) float64 {
	sum, n := 0.0, 0
	for _, v := range all {
		if x := of(v); units.Known(x) {
			sum, n = sum+x, n+1
		}
	}
	if n == 0 {
		return math.NaN()
	}
	return sum / float64(n)
}

// paceOf returns the time of a step, or the time since the last step if that is longer.
func paceOf(u *report.Usage) float64 {
	if u.BeatAge > u.StepTime {
		return u.BeatAge
	}
	return u.StepTime
}

func stepTimeOf(u *report.Usage) float64 { return u.StepTime }
func beatAgeOf(u *report.Usage) float64  { return u.BeatAge }
func useOf(u *report.Usage) float64      { return u.GPUUse }
func powerOf(u *report.Usage) float64    { return u.GPUPower }
func cpusOf(u *report.Usage) float64     { return u.CPUs }
func memoryOf(u *report.Usage) float64   { return u.Memory }
