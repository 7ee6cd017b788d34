package report

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Progress is the progress of a job, according to the heartbeats of its ranks. Unknown values are
// NaN, or a zero time.
type Progress struct {
	// Step is the newest step of any rank, and Total the number of steps. StepTime is the median of
	// the ranks' step times, in seconds.
	Step, Total, StepTime float64
	// Still is the number of seconds since a rank reported a step. It is 0 until that is so long
	// that the job counts as standing still.
	Still float64
	// Done is when the job will end if its pace stays the same; zero if the job stands still.
	Done time.Time
}

// maxETA is the longest remaining time for which Done is set.
const maxETA = 10 * 365 * 24 * time.Hour

// ProgressOf returns the progress that running ranks report.
func ProgressOf(ranks []Usage, now time.Time) Progress {
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
	if !math.IsInf(newest, 1) && newest >= (Usage{StepTime: p.StepTime}).Late() {
		p.Still = newest
		return p
	}
	if left := p.Total - p.Step; left >= 0 && left*p.StepTime < maxETA.Seconds() {
		p.Done = now.Add(time.Duration(left * p.StepTime * float64(time.Second)))
	}
	return p
}

// higher is the higher of two numbers. One of them may be NaN.
func higher(a, b float64) float64 {
	if math.IsNaN(a) || b > a {
		return b
	}
	return a
}

// String returns the progress in one line: "step 120 of 1000, 2.3 steps a second, done at 14:32",
// or "step 120 of 1000, no heartbeat for 55s". It is empty if nothing is known.
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

// when returns a time for people, in their time zone: "at 14:32", "on Tue at 14:32", "on
// 2026-12-24".
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
