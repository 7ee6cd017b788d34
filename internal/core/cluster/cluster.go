// Package cluster decides which nodes and GPUs each job of a cluster gets, and in which order.
//
// [State.Step] takes an event and returns the steps of jobs ([job.State]) that the event caused,
// with what must now be done. Like internal/core/job it reads no clock, environment, network or
// randomness and starts no goroutine; [placement.Solve] is its arithmetic.
//
// A job that lacks nodes, at its start or because one was lost, waits in the queue. Higher
// priorities come first and, within one, jobs that hold nodes: their nodes are idle until the lost
// ones are replaced. Then comes the user who holds the fewest GPUs in that priority, which is
// max-min fairness (Ghodsi et al., Dominant Resource Fairness, NSDI 2011, with GPUs as the one
// resource), and then the order of submission. A job whose turn has come keeps it. After a change
// that can help, the first job is tried. It gets all nodes of a plan at once, with only the GPUs
// that are the job's, or it waits and is told why ([job.Queued]). A job holds what it gets until it
// ends or the node is lost. These rules hold:
//
//   - One job holds a GPU. Within a reservation, up to [Spec].Colocated jobs may hold one at a
//     time, and only when no other GPU will do.
//   - A job behind a job that waits, waits too, and is told behind which job.
//   - The first job preempts jobs of lower priorities that hold what it lacks, never reservations:
//     the lowest priority first, and within it the newest. Each gets notice and gives up all
//     its nodes, even those that the first job does not need, before it is served again.
//   - A job that would take its user past a limit waits, and no other job waits behind it.
//   - A job with Backfill need not wait behind others, but it does not get the nodes that the
//     first in the queue will get: its shadow. The shadow is a plan made as if no job held
//     anything, of the nodes with the most free GPUs. The plan stays while that job stays the first
//     and these nodes stay, so that no stream of small jobs can starve it. That is the guarantee of
//     conservative backfilling (Mu'alem and Feitelson, IEEE TPDS 12(6), 2001) for the first job
//     only, by nodes instead of run times, which are unknown. A job for which the whole
//     cluster would not suffice keeps nothing from others.
//   - A reservation waits and is repaired like a job. The jobs within it wait among themselves,
//     for its nodes alone.
//   - A job that restarts on the nodes it has does not wait. It grows, up to its most nodes, only
//     when it is the first.
//   - No job is given a drained node; a job that holds one keeps it.
//   - A job that excludes a node ([job.State.Excludes]) gives it back before its next attempt for a
//     free one that is nearest to it by [placement.TopologyLabel]; if there is none, it goes on. A
//     job is given such a node, or one whose hardware failed in any job ([job.Quarantine]), only if
//     others will not do.
//
// A step costs O(1) beyond the job's own. A try of the queue costs O(n log n) for n nodes, and is
// made only when enough nodes or GPUs were added or freed.
package cluster

import (
	"slices"

	"github.com/golaunch/golaunch/internal/core/goodput"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// Spec is what was asked of the cluster.
type Spec struct {
	Job job.Spec
	// Within is the reservation on whose nodes and GPUs the job runs; empty if it runs on the
	// cluster's.
	Within string
	// GPUs are the indexes of the only GPUs that the job may have, on every node; nil is any.
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

// Priority is how urgent a job is, in the words of Marin's Iris. A job preempts those of a lower one.
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
	// Joined says that a node is there. For a node that was there already, it brings newer facts,
	// and the agent is back as with [Rejoined]. The node's time is charged by its Kind, which is empty
	// if the node has none.
	Joined struct {
		Node placement.Node
		Kind string
	}
	// Freed says that GPUs of a node, by index, are free now that processes outside the cluster held
	// when it joined.
	Freed struct {
		Node string
		GPUs []int
	}
	// Lost says that a node's agent is gone and that none of its ranks can be alive.
	Lost struct{ Node, Why string }
	// Rejoined says that an agent is back after its connection broke. Its node was never lost.
	Rejoined struct{ Node string }
	// Drain stops a node from being given to any job. [Outcome].Leave has the node once no job
	// holds it. If Leaves is set, the jobs that hold the node are told, and give it up.
	Drain struct {
		Node   string
		Leaves *job.Draining
	}
	// Limited replaces the limits of users.
	Limited struct{ Limits Limits }
	// Avoid gives a node to jobs only if no other node suffices, as [job.Quarantine] does. Readmit
	// ends the avoidance.
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
	// Event is what the job was told; nil when only actions are due. Stale is as [job.State.Stale].
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

// Outcome is what an event caused.
type Outcome struct {
	// Steps are the steps of jobs, in order.
	Steps []Step
	// Leave are drained nodes that no job holds any more.
	Leave []string
	// Stale says that the event changed nothing, so that a log need not keep it.
	Stale bool
}
