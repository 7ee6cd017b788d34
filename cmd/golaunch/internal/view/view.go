// Package view is what is seen of a cluster and its jobs: how they stand, what their ranks and nodes do, and who is slow. The terminal
// monitor, the page, the metrics and the reports all show one [State].
//
// A [Model] keeps the newest State. It asks coordinators for it ([Source]) only while it runs. A State never changes once it was read, so
// that it can be shown without haste.
package view

import (
	"context"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/golaunch/golaunch/launcher"
)

// Source is a coordinator as it is asked: a [launcher.Client].
type Source interface {
	Query(ctx context.Context, q launcher.Query) (launcher.Status, error)
	Samples(ctx context.Context, q launcher.SampleQuery) iter.Seq2[launcher.NodeSamples, error]
	Ping(ctx context.Context, job string, within time.Duration) iter.Seq2[launcher.Pong, error]
	Logs(ctx context.Context, id string, f launcher.LogFilter) iter.Seq2[launcher.LogChunk, error]
	Stop(ctx context.Context, id string, code int, why string) ([]string, error)
	Close() error
}

// State is what is known at a time.
type State struct {
	At time.Time
	// Source says where it is from: "10.0.0.1:29400", "this machine".
	Source string
	// Answered is when the source last did; zero if it never has. Of several it is the one that was silent for longest.
	Answered time.Time
	// Trouble says why it is older than it should be; empty when it is not.
	Trouble string
	// Coordinators, Silent, Version and Since are a cluster's, as in [launcher.Status].
	Coordinators, Silent []string
	Version              string
	Since                time.Time
	// Nodes are sorted by name, Jobs by the time of submission.
	Nodes []*Node
	Jobs  []*Job
}

// Node is a machine and what it does.
type Node struct {
	launcher.NodeStatus
	// Now is its newest sample, and Samples all that are known, the oldest first; times are of this machine's clock.
	Now     launcher.Usage
	Samples []launcher.Sample
	// Heard is when it last said anything of itself; zero if it never did. Missing says why it does not.
	Heard   time.Time
	Missing string
}

// Job is a job and its ranks.
type Job struct {
	launcher.JobStatus
	// Ranks are sorted by rank. A rank that never ran, or of which no node says anything, is not among them.
	Ranks []*Rank
	// Progress is as its ranks tell it.
	Progress Progress
	// Slow is who is slow, as far as it was watched.
	Slow Slow
}

// Rank is a process of a job and what it does.
type Rank struct {
	Job, Node string
	Rank      int
	LocalRank int
	PID       int
	GPU       string
	// Ended says how it ended; empty while it runs. Does is what its busiest process was seen to do.
	Ended, Does string
	Attempt     int
	Now         launcher.Usage
	Samples     []launcher.Sample
	Heard       time.Time
}

// Progress is how far a job has come.
type Progress = launcher.Progress

// Node finds a node by its name; nil if there is none.
func (s *State) Node(name string) *Node {
	i, found := slices.BinarySearchFunc(s.Nodes, name, func(n *Node, name string) int { return compare(n.NodeStatus.Node.Name, name) })
	if !found {
		return nil
	}
	return s.Nodes[i]
}

// Job finds a job by its ID; nil if there is none.
func (s *State) Job(id string) *Job {
	i := slices.IndexFunc(s.Jobs, func(j *Job) bool { return j.ID == id })
	if i < 0 {
		return nil
	}
	return s.Jobs[i]
}

// unknown has no value that is known.
func unknown() launcher.Usage {
	nan := math.NaN()
	return launcher.Usage{
		CPUs: nan, Memory: nan, MemoryTotal: nan, IO: nan, Faults: nan, Processes: nan, Step: nan, Total: nan, StepTime: nan, BeatAge: nan,
		SilenceAge: nan, Lines: nan, LogBytes: nan, GPUUse: nan, GPUMemory: nan, GPUMemoryTotal: nan, GPUPower: nan, GPUPowerLimit: nan,
		GPUTemperature: nan, Xids: nan, Received: nan, Sent: nan, Ranks: nan,
	}
}
