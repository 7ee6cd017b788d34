package wire

import (
	"time"

	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// NodeStatus is one node of a cluster.
type NodeStatus struct {
	Node placement.Node
	// Silent is for how long nothing was heard of an agent whose connection is broken; 0 while it is there.
	Silent time.Duration
	// Drained says that it gets no more ranks.
	Drained bool
	// Holds are the GPUs that each job has there, by index.
	Holds []cluster.Holding
	// Excluded are the jobs that use the node only if others will not do.
	Excluded []Exclusion
}

// Exclusion is that a job uses a node only if others will not do, because of failures there.
type Exclusion struct {
	// Job is empty when it is all jobs: the node's hardware has failed in one of them.
	Job   string
	Why   string
	Until time.Time
}

// JobStatus is one job of a cluster.
type JobStatus struct {
	ID, Title string
	Phase     job.Phase
	// Waits says what the job waits for; once it is over, how it ended.
	Waits string
	// Finished is zero before the end.
	Submitted, Finished   time.Time
	Detached, Reserve     bool
	Within                string
	Attempt               int
	Restarts, MaxRestarts int
	// Nodes are by node rank; of a job that is over, all that it ever had, by name.
	Nodes       []string
	Ranks, GPUs int
	Result      *report.Result
	// Submitter is the uid of who submitted it; nil where it is not known.
	Submitter *uint32
	// Goodput is what the time of its ranks went into until now, or its end; nil for a reservation and while it has had no ranks.
	Goodput *report.Goodput
	// History is what was decided, in the order of time: the newest. A brief status has none.
	History []Moment
}

// Moment is something that was decided about a job, as a [replica.Moment]; To is empty where nothing changed.
type Moment struct {
	At      time.Time
	Attempt int
	To      string
	Cause   string
	Node    string
	Reason  string
}

// Status is a cluster as it stands.
type Status struct {
	// Version is the coordinator's golaunch, Since when it started.
	Version string
	Since   time.Time
	// Coordinators are where those of a cluster are that has several, HOST:PORT, the one that leads first; none if it has one. Silent are
	// those of them that do not answer it.
	Coordinators, Silent []string
	Nodes                []NodeStatus
	// Jobs are in the order of submission: all that are not over, and the last that are.
	Jobs []JobStatus
}

// Query limits a [Status].
type Query struct {
	// Job is the only one that is described, with its nodes; empty for all.
	Job string
	// Jobs leaves out the nodes, Open the jobs that are over, and Brief what the ranks wrote before they failed: Tail, Traceback and Kernel
	// of a Cause.
	Jobs, Open, Brief bool
}
