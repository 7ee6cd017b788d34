// Package samples is what ranks and nodes do, measured now and then: the one table under all that shows it.
//
// An agent keeps a [Table] of its node: a [Series] for the node itself and one for each of its ranks, with a value for each [Column] at each
// time that it looked. Values that are not known are [Unknown], as those of a GPU for a rank without one. Tables are bounded and
// overwrite their oldest samples; nothing is sent of them unless somebody asks.
package samples

import (
	"fmt"
	"math"
	"time"
)

// Column is one thing that is measured. Its number is part of golaunch's protocol.
type Column int

// The columns. What is a rate is the mean since the sample before.
const (
	// CPU is how many CPUs the processes of a rank use, or all of a node.
	CPU Column = iota
	// Memory is what the processes of a rank have in memory, or what a node has in use, in bytes.
	Memory
	// MemoryTotal is what a node has, in bytes.
	MemoryTotal
	// IO is what processes read and wrote, files, pipes and sockets alike, in bytes a second.
	IO
	// Faults are the pages of memory that processes touched for the first time, a second.
	Faults
	// Processes counts those of a rank.
	Processes
	// Step is the newest that the program has told in its heartbeat, Total how many there will be.
	Step
	Total
	// StepTime is what a step took, in seconds, as a mean of those since the sample before.
	StepTime
	// BeatAge is for how long there was no heartbeat, and SilenceAge no output, in seconds.
	BeatAge
	SilenceAge
	// Lines and LogBytes count what a rank has written since its start.
	Lines
	LogBytes
	// GPUUse is the part of time in which any kernel ran, from 0 to 1, GPUMemory and GPUMemoryTotal are in bytes, GPUPower and
	// GPUPowerLimit in watts, GPUTemperature in degrees Celsius.
	GPUUse
	GPUMemory
	GPUMemoryTotal
	GPUPower
	GPUPowerLimit
	GPUTemperature
	// Xids counts the errors that the kernel has reported of a GPU since the agent began.
	Xids
	// Received and Sent are what the network cards of a node carry, Ethernet and InfiniBand alike, in bytes a second.
	Received
	Sent
	// Ranks counts those that run on a node.
	Ranks
	// Columns is their number.
	Columns
)

// Unknown is the value of what was not measured.
var Unknown = math.NaN()

// Known says that a value was measured.
func Known(v float64) bool { return !math.IsNaN(v) }

// Values has one for each column.
type Values [Columns]float64

// None has no value that is known.
func None() (v Values) {
	for i := range v {
		v[i] = Unknown
	}
	return v
}

// Sample is what was measured at a time of the node's clock. Attempt is that of the rank.
type Sample struct {
	At      time.Time
	Attempt int
	Values  Values
}

// Subject is what a series is about: a rank of a job, or the node itself, whose Job is empty and whose Rank is -1.
type Subject struct {
	Job  string
	Rank int
}

// Node is the subject that is a node.
var Node = Subject{Rank: -1}

// State is where a rank is.
type State struct {
	// PID is its process, LocalRank its place on the node, and GPU the UUID of its GPU, empty without one.
	PID, LocalRank int
	GPU            string
	// Ended says how it ended, in words; empty while it runs.
	Ended string
	// Does is what its busiest process was seen to do: "running", "asleep (futex_wait_queue)".
	Does string
}

// Series is what was measured of a subject, the oldest first.
type Series struct {
	Subject
	State
	Samples []Sample
}

// Last is the newest sample; false if there is none.
func (s Series) Last() (Sample, bool) {
	if len(s.Samples) == 0 {
		return Sample{}, false
	}
	return s.Samples[len(s.Samples)-1], true
}

// Value is the newest of a column.
func (s Series) Value(c Column) float64 {
	last, ok := s.Last()
	if !ok {
		return Unknown
	}
	return last.Values[c]
}

// Name is a column's in JSON.
func (c Column) String() string {
	if c < 0 || c >= Columns {
		return fmt.Sprintf("column_%d", int(c))
	}
	return names[c]
}

var names = [Columns]string{
	"cpus", "memory_bytes", "memory_total_bytes", "io_bytes_per_second", "page_faults_per_second", "processes", "step", "steps_total",
	"step_seconds", "heartbeat_age_seconds", "silence_seconds", "log_lines", "log_bytes", "gpu_utilization", "gpu_memory_bytes",
	"gpu_memory_total_bytes", "gpu_power_watts", "gpu_power_limit_watts", "gpu_temperature_celsius", "xids", "received_bytes_per_second",
	"sent_bytes_per_second", "ranks",
}
