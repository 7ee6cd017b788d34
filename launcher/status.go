package launcher

import (
	"time"

	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// Status is a cluster as it stands.
type Status struct {
	// Version is the coordinator's golaunch, Since when it started.
	Version string
	Since   time.Time
	// Coordinators are where those of a cluster are that has several, HOST:PORT, the one that leads
	// first; none if it has one. Silent are those of them that do not answer it.
	Coordinators, Silent []string
	// Nodes are sorted by name.
	Nodes []NodeStatus
	// Jobs are in the order of submission: all that are not over, and the last that are.
	Jobs []JobStatus
}

// NodeStatus is one node of a cluster.
type NodeStatus struct {
	Node placement.Node
	// Silent is for how long nothing was heard of an agent whose connection is broken; 0 while it
	// is there.
	Silent time.Duration
	// Drained says that it gets no more ranks.
	Drained bool
	// Holds is what each job and reservation has there, in the order of submission.
	Holds []Holding
	// Excluded are the jobs that use the node only if others will not do.
	Excluded []Exclusion
}

// Holding is what a job or a reservation has of a node: GPUs by their indexes. One without GPUs has
// none, and may run there all the same.
type Holding struct {
	Job  string
	GPUs []int
}

// Exclusion is that a job uses a node only if others will not do, because of failures there.
type Exclusion struct {
	// Job is empty when it is all jobs: the node's hardware has failed in one of them.
	Job   string
	Why   string
	Until time.Time
}

// JobStatus is one job of a cluster, or a reservation.
type JobStatus struct {
	// ID is the job's, and Title its command in one line.
	ID, Title string
	// Phase is "gathering" while it waits for nodes, "preparing", "running", "stopping", "backoff"
	// or "finished".
	Phase string
	// Waits says what the job waits for; once it is over, how it ended.
	Waits string
	// Finished is zero before the end.
	Submitted, Finished time.Time
	// Detached jobs go on without their client, Reserve says that it is a reservation, and Within
	// names the one that it runs on.
	Detached, Reserve bool
	Within            string
	// Attempt is the newest, and Restarts those so far.
	Attempt, Restarts, MaxRestarts int
	// Nodes are in the order of node ranks; when it is over, all that it ever had, by name. Ranks
	// and GPUs count what it has now.
	Nodes       []string
	Ranks, GPUs int
	// Result is nil before the end.
	Result *report.Result
	// Goodput is what the time of its ranks went into until now, or its end; nil for a reservation
	// and while it has had no ranks.
	Goodput *report.Goodput
	// Submitter is the uid of who submitted it; nil where the coordinator does not know it.
	Submitter *uint32
	// History is what was decided, in the order of time: the newest 64 moments. A Brief status has
	// none.
	History []Moment
}

// Moment is something that was decided about a job.
type Moment struct {
	At time.Time
	// Attempt is the newest that was started by then; -1 before the first.
	Attempt int
	// To is what the ranks spend their time on from then on: "starting", "training", "stopping",
	// "backoff" or "waiting"; empty when that did not change, or nothing runs any more.
	To string
	// Cause and Node are why an attempt was stopped, and the node that is to blame; empty
	// otherwise.
	Cause  string
	Node   string
	Reason string
}

// RAS is what the RAS service of a job's NCCL says. It knows about all ranks, whichever is asked.
type RAS struct {
	// NCCL is the version of the rank that was asked; it is empty when none answers, and Why then
	// says why.
	NCCL string `json:"nccl,omitempty"`
	Why  string `json:"why,omitempty"`
	// Communicators counts those of the job, Processes those in them, and Responding those that
	// have answered.
	Communicators int `json:"communicators"`
	Processes     int `json:"processes"`
	Responding    int `json:"responding"`
	// Behind are those that others wait for, 16 at most.
	Behind []Laggard `json:"behind"`
}

// Laggard is a process that has started fewer collectives than others, or does not answer them.
// Host is an IP address.
type Laggard struct {
	Host string `json:"host"`
	PID  int    `json:"pid"`
	Why  string `json:"why"`
}

// String is the report in one line.
func (r RAS) String() string {
	return wire.RAS{
		NCCL: r.NCCL, Why: r.Why, Communicators: r.Communicators, Processes: r.Processes, Responding: r.Responding,
		Behind: each(r.Behind, func(l Laggard) wire.Laggard { return wire.Laggard(l) }),
	}.String()
}

// Query limits a [Status].
type Query struct {
	// Job is the only one that is described, with its nodes; empty for all.
	Job string
	// Jobs leaves out the nodes, Open the jobs that are over, and Brief what the ranks wrote before
	// they failed, Tail, Traceback and Kernel of a Cause, and the History.
	Jobs, Open, Brief bool
}

func statusOf(s wire.Status) Status {
	return Status{
		Version: s.Version, Since: s.Since, Coordinators: s.Coordinators, Silent: s.Silent,
		Nodes: each(s.Nodes, nodeStatusOf), Jobs: each(s.Jobs, jobStatusOf),
	}
}

func nodeStatusOf(n wire.NodeStatus) NodeStatus {
	return NodeStatus{
		Node: n.Node, Silent: n.Silent, Drained: n.Drained,
		Holds:    each(n.Holds, func(h cluster.Holding) Holding { return Holding(h) }),
		Excluded: each(n.Excluded, func(x wire.Exclusion) Exclusion { return Exclusion(x) }),
	}
}

func jobStatusOf(j wire.JobStatus) JobStatus {
	s := JobStatus{
		ID: j.ID, Title: j.Title, Phase: string(j.Phase), Waits: j.Waits, Submitted: j.Submitted, Finished: j.Finished,
		Detached: j.Detached, Reserve: j.Reserve, Within: j.Within, Attempt: j.Attempt, Restarts: j.Restarts, MaxRestarts: j.MaxRestarts,
		Nodes: j.Nodes, Ranks: j.Ranks, GPUs: j.GPUs, Goodput: j.Goodput, Submitter: j.Submitter,
		History: each(j.History, momentOf),
	}
	s.Result = j.Result
	return s
}

func rasOf(r wire.RAS) RAS {
	return RAS{
		NCCL: r.NCCL, Why: r.Why, Communicators: r.Communicators, Processes: r.Processes, Responding: r.Responding,
		Behind: each(r.Behind, func(l wire.Laggard) Laggard { return Laggard(l) }),
	}
}

func momentOf(m wire.Moment) Moment { return Moment(m) }
