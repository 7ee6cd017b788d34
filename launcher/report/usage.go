package report

import (
	"math"
	"time"
)

// Series has the samples of a rank, or of the node itself, the oldest first. For the node, Rank is
// -1 and Job is empty.
type Series struct {
	Job       string
	Rank      int
	LocalRank int
	PID       int
	// GPU is the UUID of the rank's GPU; empty without one.
	GPU string
	// Exit is how the rank ended; nil while it runs.
	Exit *Exit
	// Does is what the rank's busiest process was doing: "running", "asleep (futex_wait_queue)".
	Does    string
	Samples []Sample
}

// Last is the newest sample, or a sample without known values.
func (s Series) Last() Sample {
	if len(s.Samples) == 0 {
		return Sample{Usage: Unmeasured()}
	}
	return s.Samples[len(s.Samples)-1]
}

// Sample is a measurement in an attempt, with its time by the node's clock.
type Sample struct {
	At      time.Time
	Attempt int
	Usage
}

// Usage is what a rank or a node does. Rates are means since the previous sample. An unknown value
// is NaN, which JSON does not have: JSON omits it (docs/json.md).
type Usage struct {
	// CPUs is how many CPUs the processes of a rank, or of the node, use. Memory is, in bytes, what
	// the processes of a rank have in memory, or how much of MemoryTotal the node uses.
	CPUs, Memory, MemoryTotal float64
	// IO is what the processes read and wrote, to files, pipes and sockets alike, in bytes a
	// second. Faults is how many pages they touched for the first time, a second.
	IO, Faults, Processes float64
	// Step is the newest step that the program has reported, and Total the number of steps, if it
	// reports that. A step takes StepTime seconds.
	Step, Total, StepTime float64
	// BeatAge is the time since the last heartbeat, and SilenceAge the time since the last output,
	// both in seconds. Lines and LogBytes count the output.
	BeatAge, SilenceAge, Lines, LogBytes float64
	// GPUUse is the part of time in which a kernel ran, 0 to 1; memory is in bytes, power in watts,
	// temperature in degrees Celsius, and Xids counts the errors that the kernel has reported.
	GPUUse, GPUMemory, GPUMemoryTotal, GPUPower, GPUPowerLimit, GPUTemperature, Xids float64
	// Received and Sent are what the network cards of a node carry, in bytes a second. Ranks counts
	// the ranks that run on the node.
	Received, Sent, Ranks float64
}

// Unmeasured returns a Usage without any known value.
func Unmeasured() Usage {
	no := math.NaN()
	return Usage{
		CPUs: no, Memory: no, MemoryTotal: no, IO: no, Faults: no, Processes: no, Step: no, Total: no, StepTime: no,
		BeatAge: no, SilenceAge: no, Lines: no, LogBytes: no,
		GPUUse: no, GPUMemory: no, GPUMemoryTotal: no, GPUPower: no, GPUPowerLimit: no, GPUTemperature: no, Xids: no,
		Received: no, Sent: no, Ranks: no,
	}
}

const (
	// lateAfter is how many seconds without a heartbeat are worth a message. lateSteps is the same
	// in steps; the longer of the two times counts.
	lateAfter, lateSteps = 30, 10
)

// Late is the number of seconds without a heartbeat after which a rank with this StepTime counts as
// making no progress.
func (u Usage) Late() float64 {
	if u.StepTime > 0 {
		return max(lateAfter, lateSteps*u.StepTime)
	}
	return lateAfter
}
