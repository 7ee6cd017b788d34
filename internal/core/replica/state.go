// Package replica is what a coordinator knows, as a function of its log.
//
// A [State] takes the log's entries in order. It reads no clock, environment, network or randomness: each entry has the time at which
// it came, and a limit on waiting is a deadline in the state. So the coordinator that writes an entry, one that is started again and
// one that takes over come to the same state by the same entries (state machine replication: Schneider, ACM Computing Surveys 22(4),
// 1990), and a snapshot of it takes the place of all entries before.
//
// What connects a coordinator with the world is not here: connections, the timers that wake it up, who watches a job. A coordinator
// that begins has none of these yet, which is as if all its connections had broken at that moment.
package replica

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/core/goodput"
	"github.com/golaunch/golaunch/internal/core/snapshot"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// Format is that of entries. It changes when the same entries would no longer give the same state.
const Format = "golaunch-log-2"

// Submission is a job, or a reservation, for a coordinator. Only Spec is needed.
type Submission struct {
	cluster.Spec
	// Task is what the agents need to know to run a rank of the job; nobody else looks into it.
	Task []byte
	// Title is the command in one line, for people.
	Title string
	// Detached says that the job goes on without the client that submitted it.
	Detached bool
	// Key is random, and the same each time that a client, which has not heard what became of it,
	// brings the submission again.
	Key string `json:",omitempty"`
	// Submitter is the uid of who submitted it, by the kernel's word or munge's, never the client's; nil where it is not known.
	Submitter *uint32
	// PlacementTimeout bounds the wait for nodes and GPUs; 0 is no bound. LastCall is the wait for more nodes than the least.
	PlacementTimeout, LastCall time.Duration
	// BackoffMin is the wait before the first restart; it doubles for each further one until it is BackoffMax, give or take 10 %.
	BackoffMin, BackoffMax time.Duration
}

// Entry is one entry of the log: the time at which something happened, and what. Just one of the other fields is set.
type Entry struct {
	At        time.Time
	Founded   *Founded
	Submitted *Submission
	Admitted  *Member
	// Event is any event of the cluster but [cluster.Submitted].
	Event cluster.Event
}

// Founded is the first entry of a log.
type Founded struct {
	Format string
	// Epoch is what agents know the log's coordinators by, whichever of them it is.
	Epoch string
}

// Member is an agent that was taken in.
type Member struct {
	Node placement.Node
	// Instance is another one each time an agent begins anew.
	Instance string
	// Patience is the silence after which its ranks are dead, by the lease that it was given: a later coordinator may give another one.
	Patience time.Duration
	// Drained says that it is to be drained as soon as jobs may have it.
	Drained bool
}

// State is what a coordinator knows. One goroutine owns it. It is read by others of this goroutine, and changed by Apply alone.
type State struct {
	// Index counts the entries.
	Index   uint64
	Epoch   string
	Cluster *cluster.State
	// Members are the agents that were taken in and not lost since, by node.
	Members map[string]Member
	// Jobs are those that are not over, and those that were last, of which Ended has the IDs, oldest first.
	Jobs  map[string]*Record
	Ended []string
	// Avoided are the nodes that jobs are given only if others will not do, because their hardware failed, until when.
	Avoided map[string]time.Time
	// Timers are the deadlines that are out.
	Timers map[TimerID]Timer
}

// Record is a job with what its steps came to.
type Record struct {
	Submission
	// Since is when it was submitted, and Over when it ended; zero before.
	Since, Over time.Time
	// Readmits is when the nodes that it excludes can be used again.
	Readmits time.Time
	// Reason is the newest that was decided, in words.
	Reason  string
	Result  *report.Result
	Granted *placement.Plan
	// Nodes are those that it has, or had.
	Nodes  map[string]bool
	Ledger goodput.Ledger
	// History is what was decided, in the order of time.
	History []Moment
}

// New returns the state before the first entry.
func New() *State {
	return &State{
		Cluster: cluster.New(), Members: map[string]Member{}, Jobs: map[string]*Record{}, Avoided: map[string]time.Time{},
		Timers: map[TimerID]Timer{},
	}
}

// OnlyJob is the one job that the coordinator is for; nil in a cluster, and before it was submitted.
func (s *State) OnlyJob() *Record {
	for _, j := range s.Jobs {
		if j.OnlyJob {
			return j
		}
	}
	return nil
}

// Snapshot is all of the state, for [Restore].
func (s *State) Snapshot() []byte { return append([]byte(snapshotFormat), schema.Encode(s)...) }

// Restore reads a Snapshot. The error says so when another version of golaunch wrote it.
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

// Goodput is what the time of a job's ranks went into until a time, or its end; nil for a reservation, whose ranks are those of other
// jobs, and while there were no ranks.
func (j *Record) Goodput(now time.Time) *report.Goodput {
	unit := "rank"
	if j.Job.Request.GPU {
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
