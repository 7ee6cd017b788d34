package report

import (
	"math"
	"time"
)

// Series has the samples of a rank, or of its node, the oldest first. In the series of a node, Rank
// is -1 and Job is empty.
type Series struct {
	Job       string
	Rank      int
	LocalRank int
	PID       int
	// GPU is the UUID of the rank's GPU; empty for a rank without a GPU.
	GPU string
	// Exit is how the rank ended; nil while it runs.
	Exit *Exit
	// Does is what the rank's busiest process did at the last sample: "running", "asleep
	// (futex_wait_queue)".
	Does    string
	Samples []Sample
}

// Last returns the newest sample. If there is none, it returns a sample without known values.
func (s Series) Last() Sample {
	if len(s.Samples) == 0 {
		return Sample{Usage: Unmeasured()}
	}
	return s.Samples[len(s.Samples)-1]
}

// Sample is a measurement of a rank in an attempt, or of a node. At is its time, by the node's
// clock.
type Sample struct {
	At      time.Time
	Attempt int
	Usage
}

// Usage is what a rank or a node uses and does. Rates are means since the previous sample. An
// unknown value is NaN. JSON omits it, because JSON has no NaN (docs/json.md).
type Usage struct {
	// CPUs is how many CPUs the processes of a rank, or of the node, use. Memory is how many bytes
	// the processes of a rank have in memory, or how much of MemoryTotal the node uses.
	CPUs, Memory, MemoryTotal float64
	// IO is how many bytes a second the processes read and wrote, in files, pipes and sockets
	// together. Faults is how many pages a second they touched for the first time.
	IO, Faults, Processes float64
	// Step is the newest step that the program has reported. Total is the number of steps, if the
	// program reports that. StepTime is how many seconds a step takes.
	Step, Total, StepTime float64
	// BeatAge is the time since the last heartbeat, and SilenceAge the time since the last output,
	// both in seconds. Lines and LogBytes count the output.
	BeatAge, SilenceAge, Lines, LogBytes float64
	// GPUUse is the share of the time in which a GPU kernel ran, 0 to 1. Memory is in bytes, power
	// in watts, and temperature in degrees Celsius. Xids counts the errors of the GPU that Linux
	// has reported.
	GPUUse, GPUMemory, GPUMemoryTotal, GPUPower, GPUPowerLimit, GPUTemperature, Xids float64
	// Received and Sent are how many bytes a second the network cards of a node carry. Ranks counts
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
	// A rank is late when it has sent no heartbeat for lateAfter seconds and for the time of
	// lateSteps steps.
	lateAfter, lateSteps = 30, 10
)

// Late returns after how many seconds without a heartbeat a rank with this StepTime counts as
// making no progress.
func (u Usage) Late() float64 {
	if u.StepTime > 0 {
		return max(lateAfter, lateSteps*u.StepTime)
	}
	return lateAfter
}
