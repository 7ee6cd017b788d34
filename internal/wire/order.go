package wire

import (
	"syscall"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/lighthouse"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// Order is what a node must do for a job, or for all jobs if Job is empty. The same order may come
// twice.
type Order struct {
	Job string
	// Do is a [job.Prepare], [job.Admit], [job.Reach], [job.Start], [job.Stop] or [job.Finish], or
	// one of [Assign], [Signal], [Leave], [Ask], [Cohort] and [Restate].
	Do any
}

type (
	// Assign says that the node gets ranks of a job. The job's Submission has this Task, Submitter
	// and Workspace.
	Assign struct {
		Task      []byte
		Submitter *uint32
		Workspace report.Workspace
	}
	// Signal asks the node to signal its ranks.
	Signal struct{ Number syscall.Signal }
	// Leave asks the agent to leave, because no job holds the node any more.
	Leave struct{ Why string }
	// Cohort answers the requests of a replica, up to Call, with the cohort of that ID. ID 0 says
	// that a cohort was formed without the replica, which asks again if it still waits. Members are
	// the Members of the [lighthouse.Request]s.
	Cohort struct {
		Unit, Attempt int
		Replica       string
		Call          int64
		ID            int64
		Created       time.Time
		Members       [][]byte
	}
	// Restate asks the agent to report again: for each job that it knows, [Opened] and all reports
	// of the job's newest attempts, and then [Restated].
	Restate struct{}
)

type (
	// Opened is a report that the agent knows a job.
	Opened struct{}
	// Draining is a report that the node will be gone after Within, at the latest. It concerns all
	// jobs. They give the node up, and then an order to leave follows. All says that a scheduler
	// will end all nodes of the only job at that time. With a Signal, the scheduler has told all of
	// them to stop, and the job must stop.
	Draining struct {
		Why    string
		Within time.Duration
		All    bool
		Signal syscall.Signal
	}
	// Freed is a report that GPUs that were held when the node joined are free now. Each has the
	// index and the UUID with which it joined.
	Freed struct{ GPUs []placement.GPU }
	// Met reports which processes of a gang have connected to the store on this node, and which
	// wait there. It is sent when nothing of this has changed for a while. An empty Met says that
	// the earlier one no longer matters.
	Met struct {
		Unit, Attempt int
		Meeting       job.Meeting
	}
	// Replica is a report that a replica is alive. The replica's group is its unit. With a Call,
	// the replica asks for a cohort.
	Replica struct {
		Unit, Attempt int
		Request       lighthouse.Request
	}
	// Restated ends what [Restate] asked for.
	Restated struct{}
)
