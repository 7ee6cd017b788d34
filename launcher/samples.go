package launcher

import (
	"context"
	"iter"
	"time"

	"github.com/golaunch/golaunch/internal/host/samples"
	"github.com/golaunch/golaunch/internal/wire"
)

// SampleQuery chooses among what the nodes of a cluster measure.
type SampleQuery struct {
	// Job is the only job whose nodes and ranks count; empty for all. Nodes are asked; all when
	// empty.
	Job   string
	Nodes []string
	// Since leaves out older samples, except the newest of each series.
	Since time.Duration
	// Every is how often newer samples follow, until the end of the job or of ctx; at least 1s. 0
	// is one answer of each node.
	Every time.Duration
	// Within bounds the wait for nodes that do not answer, which then have Missing; 0 waits. With
	// Every, late answers may still follow.
	Within time.Duration
}

// NodeSamples is what one node has measured, or a part of it.
type NodeSamples struct {
	Node string
	// Now is the node's clock, which all times are of.
	Now    time.Time
	Series []Series
	// Missing says why there are none.
	Missing string
}

// Series is what was measured of a rank, the oldest sample first, or of the node itself, whose Rank
// is -1 and whose Job is empty.
type Series struct {
	Job       string
	Rank      int
	LocalRank int
	PID       int
	// GPU is the UUID of the rank's GPU; empty without one.
	GPU string
	// Ended says how the rank ended, in words; empty while it runs.
	Ended string
	// Does is what its busiest process was seen to do: "running", "asleep (futex_wait_queue)".
	Does    string
	Samples []Sample
}

// Sample is what was measured at a time, of an attempt. A value that is not known is NaN.
type Sample struct {
	At      time.Time
	Attempt int
	Usage
}

// Usage is what a rank or a node does. Rates are means since the sample before.
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

// Samples asks nodes what they and their ranks do. Nodes send nothing of it, and the coordinator
// keeps nothing, unless it is asked for. An error comes last.
func (c *Client) Samples(ctx context.Context, q SampleQuery) iter.Seq2[NodeSamples, error] {
	inquiry := wire.Inquiry{
		Job: q.Job, Nodes: q.Nodes, Within: q.Within,
		Question: wire.Question{About: wire.AboutSamples, Samples: wire.SampleFilter{Since: q.Since, Every: q.Every}},
	}
	return func(yield func(NodeSamples, error) bool) {
		for a, err := range c.head.Inquire(ctx, inquiry) {
			n := NodeSamples{Node: a.Node, Missing: a.Missing}
			if a.Samples != nil {
				n.Now, n.Series = a.Samples.Now, each(a.Samples.Series, seriesOf)
			}
			if !yield(n, refusalOf(err)) {
				return
			}
		}
	}
}

// Pong is a node's answer to a Ping.
type Pong struct {
	Node string
	// After is how long the answer took, through the coordinator. Missing says why there is none.
	After   time.Duration
	Missing string
}

// Ping asks the nodes of a job, or all when it is empty, for an answer without cost, and waits for
// them within a limit.
func (c *Client) Ping(ctx context.Context, job string, within time.Duration) iter.Seq2[Pong, error] {
	return func(yield func(Pong, error) bool) {
		began := time.Now()
		for a, err := range c.head.Inquire(ctx, wire.Inquiry{Job: job, Within: within, Question: wire.Question{About: wire.AboutPing}}) {
			if !yield(Pong{a.Node, time.Since(began), a.Missing}, refusalOf(err)) {
				return
			}
		}
	}
}

func seriesOf(s samples.Series) Series {
	return Series{
		Job: s.Job, Rank: s.Rank, LocalRank: s.LocalRank, PID: s.PID, GPU: s.GPU, Ended: s.Ended, Does: s.Does,
		Samples: each(s.Samples, func(s samples.Sample) Sample { return Sample{s.At, s.Attempt, usageOf(s.Values)} }),
	}
}

func usageOf(v samples.Values) Usage {
	return Usage{
		CPUs: v[samples.CPU], Memory: v[samples.Memory], MemoryTotal: v[samples.MemoryTotal],
		IO: v[samples.IO], Faults: v[samples.Faults], Processes: v[samples.Processes],
		Step: v[samples.Step], Total: v[samples.Total], StepTime: v[samples.StepTime],
		BeatAge: v[samples.BeatAge], SilenceAge: v[samples.SilenceAge], Lines: v[samples.Lines], LogBytes: v[samples.LogBytes],
		GPUUse: v[samples.GPUUse], GPUMemory: v[samples.GPUMemory], GPUMemoryTotal: v[samples.GPUMemoryTotal],
		GPUPower: v[samples.GPUPower], GPUPowerLimit: v[samples.GPUPowerLimit], GPUTemperature: v[samples.GPUTemperature], Xids: v[samples.Xids],
		Received: v[samples.Received], Sent: v[samples.Sent], Ranks: v[samples.Ranks],
	}
}
