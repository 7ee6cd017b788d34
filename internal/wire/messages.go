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
	// Signal asks the node to send its ranks a signal.
	Signal struct{ Number syscall.Signal }
	// Leave asks the agent to leave, because no job holds the node any more.
	Leave struct{ Why string }
	// Cohort answers the requests of a replica, up to Call, with the cohort of that ID. ID 0 says
	// that a cohort was formed without the replica; the replica asks again if it still waits.
	// Members are the Members of the [lighthouse.Request]s.
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
	// jobs. They give the node up, and an order to leave follows. All says that a scheduler will
	// end all nodes of the only job at that time. With a Signal, the scheduler has told all these
	// nodes to stop, and the job must stop.
	Draining struct {
		Why    string
		Within time.Duration
		All    bool
		Signal syscall.Signal
	}
	// Freed is a report that some GPUs are free now. They were held when the node joined, and have
	// the index and the UUID of that time.
	Freed struct{ GPUs []placement.GPU }
	// Met reports which processes of a gang have connected to the store on this node, and which
	// wait there. It is sent when none of this has changed for a while. An empty Met says that the
	// earlier Met no longer matters.
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
	// Restated ends the reports that [Restate] asked for.
	Restated struct{}
)

// Update is one message to a client about a job. Exactly one field is set.
type Update struct {
	Decision *report.Decision
	// Granted are the placement groups of a reservation.
	Granted *placement.Plan
	// Result is the last update.
	Result *report.Result
}
