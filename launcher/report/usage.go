package report

import (
	"math"
	"time"
)

// Series is what was measured of a rank, the oldest sample first, or of the node itself, whose Rank
// is -1 and whose Job is empty.
type Series struct {
	Job       string
	Rank      int
	LocalRank int
	PID       int
	// GPU is the UUID of the rank's GPU; empty without one.
	GPU string
	// Exit is how the rank ended; nil while it runs.
	Exit *Exit
	// Does is what its busiest process was seen to do: "running", "asleep (futex_wait_queue)".
	Does    string
	Samples []Sample
}

// Last is the newest sample, or one in which nothing is known.
func (s Series) Last() Sample {
	if len(s.Samples) == 0 {
		return Sample{Usage: Unmeasured()}
	}
	return s.Samples[len(s.Samples)-1]
}

// Sample is what was measured at a time of the node's clock, of an attempt.
type Sample struct {
	At      time.Time
	Attempt int
	Usage
}

// Usage is what a rank or a node does. Rates are means since the sample before. A value that is not
// known is NaN, which JSON does not have: docs/json.md names those that are known.
type Usage struct {
	// CPUs is how many the processes of a rank use, or all of a node. Memory is what they have in
	// memory, or what a node has in use, of MemoryTotal, in bytes.
	CPUs, Memory, MemoryTotal float64
	// IO is what processes read and wrote, files, pipes and sockets alike, in bytes a second, and
	// Faults are the pages that they touched for the first time, a second.
	IO, Faults, Processes float64
	// Step is the newest that the program has told, of Total, if it tells that. A step takes
	// StepTime seconds.
	Step, Total, StepTime float64
	// BeatAge and SilenceAge are for how long there was no heartbeat, and no output, in seconds.
	// Lines and LogBytes count what was written.
	BeatAge, SilenceAge, Lines, LogBytes float64
	// GPUUse is the part of time in which a kernel ran, 0 to 1; memory is in bytes, power in watts,
	// temperature in degrees Celsius, and Xids counts the errors that the kernel has reported.
	GPUUse, GPUMemory, GPUMemoryTotal, GPUPower, GPUPowerLimit, GPUTemperature, Xids float64
	// Received and Sent are what the network cards of a node carry, in bytes a second, and Ranks
	// counts those that run there.
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
	// lateAfter is the least number of seconds without a heartbeat that is worth a message.
	// lateSteps is the number of steps, if those take longer.
	lateAfter, lateSteps = 30, 10
)

// Late is after how many seconds without a heartbeat a rank with this StepTime counts as making no
// progress.
func (u Usage) Late() float64 {
	if u.StepTime > 0 {
		return max(lateAfter, lateSteps*u.StepTime)
	}
	return lateAfter
}
