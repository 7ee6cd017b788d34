// Package capacity decides which nodes a cluster requests from providers, and which it gives back.
//
// [Decide] takes the queue, the present nodes, the requested nodes and the time, and returns the
// actions that follow. A [Pool] has the requested nodes. It depends only on the log, so a
// coordinator that takes over also knows the nodes that its predecessors requested. Like
// internal/core/cluster, the package reads no clock, network or randomness. It calls
// [placement.Solve] to find out whether nodes suffice for a job.
//
// These rules hold:
//
//   - Jobs are served in the order of the queue, with the nodes that are free now or on their way.
//     Nodes are requested for the first job that lacks nodes, then for the next such job, and so
//     on.
//   - Nodes are requested only if they complete a job, which then has all the nodes that it needs.
//     Behind a job that cannot be completed, only jobs with Backfill get nodes, as in the queue.
//   - Of the kinds that complete a job, the kind with the highest Priority is taken, then the
//     cheapest, then the first. If no kind alone completes the job, nodes of several kinds are
//     requested.
//   - A node that does not join within its kind's StartTimeout is given up, and so is a node that
//     the provider refuses or no longer has. For a while, longer each time, no node of that kind is
//     then requested. The same holds if a node joins with less than its kind promises.
//   - A node that no job holds and no waiting job will get is idle. The node is drained once it has
//     been idle for its kind's Idle, and deleted once its agent has left. A requested node that no
//     job needs any more is given up after the same time. Each kind keeps Min nodes.
//   - While a kind cannot be requested, but will be within holdTime, the first blocked job keeps
//     the nodes that it can already use.
//   - A lost node that does not return within rejoinTime is deleted. Until then the queue does not
//     count on the node, but Max includes it.
//   - A node with a job or a reservation is never deleted.
//
// A decision costs O(n log n) for n nodes, and little for each job in the queue.
package capacity

import (
	"time"

	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/placement"
)

// TagLabel is the label with which a node names the [Claim] for which it was made.
const TagLabel = "capacity.tag"

// KindLabel is the label with which a node without a claim names its [Kind].
const KindLabel = "capacity.kind"

// Kind is a kind of node that a provider can make: a node group of Kubernetes' Cluster Autoscaler,
// or a partition of Slurm.
type Kind struct {
	// Name has letters, digits and hyphens, because the tags of its nodes begin with it.
	Name string
	// Node has the GPUs, CPUs, memory and labels of each node. It has no name and no address.
	Node placement.Node
	// Min and Max bound the number of nodes.
	Min, Max int
	// Idle is how long a node that no job needs is kept.
	Idle time.Duration
	// Priority takes precedence over Cost, which is the price of a node per hour in any unit.
	Priority int
	Cost     float64
	// StartTimeout is how long a node may take from the request until its agent joins.
	StartTimeout time.Duration
}

// Code is the reason for an action.
type Code string

const (
	// CodeQueue: a job in the queue needs the node. CodeMin: the node's kind has fewer nodes than
	// Min.
	CodeQueue Code = "queue"
	CodeMin   Code = "min"
	// CodeIdle: no job has needed the node for its kind's Idle time. CodeUnneeded: the same for a
	// node that has not joined yet.
	CodeIdle     Code = "idle"
	CodeUnneeded Code = "unneeded"
	// CodeLate: the node did not join within StartTimeout.
	CodeLate Code = "late"
	// CodeLost: the node's agent was lost. CodeLeft: the node's agent has left after a drain.
	CodeLost Code = "lost"
	CodeLeft Code = "left"
)

// Action is something that the caller of [Decide] must do.
//
//sumtype:decl
type Action interface{ action() }

type (
	// Request asks for further nodes of a kind.
	Request struct {
		Kind  string
		Nodes int
		Code  Code
		Why   string
	}
	// Drain stops the cluster from giving a node to jobs. The node's agent then leaves.
	Drain struct {
		Node, Tag string
		Code      Code
		Why       string
	}
	// Fail notes that a node has less than its kind promises.
	Fail struct{ Tag, Why string }
	// Delete gives back a node, or gives up a node that has not joined.
	Delete struct {
		Tag  string
		Code Code
		Why  string
	}
)

func (Request) action() {}
func (Drain) action()   {}
func (Fail) action()    {}
func (Delete) action()  {}

// Situation is the input of a decision.
type Situation struct {
	Now   time.Time
	Kinds []Kind
	// Max bounds the nodes of all kinds together, in addition to the Max of each kind; 0 means no
	// bound. A request for one kind leaves room for the Min of the other kinds.
	Max  int
	Pool *Pool
	// Demands are the jobs that wait for nodes, in the order of the queue. Offers are all nodes.
	Demands []cluster.Demand
	Offers  []cluster.Offer
	// Waits is from the last [Decision], or nil at first.
	Waits map[Wait]time.Time
}

// Wait identifies a wait that ends with the return of a node to its provider. With CodeIdle the
// wait lasts while no job needs the node, with CodeLate until the node joins, and with CodeLost
// until the lost node joins again.
type Wait struct {
	Tag  string
	Code Code
}

// Decision is a list of actions that must now be carried out.
type Decision struct {
	Actions []Action
	// Waits is when those waits began whose beginning is not in the log. The next [Situation] needs
	// it.
	Waits map[Wait]time.Time
	// Next is when to decide again if no event happens earlier. It is zero if only an event can
	// change the decision.
	Next time.Time
	// Blocked is the first job for which no nodes can be requested, and Why is the reason; both are
	// empty if there is no such job.
	Blocked, Why string
}
