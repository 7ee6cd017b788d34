// Package replica holds the state of a coordinator, as a function of the coordinator's log.
//
// A [State] takes the log's entries in order. It reads no clock, environment, network or
// randomness: each entry has its time, and a limit on waiting is a deadline in the state. So every
// coordinator reaches the same state from the same entries, no matter whether it wrote them, was
// started again or took over (state machine replication: Schneider, ACM Computing Surveys 22(4),
// 1990). A snapshot of the state replaces all earlier entries.
//
// The package does not have a coordinator's links to the world: its connections, the timers that
// wake it up, and the watchers of a job. A new coordinator has none of these yet, as if all its
// connections had just broken.
package replica

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/golaunch/golaunch/internal/core/capacity"
	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/core/goodput"
	"github.com/golaunch/golaunch/internal/core/snapshot"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// Format is the format of entries. It changes when the same entries would no longer give the same
// state.
const Format = "golaunch-log-2"

// Submission is a job, or a reservation, for a coordinator. Only Spec is needed.
type Submission struct {
	cluster.Spec
	// Task has the data that agents need to run a rank of the job. Only agents read it.
	Task []byte
	// Workspace is the directory in which the ranks run, if it is copied to the nodes; otherwise
	// its ID is empty.
	Workspace report.Workspace
	// Title is the command in one line, for people.
	Title string
	// Detached says that the job continues without the client that submitted it.
	Detached bool
	// Key is random. It stays the same if a client that got no answer submits again.
	Key string `json:",omitempty"`
	// Submitter is the uid of the submitting user, according to the kernel or munge, never
	// according to the client; nil if unknown.
	Submitter *uint32
	// PlacementTimeout bounds the wait for nodes and GPUs; 0 means no bound. LastCall is the wait
	// for more nodes than the job needs.
	PlacementTimeout, LastCall time.Duration
	// BackoffMin is the wait before the first restart. Each further restart doubles the wait, up to
	// BackoffMax, give or take 10 %.
	BackoffMin, BackoffMax time.Duration
}

// Entry is an entry of the log: an event with its time. Exactly one of the other fields is set.
type Entry struct {
	At        time.Time
	Founded   *Founded
	Submitted *Submission
	Admitted  *Member
	Capacity  capacity.Event
	// Event is any event of the cluster except [cluster.Submitted].
	Event cluster.Event
}

// Founded is the first entry of a log.
type Founded struct {
	Format string
	// Epoch identifies the log. By it, agents recognize every coordinator of this log.
	Epoch string
}

// Member is an agent that has joined.
type Member struct {
	Node placement.Node
	// Instance changes each time an agent starts over.
	Instance string
	// Patience is how long the agent must be silent until its ranks are known to be dead. It
	// follows from the lease that the agent was given. A later coordinator may give another lease.
	Patience time.Duration
	// Drained says that the node must be drained at once when it joins the cluster.
	Drained bool
}

// State is the state of a coordinator. Only one goroutine uses it. Any code on that goroutine may
// read it, but only Apply changes it.
type State struct {
	// Index counts the entries.
	Index   uint64
	Epoch   string
	Cluster *cluster.State
	// Members are the agents that have joined and were not lost since, by node.
	Members map[string]Member
	// Capacity has the nodes that were requested from providers.
	Capacity *capacity.Pool
	// Jobs are all unfinished jobs and the last finished ones. Ended has the IDs of the finished
	// jobs, oldest first.
	Jobs  map[string]*Record
	Ended []string
	// Avoided are nodes whose hardware failed, each with a time. Until that time, jobs get the node
	// only if no other nodes suffice.
	Avoided map[string]time.Time
	// Timers are the pending deadlines.
	Timers map[TimerID]Timer
}

// Record is a job with the outcome of its steps.
type Record struct {
	Submission
	// Since is when the job was submitted, and Over when it ended; zero before that.
	Since, Over time.Time
	// Readmits is when the nodes that the job excludes can be used again.
	Readmits time.Time
	// Reason is the newest decision, in words.
	Reason  string
	Result  *report.Result
	Granted *placement.Plan
	// Nodes are the nodes that the job has or had.
	Nodes  map[string]bool
	Ledger goodput.Ledger
	Clock  startClock
	// History has the decisions, oldest first.
	History []report.Moment
}

// New returns the state before the first entry.
func New() *State {
	return &State{
		Cluster: cluster.New(), Members: map[string]Member{}, Capacity: capacity.NewPool(), Jobs: map[string]*Record{},
		Avoided: map[string]time.Time{}, Timers: map[TimerID]Timer{},
	}
}

// OnlyJob returns the only job that the coordinator serves. It is nil in a cluster, and before the
// job was submitted.
func (s *State) OnlyJob() *Record {
	for _, j := range s.Jobs {
		if j.OnlyJob {
			return j
		}
	}
	return nil
}

// Snapshot returns the whole state, for [Restore].
func (s *State) Snapshot() []byte { return append([]byte(snapshotFormat), schema.Encode(s)...) }

// Restore reads a Snapshot. The error says so if another version of golaunch wrote the snapshot.
func Restore(b []byte) (*State, error) {
	s := &State{}
	b, known := bytes.CutPrefix(b, []byte(snapshotFormat))
	if !known {
		return nil, ErrVersion
	}
	if err := schema.Decode(b, s); err != nil {
		if errors.Is(err, snapshot.ErrTypes) {
			return nil, ErrVersion
		}
		return nil, fmt.Errorf("cannot read the snapshot of the state: %w", err)
	}
	return s, nil
}

// ErrVersion says that another version of golaunch wrote a log.
var ErrVersion = errors.New("another version of golaunch wrote it")

// Saves returns the known checkpoints of a job at a time, or at the job's end; nil if none is
// known.
func (s *State) Saves(j *Record, now time.Time) *report.Saves {
	if j.Result != nil {
		return j.Result.Saves
	}
	all := s.Cluster.Saves(j.Job.ID)
	switch {
	case all == nil:
	case j.Job.Gang():
		all.AtRisk = j.Ledger.AtRisk(now).Seconds()
	case all.Last != nil: // the ledger has no common time for ranks that restart on their own
		all.AtRisk = max(0, now.Sub(all.Last.Began)).Seconds()
	}
	return all
}

// Start returns how the time of the newest start was spent. It is nil if nothing is known of the
// start, if ranks restart on their own, and for a reservation.
func (j *Record) Start() *report.Start {
	if !j.Job.Gang() || j.Reserve {
		return nil
	}
	return j.Clock.report()
}

// Goodput returns how a job's ranks spent their time until now, or until the job's end. It is nil
// while there were no ranks, and for a reservation, whose ranks belong to other jobs.
func (j *Record) Goodput(now time.Time) *report.Goodput {
	unit := "rank"
	if r := j.Job.Request; r.GPU && r.PerGPU <= 1 {
		unit = "GPU"
	}
	switch {
	case j.Reserve:
		return nil
	case j.Result != nil:
		return j.Result.Goodput
	}
	return j.Ledger.Report(now, unit)
}
