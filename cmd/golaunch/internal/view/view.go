// Package view watches a cluster and its jobs. The terminal monitor, the page, the metrics and the
// reports all show its [State].
//
// A [Model] keeps the newest State. It asks coordinators ([Source]) only while it runs. A State
// never changes after it was read, so readers need no lock.
package view

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"time"

	"github.com/golaunch/golaunch/launcher"
	"github.com/golaunch/golaunch/launcher/report"
)

// Source is a coordinator: a [launcher.Client].
type Source interface {
	Query(ctx context.Context, q report.Query) (report.Status, error)
	Samples(ctx context.Context, q launcher.SampleQuery) iter.Seq2[launcher.NodeSamples, error]
	Ping(ctx context.Context, job string, within time.Duration) iter.Seq2[launcher.Pong, error]
	Logs(ctx context.Context, id string, f report.LogFilter) iter.Seq2[report.LogChunk, error]
	Stop(ctx context.Context, id string, code int, why string) ([]string, error)
	Close() error
}

// State is the knowledge about a cluster at a time.
type State struct {
	At time.Time
	// Source says where the state is from: "10.0.0.1:29400", "this machine".
	Source string
	// Answered is when the source last answered; zero if it never has. With several sources it is
	// the earliest of their times.
	Answered time.Time
	// Trouble says why the state is old; empty if the state is not old.
	Trouble string
	// Coordinators, Silent, Requested, Blocked, Version and Since are facts about a cluster, as in
	// [report.Status].
	Coordinators, Silent []string
	Requested            []report.RequestedNodes
	Blocked              string
	Version              string
	Since                time.Time
	// Counted and Charges belong to a cluster.
	Counted time.Time
	Charges []report.Charge
	// Nodes are sorted by name, Jobs by the time of submission.
	Nodes []*Node
	Jobs  []*Job
}

// Node is a machine and its activity.
type Node struct {
	report.NodeStatus
	// Now is the newest sample. Samples are all known samples, the oldest first, in this machine's
	// time.
	Now     report.Usage
	Samples []report.Sample
	// Heard is when the node last reported; zero if never. Missing says why the node does not
	// report.
	Heard   time.Time
	Missing string
}

// Job is a job and its ranks.
type Job struct {
	report.JobStatus
	// Ranks are sorted by rank. A rank that never ran, or that no node reports, is missing.
	Ranks []*Rank
	// Progress is the progress that the ranks report.
	Progress report.Progress
	// Slow are the stragglers found while the job was watched.
	Slow Slow
}

// Rank is a process of a job and its activity.
type Rank struct {
	Job, Node string
	Rank      int
	LocalRank int
	PID       int
	GPU       string
	// Exit is how the rank ended; nil while it runs. Does is the activity of its busiest process in
	// the newest sample.
	Exit    *report.Exit
	Does    string
	Attempt int
	Now     report.Usage
	Samples []report.Sample
	Heard   time.Time
}

// Ended says how the rank ended; empty while it runs.
func (r *Rank) Ended() string {
	if r.Exit == nil {
		return ""
	}
	return r.Exit.String()
}

// Node finds a node by its name; nil if there is none.
func (s *State) Node(name string) *Node {
	i, found := slices.BinarySearchFunc(s.Nodes, name, func(n *Node, name string) int { return cmp.Compare(n.Name, name) })
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
