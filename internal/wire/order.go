package wire

import (
	"syscall"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
)

// Order is what a node is asked to do for a job, or for all jobs when Job is empty. The same order can come twice.
type Order struct {
	Job string
	// Do is a [job.Prepare], [job.Admit], [job.Reach], [job.Start], [job.Stop] or [job.Finish], or one of [Assign], [Signal], [Leave],
	// [Ask], [Restate].
	Do any
}

type (
	// Assign says that the node gets ranks of a job, whose Submission has this Task and Submitter.
	Assign struct {
		Task      []byte
		Submitter *uint32
	}
	// Signal asks for a signal to the ranks of the node.
	Signal struct{ Number syscall.Signal }
	// Leave asks the agent to go, for nothing holds the node any more.
	Leave struct{ Why string }
	// Restate asks the agent to report again, of each job that it knows, [Opened] and all that it reported of the job's newest
	// attempts; after that, [Restated].
	Restate struct{}
)

type (
	// Opened is a report that the agent knows a job.
	Opened struct{}
	// Draining is a report that the node will be gone, after the time of Within at the latest. It
	// is about all jobs, which give the node up; an order to leave follows when they have. With
	// All, somebody else will end all nodes of the only job then; with a Signal, who stops this
	// node has told all of them to stop, and the job is to.
	Draining struct {
		Why    string
		Within time.Duration
		All    bool
		Signal syscall.Signal
	}
	// Met is a report of who has come to the store that this node serves to a gang, and who waits there, after nothing of that has changed
	// for a while; an empty one says that nobody needs to know any more.
	Met struct {
		Unit, Attempt int
		Meeting       job.Meeting
	}
	// Restated ends what [Restate] asked for.
	Restated struct{}
)
