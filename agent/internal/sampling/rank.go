package sampling

import (
	"time"

	"github.com/golaunch/golaunch/agent/internal/ranks"
	"github.com/golaunch/golaunch/internal/host/gpu"
	"github.com/golaunch/golaunch/internal/process/proc"
	"github.com/golaunch/golaunch/launcher/report"
)

// gang is a Gang with what the sampler remembers about its ranks.
type gang struct {
	Gang
	ranks []*rank
}

// rank is a rank with its usage at the last look.
type rank struct {
	ranks.Rank
	// pci is the address of the rank's GPU; empty without a GPU.
	pci  string
	last usage
	// beat is the heartbeat with the newest step. stepTime is how many seconds a step has taken
	// since the step before.
	beat     ranks.Heartbeat
	stepTime float64
	ended    bool
}

// usage is what the processes of a rank had used at a time. It is zero before the first look. An
// adopted rank may have run for days before that.
type usage struct {
	at     time.Time
	cpu    time.Duration
	faults uint64
	io     uint64
}

// lookAt measures the ranks of a gang, and returns how many run.
func (s *Sampler) lookAt(g *gang, now time.Time, readings map[string]gpu.Reading) (running int) {
	members, err := g.Scope.Members()
	if err != nil {
		s.warn(err)
		return 0
	}
	if g.Looked != nil {
		g.Looked(members)
	}
	for _, r := range g.ranks {
		if !r.Running() {
			s.lookLast(g, r, now)
			continue
		}
		running++
		own := ranks.Busiest(members, r.Process.Pid())
		state := r.state()
		if len(own) > 0 {
			state.Does = ranks.Activity(own[0])
		}
		v := r.used(own, now)
		r.told(now, &v)
		if reading, ok := readings[state.GPU]; ok {
			gpuValues(reading, &v)
		}
		s.add(g, r, state, now, v)
	}
	return running
}

// lookLast takes the last sample of a rank, once.
func (s *Sampler) lookLast(g *gang, r *rank, now time.Time) {
	if r.ended {
		return
	}
	r.ended = true
	state := r.state()
	state.Exit = new(r.Process.Exit())
	v := report.Unmeasured()
	r.told(now, &v)
	s.add(g, r, state, now, v)
}

func (s *Sampler) add(g *gang, r *rank, state report.Series, now time.Time, v report.Usage) {
	v.Xids = s.xids.Of(r.pci)
	state.Job, state.Rank = g.Job, r.Bundle.Rank
	s.table.add(state, report.Sample{At: now, Attempt: g.Attempt, Usage: v})
}

func (r *rank) state() report.Series {
	state := report.Series{PID: r.Process.Pid(), LocalRank: r.Bundle.LocalRank}
	if r.Bundle.GPU != nil {
		state.GPU = r.Bundle.GPU.UUID
	}
	return state
}

// used returns what the processes of the rank use now, with rates since the last look.
func (r *rank) used(members []proc.Member, now time.Time) report.Usage {
	v := report.Unmeasured()
	next := usage{at: now}
	memory := uint64(0)
	for _, p := range members {
		next.cpu += p.CPU
		next.faults += p.Faults
		next.io += p.IO
		memory += p.Memory
	}
	v.Processes, v.Memory = float64(len(members)), float64(memory)
	if span := next.at.Sub(r.last.at).Seconds(); span > 0 && !r.last.at.IsZero() {
		// The difference is negative if a process has ended whose usage is missing from the new
		// sum.
		v.CPUs = max(0, (next.cpu-r.last.cpu).Seconds()/span)
		v.Faults = max(0, float64(int64(next.faults-r.last.faults))/span)
		v.IO = max(0, float64(int64(next.io-r.last.io))/span)
	}
	r.last = next
	return v
}

// told adds what the program itself reports in its heartbeat and its output.
func (r *rank) told(now time.Time, v *report.Usage) {
	beat := ranks.LastHeartbeat(r.Output)
	if beat != (ranks.Heartbeat{}) {
		v.BeatAge = max(0, now.Sub(beat.At).Seconds())
	}
	if step, ok := beat.Step(); ok {
		v.Step = float64(step)
		before, known := r.beat.Step()
		if known && step > before {
			r.stepTime = beat.At.Sub(r.beat.At).Seconds() / float64(step-before)
		}
		if !known || step != before {
			r.beat = beat
		}
		v.StepTime = r.stepTime
	}
	if total, ok := beat.Total(); ok {
		v.Total = float64(total)
	}
	written, lines, last := r.Output.Wrote()
	v.LogBytes = float64(written)
	v.Lines = float64(lines)
	if last.IsZero() {
		last = r.Since
	}
	v.SilenceAge = max(0, now.Sub(last).Seconds())
}

func gpuValues(r gpu.Reading, v *report.Usage) {
	known := func(of *float64, n uint64, unit float64) {
		if n > 0 {
			*of = float64(n) / unit
		}
	}
	v.GPUUse = r.Use
	known(&v.GPUMemoryTotal, uint64(r.MemoryTotal), 1)
	if r.MemoryTotal > 0 {
		v.GPUMemory = float64(r.Memory)
	}
	known(&v.GPUPower, r.Power, 1000)
	known(&v.GPUPowerLimit, r.PowerLimit, 1000)
	known(&v.GPUTemperature, uint64(max(0, r.Temperature)), 1)
}
