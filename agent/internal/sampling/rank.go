package sampling

import (
	"time"

	"github.com/golaunch/golaunch/agent/internal/ranks"
	"github.com/golaunch/golaunch/internal/host/gpu"
	"github.com/golaunch/golaunch/internal/host/samples"
	"github.com/golaunch/golaunch/internal/process/proc"
)

// gang is a Gang with what the sampler remembers of its ranks.
type gang struct {
	Gang
	ranks []*rank
}

// rank is a rank with its usage at the last look.
type rank struct {
	ranks.Rank
	// pci is the address of its GPU; empty without one.
	pci  string
	last usage
	// beat is the heartbeat with the newest step, and stepTime the seconds that a step has taken
	// since the step before.
	beat     ranks.Heartbeat
	stepTime float64
	ended    bool
}

// usage is what the processes of a rank had used at a time. It is zero before the first look: a
// rank that was adopted may have run for days.
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
	state.Ended = r.Process.Exit().String()
	v := samples.None()
	r.told(now, &v)
	s.add(g, r, state, now, v)
}

func (s *Sampler) add(g *gang, r *rank, state samples.State, now time.Time, v samples.Values) {
	v[samples.Xids] = s.xids.Of(r.pci)
	s.table.Add(samples.Subject{Job: g.Job, Rank: r.Bundle.Rank}, state, samples.Sample{At: now, Attempt: g.Attempt, Values: v})
}

func (r *rank) state() samples.State {
	state := samples.State{PID: r.Process.Pid(), LocalRank: r.Bundle.LocalRank}
	if r.Bundle.GPU != nil {
		state.GPU = r.Bundle.GPU.UUID
	}
	return state
}

// used returns what the processes of the rank use now, with rates since the last look.
func (r *rank) used(members []proc.Member, now time.Time) samples.Values {
	v := samples.None()
	next := usage{at: now}
	memory := uint64(0)
	for _, p := range members {
		next.cpu += p.CPU
		next.faults += p.Faults
		next.io += p.IO
		memory += p.Memory
	}
	v[samples.Processes], v[samples.Memory] = float64(len(members)), float64(memory)
	if span := next.at.Sub(r.last.at).Seconds(); span > 0 && !r.last.at.IsZero() {
		// A process that has ended may have taken its usage along.
		v[samples.CPU] = max(0, (next.cpu-r.last.cpu).Seconds()/span)
		v[samples.Faults] = max(0, float64(int64(next.faults-r.last.faults))/span)
		v[samples.IO] = max(0, float64(int64(next.io-r.last.io))/span)
	}
	r.last = next
	return v
}

// told adds what the program itself says, in its heartbeat and its output.
func (r *rank) told(now time.Time, v *samples.Values) {
	beat := ranks.LastHeartbeat(r.Output)
	if beat != (ranks.Heartbeat{}) {
		v[samples.BeatAge] = max(0, now.Sub(beat.At).Seconds())
	}
	if step, ok := beat.Step(); ok {
		v[samples.Step] = float64(step)
		before, known := r.beat.Step()
		if known && step > before {
			r.stepTime = beat.At.Sub(r.beat.At).Seconds() / float64(step-before)
		}
		if !known || step != before {
			r.beat = beat
		}
		v[samples.StepTime] = r.stepTime
	}
	if total, ok := beat.Total(); ok {
		v[samples.Total] = float64(total)
	}
	written, lines, last := r.Output.Wrote()
	v[samples.LogBytes] = float64(written)
	v[samples.Lines] = float64(lines)
	if last.IsZero() {
		last = r.Since
	}
	v[samples.SilenceAge] = max(0, now.Sub(last).Seconds())
}

func gpuValues(r gpu.Reading, v *samples.Values) {
	known := func(c samples.Column, n uint64) {
		if n > 0 {
			v[c] = float64(n)
		}
	}
	v[samples.GPUUse] = r.Use
	known(samples.GPUMemoryTotal, uint64(r.MemoryTotal))
	if r.MemoryTotal > 0 {
		v[samples.GPUMemory] = float64(r.Memory)
	}
	known(samples.GPUPower, r.Power)
	known(samples.GPUPowerLimit, r.PowerLimit)
	v[samples.GPUPower] /= 1000
	v[samples.GPUPowerLimit] /= 1000
	known(samples.GPUTemperature, uint64(max(0, r.Temperature)))
}
