// Package cluster decides which nodes and GPUs each job of a cluster gets, and in which order.
//
// [State.Step] takes an event and returns the steps of jobs ([job.State]) that the event caused,
// with the actions that follow. Like internal/core/job it reads no clock, environment, network or
// randomness and starts no goroutine; [placement.Solve] is its arithmetic.
//
// A job that lacks nodes, at its start or because one was lost, waits in the queue. Higher
// priorities come first. Within a priority, jobs that hold nodes come first, because their nodes
// are idle until the lost nodes are replaced. Then comes the user who holds the fewest GPUs in that
// priority. This is max-min fairness (Ghodsi et al., Dominant Resource Fairness, NSDI 2011, with
// GPUs as the one resource). Jobs of one user are in the order of submission. A job whose turn has
// come keeps its turn. After a change that can help, the first job is tried. Either it gets all
// nodes of a plan at once, with only the GPUs that it may have, or it waits and is told why
// ([job.Queued]). A job holds its share of a node until the job ends or the node is lost. These
// rules hold:
//
//   - A GPU is held by one job. Within a reservation, up to [Spec].Colocated jobs may hold one GPU
//     at a time, but only if no other GPU fits.
//   - A job behind a waiting job waits too, and is told behind which job.
//   - The first job preempts jobs of lower priorities that hold nodes that it lacks, but never
//     reservations. Jobs of the lowest priority are preempted first, and within a priority the
//     newest job. A preempted job gets notice and gives up all its nodes, even nodes that the first
//     job does not need, before it is served again.
//   - A job that would take its user past a limit waits, and no other job waits behind it.
//   - A job with Backfill need not wait behind others, but it does not get the nodes that the first
//     job in the queue will get. These nodes are the first job's shadow: a plan on the nodes with
//     the most free GPUs, made as if no job held anything. The plan stays while that job stays the
//     first and these nodes stay, so that no stream of small jobs can starve the first job. That is
//     the guarantee of conservative backfilling (Mu'alem and Feitelson, IEEE TPDS 12(6), 2001) for
//     the first job only. It reserves nodes instead of times, because run times are unknown. A job
//     for which the whole cluster would not suffice keeps no nodes from others.
//   - A reservation waits and is repaired like a job. The jobs within it wait among themselves,
//     for its nodes alone.
//   - A job that restarts on the nodes that it has does not wait. It grows, up to its largest
//     number of nodes, only when it is the first.
//   - No job is given a drained node; a job that holds one keeps it.
//   - A job that excludes a node ([job.State.Excludes]) exchanges it before the next attempt for
//     the free node that is nearest to it by [placement.TopologyLabel]. If there is no such node,
//     the job keeps the excluded node. A job gets a node that it excludes, or a node whose hardware
//     failed in any job ([job.Quarantine]), only if no other node fits.
//
// A step costs O(1) beyond the cost of the job's own step. A try of the queue costs O(n log n) for
// n nodes, and is made only when enough nodes or GPUs were added or freed.
package cluster

import (
	"slices"

	"github.com/golaunch/golaunch/internal/core/goodput"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// Spec is a request to the cluster for a job.
type Spec struct {
	Job job.Spec
	// Within is the reservation on whose nodes and GPUs the job runs; empty if the job runs on
	// those of the cluster.
	Within string
	// GPUs, if not nil, are indexes: the job may have only these GPUs of each node.
	GPUs []int
	// Backfill says that the job may start before waiting jobs if that takes nothing from the first
	// of them.
	Backfill bool
	// Reserve says that the job holds its placement groups for jobs that run within it, and runs
	// nothing itself.
	Reserve bool
	// Colocated is how many jobs within a reservation may hold one of its GPUs at a time, for
	// groups of ranks that take turns (NeMo RL's max_colocated_worker_groups); 0 is 1.
	Colocated int
	// Priority is the job's priority; [Interactive] when empty.
	Priority Priority
	// User is the submitter's name, empty if unknown. The submitter does not choose it.
	User string
	// OnlyJob says that the coordinator exists for this one job. The job gets every node that joins
	// as a whole, spares too.
	OnlyJob bool
}

// Priority is how urgent a job is, in the words of Marin's Iris. A job preempts jobs of lower
// priorities.
type Priority string

const (
	// Production jobs are never preempted.
	Production Priority = "production"
	// Interactive jobs give way to production jobs only.
	Interactive Priority = "interactive"
	// Batch jobs give way to all others.
	Batch Priority = "batch"
)

// Priorities are all priorities, the highest first.
var Priorities = []Priority{Production, Interactive, Batch}

// above reports whether a priority is higher than another one.
func (p Priority) above(other Priority) bool {
	return slices.Index(Priorities, p) < slices.Index(Priorities, other)
}

// Limits say how many GPUs each user may hold at a time in each priority. The user [AnyUser] stands
// for each user without an entry in a priority. Without any entry there is no limit.
type Limits map[string]map[Priority]int

// AnyUser is the name in [Limits] for the limit of each user without a limit of its own.
const AnyUser = "*"

// Event is something that happened.
//
//sumtype:decl
type Event interface{ event() }

type (
	// Submitted adds a job that [State.Check] has let pass.
	Submitted struct{ Spec Spec }
	// Joined says that a node is there. If the node was there already, the event has newer facts,
	// and means that the agent is back, like [Rejoined]. The node's time is charged by its Kind,
	// which is empty if the node has none.
	Joined struct {
		Node placement.Node
		Kind string
	}
	// Freed says that some GPUs of a node, by index, are free now. Processes outside the cluster
	// held these GPUs when the node joined.
	Freed struct {
		Node string
		GPUs []int
	}
	// Lost says that a node's agent is gone and that none of its ranks can be alive.
	Lost struct{ Node, Why string }
	// Rejoined says that an agent is back after its connection broke. Its node was never lost.
	Rejoined struct{ Node string }
	// Drain stops a node from being given to any job. [Outcome].Leave has the node once no job
	// holds it. If Leaves is set, the jobs that hold the node are told of it, and give the node up.
	Drain struct {
		Node   string
		Leaves *job.Draining
	}
	// Limited replaces the limits of users.
	Limited struct{ Limits Limits }
	// Avoid says that jobs get a node only if no other node suffices, like [job.Quarantine].
	// Readmit ends that.
	Avoid   struct{ Node, Why string }
	Readmit struct{ Node string }
	// Happened is an event of one job: a report of one of its nodes, the answer to a timer, or
	// [job.Cancel]. Cancelling a reservation cancels the jobs within it. The reservation ends once
	// they have ended.
	Happened struct {
		Job   string
		Event job.Event
	}
)

func (Submitted) event() {}
func (Joined) event()    {}
func (Freed) event()     {}
func (Lost) event()      {}
func (Rejoined) event()  {}
func (Drain) event()     {}
func (Limited) event()   {}
func (Avoid) event()     {}
func (Readmit) event()   {}
func (Happened) event()  {}

// Step is one step of one job.
type Step struct {
	Job string
	// Event is the event that the job got; nil if the step has only actions. Stale is as
	// [job.State.Stale].
	Event   job.Event
	Stale   bool
	Actions []job.Action
	Reason  string
	// Changes say what the job's ranks spend their time on now, for its ledger.
	Changes []goodput.Change
	// Verdict is as [job.State.Judged].
	Verdict report.Verdict
	// Granted has the placement groups of a reservation, in each step that makes them complete.
	Granted *placement.Plan
}

// Outcome has the effects of an event.
type Outcome struct {
	// Steps are the steps of jobs, in order.
	Steps []Step
	// Leave are drained nodes that no job holds any more.
	Leave []string
	// Stale says that the event changed nothing, so that a log need not keep it.
	Stale bool
}
