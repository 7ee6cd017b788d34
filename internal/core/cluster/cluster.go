// Package cluster decides which nodes and GPUs each job of a cluster gets, and in which order.
//
// [State.Step] takes an event and returns the steps of jobs ([jobstate.State]) that the event
// caused, with the actions that follow. Like internal/core/jobstate, it reads no clock,
// environment, network or randomness and starts no goroutine. It calls [placement.Solve] to make
// plans.
//
// A job that lacks nodes, at its start or because one was lost, waits in the queue. Higher
// priorities come first. Within a priority, jobs that hold nodes come first, because their nodes
// are idle until the lost nodes are replaced. Then come the jobs of the user who holds the fewest
// GPUs in that priority. This is max-min fairness (Ghodsi et al., Dominant Resource Fairness, NSDI
// 2011, with GPUs as the one resource). Jobs of one user are in the order of submission. If the
// turn of a waiting job has come, its user's jobs stay ahead of other users' jobs of the same
// priority, even if the user then holds more GPUs. After a change that can help, the first job is
// tried. Either it gets all nodes of a plan at once, with only the GPUs that it may have, or it
// waits and an event [job.Queued] tells it why. A job holds its share of a node until the job ends
// or the node is lost. These rules hold:
//
//   - Only one job at a time holds a GPU. Within a reservation, up to [Spec].Colocated jobs may
//     hold the same GPU, but only if no other GPU fits.
//   - A job behind a waiting job waits too. An event tells it which job is ahead.
//   - The first job preempts jobs of lower priorities that hold nodes that it lacks, but never
//     reservations. Jobs of the lowest priority are preempted first, and within a priority the
//     newest job. A preempted job gets notice and gives up all its nodes, including nodes that the
//     first job does not need. Only then does it get nodes again.
//   - A job that would take its user past a limit waits, and no other job waits behind it.
//   - A job with Backfill need not wait behind others, but it does not get the nodes that the first
//     job in the queue will get. These nodes are the first job's shadow: a plan on the nodes with
//     the most free GPUs, made as if no job held anything. The plan remains the same while that job
//     stays the first and these nodes stay, so that no stream of small jobs can starve the first
//     job. That is the guarantee of conservative backfilling (Mu'alem and Feitelson, IEEE TPDS
//     12(6), 2001) for the first job only. It reserves nodes instead of times, because run times
//     are unknown. A first job for which the whole cluster would not suffice keeps no nodes from
//     others.
//   - A reservation waits and is repaired like a job. The jobs within it have a queue of their own,
//     and wait only for its nodes.
//   - A job that restarts on the nodes that it has does not wait. A job grows, up to its largest
//     number of nodes, only when no job waits ahead of it.
//   - No job gets a drained node, but a job that holds one keeps it.
//   - A job that excludes a node ([jobstate.State.Excludes]) exchanges it before the next attempt
//     for the free node that is nearest to it by [placement.TopologyLabel]. If there is no such
//     node, the job keeps the excluded node. A job gets a node that it excludes, or a node whose
//     hardware failed in any job ([job.Quarantine]), only if no other node fits.
//
// A step costs O(1) beyond the cost of the job's own step. A try to place the first job of the
// queue costs O(n log n) for n nodes, and is made only when enough nodes or GPUs were added or
// freed.
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
	// Within is the reservation on whose nodes and GPUs the job runs; empty if the job may run on
	// any of the cluster's nodes.
	Within string
	// GPUs, if not nil, are indexes: the job may have only these GPUs of each node.
	GPUs []int
	// Backfill says that the job may start before jobs that wait ahead of it, if it takes no nodes
	// from the first of them.
	Backfill bool
	// Reserve says that the job holds its placement groups for jobs that run within it, and runs
	// nothing itself.
	Reserve bool
	// Colocated is how many jobs within a reservation may hold one of its GPUs at a time, for
	// groups of ranks that take turns (NeMo RL's max_colocated_worker_groups); 0 means 1.
	Colocated int
	// Priority is the job's priority; [Interactive] when empty.
	Priority Priority
	// User is the submitter's name, empty if unknown. The submitter does not choose it.
	User string
	// OnlyJob says that the coordinator exists for this one job. The job gets every node that joins
	// as a whole, spares too.
	OnlyJob bool
}

// Priority is how urgent a job is. The names are those of Marin's Iris. A job preempts jobs of
// lower priorities.
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

// Limits say how many GPUs each user may hold at a time in each priority. The entry of [AnyUser] in
// a priority applies to each user without an entry of their own in that priority. Without any entry
// there is no limit.
type Limits map[string]map[Priority]int

// AnyUser is the name in [Limits] for the limit of each user without a limit of its own.
const AnyUser = "*"

// Event is something that happened.
//
//sumtype:decl
type Event interface{ event() }

type (
	// Submitted adds a job for which [State.Check] has returned no error.
	Submitted struct{ Spec Spec }
	// Joined adds a node. If the cluster has the node already, the event has newer facts about it,
	// and means that the agent is back, like [Rejoined]. Kind is the kind of node for which jobs
	// are charged, or empty.
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
	// Drain says that no job may get a node any more. [Outcome].Leave has the node once no job
	// holds it. If Leaves is set, each job that holds the node gets Leaves as an event, and gives
	// the node up.
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
	// Event is the event that the job got; nil if the step has only actions. Stale is the answer of
	// [jobstate.State.Stale].
	Event   job.Event
	Stale   bool
	Actions []job.Action
	Reason  string
	// Changes say what the job's ranks spend their time on now, for the job's ledger.
	Changes []goodput.Change
	// Verdict is the answer of [jobstate.State.Judged].
	Verdict report.Verdict
	// Granted has the placement groups of a reservation, in each step that completes them.
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
