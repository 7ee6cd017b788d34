// Package samples keeps the measurements of ranks and nodes from which every view is made.
//
// An agent keeps a [Table] of its node: a [Series] for the node and one for each rank, with a value
// for each [Column] at each time. An unknown value is [Unknown], such as that of a GPU for a rank
// without one. Tables are bounded and overwrite their oldest samples. An agent sends them only on
// request.
package samples

import (
	"fmt"
	"math"
	"time"
)

// Column is a quantity. Its number is part of golaunch's protocol.
type Column int

// The columns. A rate is the mean since the previous sample.
const (
	// CPU is how many CPUs a rank's processes use, or a node in all.
	CPU Column = iota
	// Memory is the resident memory of a rank's processes, or the used memory of a node, in bytes.
	Memory
	// MemoryTotal is a node's memory, in bytes.
	MemoryTotal
	// IO is what processes read and wrote through files, pipes and sockets, in bytes a second.
	IO
	// Faults are the page faults of processes, per second.
	Faults
	// Processes counts those of a rank.
	Processes
	// Step is the latest step in the program's heartbeat, Total the number of steps.
	Step
	Total
	// StepTime is the mean duration, in seconds, of the steps since the previous sample.
	StepTime
	// BeatAge is the time since the last heartbeat, and SilenceAge since the last output, in
	// seconds.
	BeatAge
	SilenceAge
	// Lines and LogBytes count what a rank has written since its start.
	Lines
	LogBytes
	// GPUUse is the part of the time in which a kernel ran, from 0 to 1. GPUMemory and
	// GPUMemoryTotal are in bytes, GPUPower and GPUPowerLimit in watts, GPUTemperature in degrees
	// Celsius.
	GPUUse
	GPUMemory
	GPUMemoryTotal
	GPUPower
	GPUPowerLimit
	GPUTemperature
	// Xids counts a GPU's errors in the kernel log since the agent started.
	Xids
	// Received and Sent are the traffic of a node's network cards, Ethernet and InfiniBand, in
	// bytes a second.
	Received
	Sent
	// Ranks counts the ranks running on a node.
	Ranks
	// Columns is the number of columns.
	Columns
)

// Unknown is a value that was not measured.
var Unknown = math.NaN()

// Known reports whether a value was measured.
func Known(v float64) bool { return !math.IsNaN(v) }

// Values has a value for each column.
type Values [Columns]float64

// None has only unknown values.
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

// Subject is what a series is about: a rank of a job, or the node itself, with an empty Job and
// Rank -1.
type Subject struct {
	Job  string
	Rank int
}

// Node is the subject for the node itself.
var Node = Subject{Rank: -1}

// State describes a rank.
type State struct {
	// PID is its process, LocalRank its place on the node, and GPU the UUID of its GPU, or empty.
	PID, LocalRank int
	GPU            string
	// Ended says how it ended; empty while it runs.
	Ended string
	// Does is what its busiest process does: "running", "asleep (futex_wait_queue)".
	Does string
}

// Series is the measurements of a subject, the oldest first.
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

// Value is the newest value of a column.
func (s Series) Value(c Column) float64 {
	last, ok := s.Last()
	if !ok {
		return Unknown
	}
	return last.Values[c]
}

// String is the column's name in JSON.
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
