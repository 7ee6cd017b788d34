// Package capacity decides which nodes a cluster asks of providers, and which it gives back.
//
// [Decide] takes the queue, the nodes that are there, the nodes that were asked for and the time,
// and returns what must now be done. A [Pool] is what was asked for, as a function of the log: so
// each coordinator of a log knows every node that the log's coordinators have asked for. Like
// internal/core/cluster the package reads no clock, network or randomness; [placement.Solve] is its
// arithmetic.
//
// These rules hold:
//
//   - Jobs are served in the order of the queue, with what is free now and what is on its way. For
//     the first that these do not suffice for, nodes are asked for, and so on.
//   - Nodes are asked for only if they complete a job. Behind a job that cannot be completed, only
//     jobs with Backfill get nodes, as in the queue.
//   - Of the kinds that complete a job, that with the highest Priority is taken, then the cheapest,
//     then the first. If no kind alone completes it, several do together.
//   - A node that does not come within its kind's StartTimeout is given up, and so is one that the
//     provider refuses or no longer has. Its kind is then left alone, for longer each time. So is
//     the kind of a node that comes with less than its kind promises.
//   - A node that no job holds and no waiting job will get is idle. It is drained once it has been
//     idle for its kind's Idle, and deleted once its agent has left. A node on its way that no job
//     needs any more is given up after the same time. The kind keeps Min nodes.
//   - If a kind is left alone for holdTime at most, the nodes that the first job is to get with it are
//     kept meanwhile.
//   - A lost node that does not return within rejoinTime is deleted. Meanwhile it counts as gone
//     for the queue, and as there for Max.
//   - A node with a job or a reservation is never deleted.
//
// A decision costs O(n log n) for n nodes, and little for each job in the queue.
package capacity

import (
	"time"

	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/placement"
)

// TagLabel is the label by which a node says for which [Claim] it was made.
const TagLabel = "capacity.tag"

// Kind is a kind of node that a provider can make: a node group of Kubernetes' Cluster Autoscaler,
// or a partition of Slurm.
type Kind struct {
	// Name has letters, digits and hyphens: it begins the tags of its nodes.
	Name string
	// Node has the GPUs, CPUs, memory and labels that each node brings. It has no name and no
	// address.
	Node placement.Node
	// Min and Max bound the number of nodes.
	Min, Max int
	// Idle is how long a node is kept that no job needs.
	Idle time.Duration
	// Priority comes before Cost, which is the price of a node per hour in any unit.
	Priority int
	Cost     float64
	// StartTimeout is how long a node may take from the request until its agent joins.
	StartTimeout time.Duration
}

// Code is why something is done.
type Code string

const (
	// CodeQueue: a job in the queue needs it. CodeMin: its kind has fewer nodes than Min.
	CodeQueue Code = "queue"
	CodeMin   Code = "min"
	// CodeIdle: no job has needed the node for its kind's Idle time. CodeUnneeded: the same for a
	// node that has not come yet.
	CodeIdle     Code = "idle"
	CodeUnneeded Code = "unneeded"
	// CodeLate: it did not come within StartTimeout.
	CodeLate Code = "late"
	// CodeLost: its agent was lost. CodeLeft: its agent has left after a drain.
	CodeLost Code = "lost"
	CodeLeft Code = "left"
)

// Action is something to be done.
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
	// Drain keeps a node from being given to jobs. Its agent then leaves.
	Drain struct {
		Node, Tag string
		Code      Code
		Why       string
	}
	// Fail notes that a node is not what its kind promises.
	Fail struct{ Tag, Why string }
	// Delete gives a node back, or gives up one that has not come.
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

// Situation is what a decision is made on.
type Situation struct {
	Now   time.Time
	Kinds []Kind
	// Max bounds the nodes of all kinds together, beside the Max of each; 0 does not. Each kind keeps
	// room for its Min.
	Max  int
	Pool *Pool
	// Demands are what waits for nodes, in the order of the queue, and Offers all nodes.
	Demands []cluster.Demand
	Offers  []cluster.Offer
	// Idle is since when no job has needed each node, by tag, as the last decision returned it; nil
	// at first.
	Idle map[string]time.Time
}

// Decision is what must now be done.
type Decision struct {
	Actions []Action
	// Idle is for the next [Situation].
	Idle map[string]time.Time
	// Next is when to decide again if nothing happens before; zero if there is no such time.
	Next time.Time
	// Blocked is the first job for which no nodes can be asked, and Why the reason; empty if there
	// is none.
	Blocked, Why string
}
