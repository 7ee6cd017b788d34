package metrics

import (
	"math"
	"time"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/units"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
	"github.com/golaunch/golaunch/launcher/report"
)

// phases are the states of a job.
var phases = []string{"gathering", "preparing", "running", "stopping", "backoff", "finished"}

// job shows the state of a job.
func (s sheet) job(j *job) {
	kind := "job"
	if j.Reserve {
		kind = "reservation"
	}
	s.set(jobInfo, 1, j.id, clean(j.Title, maxText), kind)
	s.each(jobState, phases, map[string]int{j.Phase: 1}, j.id)
	s.set(submitted, seconds(j.Submitted), j.id)
	s.set(restarts, float64(j.Restarts), j.id)
	s.set(maxRestarts, float64(j.MaxRestarts), j.id)
	s.starts(j)
	if !j.over() {
		s.set(jobNodes, float64(len(j.Nodes)), j.id)
		s.set(jobGPUs, float64(j.GPUs), j.id)
		s.each(ranks, []string{"running", "ended", "silent", "pending"}, rankStates(j), j.id)
		return
	}
	ending := ""
	if j.Result != nil {
		ending = clean(string(j.Result.Ending), maxName)
		s.set(exitCode, float64(j.Result.Code), j.id)
	}
	s.set(finished, seconds(j.Finished), j.id, ending)
}

func rankStates(j *job) map[string]int {
	states := map[string]int{"running": len(j.fresh)}
	for _, r := range j.mine {
		if r.Exit != nil {
			states["ended"]++
		}
	}
	rest := "pending"
	if j.Phase == "running" || j.Phase == "stopping" {
		rest = "silent"
	}
	states[rest] = max(0, j.JobStatus.Ranks-states["running"]-states["ended"])
	return states
}

// starts shows how long the newest starts took.
func (s sheet) starts(j *job) {
	for phase, took := range startTimes(j.JobStatus) {
		s.set(starting, took.Seconds(), j.id, phase)
	}
}

// startTimes returns how long each phase of the newest starts took, according to the job's history.
// The metric is a gauge and not a histogram: the coordinator forgets old entries of the history,
// and a histogram's counts must not fall.
func startTimes(j report.JobStatus) map[string]time.Duration {
	took := map[string]time.Duration{}
	var began, failed time.Time
	first := true
	for _, m := range j.History {
		switch m.To {
		case "":
			continue
		case "starting": // there is one for each condition that a start waits for
			if first && m.Attempt <= 0 {
				took["queued"] = max(0, m.At.Sub(j.Submitted))
			}
			began = earlier(began, m.At)
		case "training":
			if !began.IsZero() {
				took["starting"] = max(0, m.At.Sub(began))
			}
			if !failed.IsZero() {
				took["recovery"] = max(0, m.At.Sub(failed))
			}
			began, failed = time.Time{}, time.Time{}
		default:
			began, failed = time.Time{}, earlier(failed, m.At)
		}
		first = false
	}
	return took
}

// earlier returns the time noted, or now if noted is zero.
func earlier(noted, now time.Time) time.Time {
	if noted.IsZero() {
		return now
	}
	return noted
}

// live shows the measurements of a job's ranks.
func (s sheet) live(j *job) {
	if j.over() {
		return
	}
	s.progress(j)
	of := func(value func(report.Usage) float64) []float64 {
		return known(j.fresh, func(r *view.Rank) float64 { return value(r.Now) })
	}
	gpus := eachGPU(j.fresh)
	ofGPU := func(value func(report.Usage) float64) []float64 {
		return known(gpus, func(r *view.Rank) float64 { return value(r.Now) })
	}
	s.set(cpus, sum(of(func(u report.Usage) float64 { return u.CPUs })), j.id)
	s.set(memory, sum(of(func(u report.Usage) float64 { return u.Memory })), j.id)
	use, power := ofGPU(func(u report.Usage) float64 { return u.GPUUse }), ofGPU(func(u report.Usage) float64 { return u.GPUPower })
	s.set(gpuUseMean, units.Mean(use), j.id)
	s.set(gpuUseMin, least(use), j.id)
	s.set(gpuMemory, sum(ofGPU(func(u report.Usage) float64 { return u.GPUMemory })), j.id)
	s.set(gpuMemoryAll, sum(ofGPU(func(u report.Usage) float64 { return u.GPUMemoryTotal })), j.id)
	s.set(gpuMemoryMax, most(ofGPU(func(u report.Usage) float64 { return u.GPUMemory / u.GPUMemoryTotal })), j.id)
	s.set(gpuPower, sum(power), j.id)
	s.set(gpuPowerMin, least(power), j.id)
	s.set(gpuPowerLimit, sum(ofGPU(func(u report.Usage) float64 { return u.GPUPowerLimit })), j.id)
	s.set(gpuTemperature, most(ofGPU(func(u report.Usage) float64 { return u.GPUTemperature })), j.id)
}

// saves shows the checkpoints of a job.
func (s sheet) saves(j *job) {
	if j.Saves == nil {
		return
	}
	s.set(atRisk, j.Saves.AtRisk, j.id)
	last := j.Saves.Last
	if last == nil {
		return
	}
	if last.Step > 0 {
		s.set(savedStep, float64(last.Step), j.id)
	}
	s.set(savedTime, float64(last.Ended.UnixMilli())/1000, j.id)
	s.set(savedSeconds, last.Ended.Sub(last.Began).Seconds(), j.id)
	s.set(savedBytes, float64(last.Bytes), j.id)
}

// progress shows the progress of a job, and how long it has been silent. Silence grows even when
// nothing is measured.
func (s sheet) progress(j *job) {
	s.set(step, j.Progress.Step, j.id)
	s.set(stepTarget, j.Progress.Total, j.id)
	s.saves(j)
	if len(j.fresh) > 0 {
		s.set(stepSeconds, j.Progress.StepTime, j.id)
		if !j.Progress.Done.IsZero() {
			s.set(eta, seconds(j.Progress.Done), j.id)
		}
		if j.Slow.Ratio >= 1 { // otherwise the ratio is unknown
			s.set(stragglerRatio, j.Slow.Ratio, j.id)
		}
	}
	beats, writes := math.NaN(), math.NaN()
	for _, r := range j.mine {
		if r.Exit != nil || len(r.Samples) == 0 {
			continue
		}
		since := age(r.Samples, j.at).Seconds()
		beats = either(beats, r.Now.BeatAge+since, math.Max)
		writes = either(writes, r.Now.SilenceAge+since, math.Min)
	}
	s.set(heartbeatAge, beats, j.id)
	s.set(outputAge, writes, j.id)
}

// either returns the known value of two, or the result of choose if both are known.
func either(a, b float64, choose func(a, b float64) float64) float64 {
	switch {
	case math.IsNaN(a):
		return b
	case math.IsNaN(b):
		return a
	}
	return choose(a, b)
}

// hour is an hour in seconds, since the ledger counts in hours.
const hour = 3600

// sums shows the counters of a job.
func (s sheet) sums(j *job, t *tally, once bool) {
	of := t.jobs[j.id]
	for cause, n := range startsOf(j) {
		s.set(attempts, of.floor("attempts "+cause, n), j.id, clean(cause, maxName))
	}
	if g := j.ledger(); g != nil {
		s.set(goodputRatio, g.Goodput, j.id)
		s.set(lostSeconds, of.floor("lost", g.Lost*hour), j.id)
		s.set(importSeconds, of.floor("importing", g.Importing*hour), j.id)
		for state, hours := range map[string]float64{
			"training": g.Training + g.Lost, "starting": g.Starting + g.Importing, "stopping": g.Stopping, "backoff": g.Backoff, "waiting": g.Waiting,
		} {
			s.set(goodputSeconds, of.floor(state, hours*hour), j.id, state)
		}
		for cause, hours := range costs(g, func(c report.Cost) float64 { return c.Hours }) {
			s.set(interruptedTime, of.floor("cost "+cause, hours*hour), j.id, clean(cause, maxName))
		}
	}
	if once {
		return
	}
	s.set(steps, of.steps.value(), j.id)
	s.set(logLines, of.lines.value(), j.id)
	s.set(logBytes, of.bytes.value(), j.id)
	s.set(gpuXids, of.xids.value(), j.id)
}

// ledger says how the time of a job was spent; nil if unknown.
func (j *job) ledger() *report.Goodput {
	if j.Goodput == nil && j.Result != nil {
		return j.Result.Goodput
	}
	return j.Goodput
}

// startsOf counts the attempts of a job by the reason of their start.
func startsOf(j *job) map[string]float64 {
	g := j.ledger()
	switch {
	case j.Reserve:
		return nil
	case g == nil && j.Restarts == 0 && len(j.Nodes) == 0:
		return nil // the job has not started
	case g == nil:
		n := map[string]float64{"start": 1}
		if j.Restarts > 0 {
			n["unknown"] = float64(j.Restarts)
		}
		return n
	}
	n := costs(g, func(c report.Cost) float64 { return float64(c.Interruptions) })
	n["start"] = 1
	return n
}

// costs adds up the costs of all nodes, by cause.
func costs(g *report.Goodput, value func(report.Cost) float64) map[string]float64 {
	all := map[string]float64{}
	for _, c := range g.Costs {
		all[clean(c.Cause, maxName)] += value(c)
	}
	return all
}
