// Package job decides what happens to one job: when it starts, what a failure means, when it restarts and how it ends.
//
// [State.Step] takes what happened and returns what must now be done, with the reason in words. It reads no clock, environment,
// network or randomness and starts no goroutine, so the same events always give the same state and the same actions. Time enters
// as events: [Wait] and [Alarm] ask for a timer, [Elapsed] and [TimedOut] are its answer.
//
// Events are what agents report and users ask; actions are what agents are ordered. The edges (rendezvous, agent) carry these
// same values, so that there is one vocabulary for both.
//
// The ranks that restart together form a unit. With the default policy the whole gang is one unit; a unit counts its own
// attempts from 0. A unit gathers its nodes, prepares (the master chooses a port, and the other nodes prove that they reach it),
// starts, and fails or is done:
//
//	gathering -> preparing -> running -> stopping -> finished
//	    ^            ^                      |
//	    |            |                      v
//	    +------------+------------------ backoff
//
// From the second attempt on it may fail while it prepares, too: then a node is to blame that does not reach the master.
//
// These invariants hold whichever messages are late, lost, doubled or reordered and whichever nodes die, as random worlds check:
//
//   - No node starts an attempt while an earlier one of its ranks may live anywhere: every node has said stopped or is lost.
//   - A report of an earlier attempt, or of a node that was lost or has stopped, changes nothing.
//   - The job finishes once, when nothing of it can live any more, and nothing but that is final.
//   - The end of a node that was told before costs nothing, however often that is.
//   - It succeeds only if every rank's newest attempt exited 0 and each of its nodes said stopped; a lost node is a failure.
//   - A unit has at most MaxRestarts+1 attempts without a refill between, but for one for each node that is to blame, and each but
//     the first follows a [Wait] that has elapsed.
//   - What cannot be started is not started again, and nothing starts once the end is decided, or was told to the ranks.
//   - Ranks hear of each end that is to come sooner than those they know of, and are stopped when the first is due. Nothing starts on
//     a node that leaves.
//   - What starts, and not for the second time, is on nodes that have said that they reach the port of the master, if that one lives.
//
// A step costs O(1), but for the placement and the start or stop of a whole attempt.
package job

import (
	"cmp"
	"fmt"
	"time"

	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// Restart says which ranks start again when one fails.
type Restart string

const (
	// RestartJob restarts the whole gang.
	RestartJob Restart = "job"
	// RestartNode restarts the ranks of the failed rank's node.
	RestartNode Restart = "node"
	// RestartRank restarts the failed rank alone, for programs that can bear it.
	RestartRank Restart = "rank"
	// RestartNever ends the job at the first failure.
	RestartNever Restart = "never"
)

// Spec is what a job asks for.
type Spec struct {
	ID      string
	Request placement.Request
	Restart Restart
	// MaxRestarts is one budget for the whole job, however many nodes and units it has.
	MaxRestarts int
	// RefillAfter is how long the job must run, with no failure, to get its whole budget back; 0 never.
	RefillAfter time.Duration
	// ExcludeAfter is how many failures a node may be to blame for until others are preferred to it, for as long as ExcludeFor; 0
	// never. Hardware that fails needs no second time.
	ExcludeAfter int
	ExcludeFor   time.Duration
	// GrowAfter is how long a job of fewer nodes than its most runs at least, with its whole gang, until it is stopped to start again on
	// more, if there are any; 0 for ever. DrainTime is how long its ranks then have to get ready.
	GrowAfter, DrainTime time.Duration
	// ExitCodes are codes for endings, in place of those that the result would have.
	ExitCodes map[report.Ending]int
	// Rules are the user's own rules of what a failure means, as [verdict.Parse] reads them; they come before the built-in ones.
	Rules string
	// Grace is how long a rank may take to end after SIGTERM before it is killed.
	Grace time.Duration
	// FixedPool says that no node can join any more once the ones it waits for are lost: a job that cannot be placed then ends. Pool
	// is how many are to come before that, spares included; 0 waits for none that is late.
	FixedPool bool
	Pool      int
}

// Imports is what a fork server has done for the ranks of a unit on a node: how long the start waited for it, how long its imports took,
// which was once for all attempts since, how many ranks were forked and in which time, and why others were not.
type Imports struct {
	Waited  time.Duration `json:",omitzero"`
	Took    time.Duration `json:",omitzero"`
	Forked  int           `json:",omitzero"`
	Forking time.Duration `json:",omitzero"`
	Why     string        `json:",omitzero"`
}

// add takes the imports of another node together with those of some.
func (m *Imports) add(other Imports) {
	m.Waited, m.Took, m.Forking = max(m.Waited, other.Waited), max(m.Took, other.Took), max(m.Forking, other.Forking)
	m.Forked += other.Forked
	m.Why = cmp.Or(m.Why, other.Why)
}

// words say it, of so many ranks.
func (m Imports) words(ranks int) string {
	var forked, others string
	if m.Forked > 0 {
		were := "were"
		if m.Forked == 1 {
			were = "was"
		}
		forked = fmt.Sprintf("imports took %.1f s, once, and %s %s forked in %.3f s", m.Took.Seconds(), count(m.Forked, "rank"), were, m.Forking.Seconds())
	}
	if m.Why != "" {
		others = fmt.Sprintf("%d of %d ranks import for themselves: %s", ranks-m.Forked, ranks, m.Why)
	}
	return also(forked, others)
}

// World is what a rank must know of the whole: a few facts, whatever the number of nodes.
type World struct {
	WorldSize, Nodes int
	// MasterAddr is an address in text, MasterPort the port proven free for this attempt.
	MasterAddr string
	MasterPort int
	// Uniform is the ranks on each node when all nodes have as many, else 0.
	Uniform int
	// MaxRestarts is the budget.
	MaxRestarts int
	// LocalSize is the job's ranks on the node that gets this, and GPUs their devices by local rank (nil for CPU ranks), whichever
	// of them are to be started.
	LocalSize int
	GPUs      []placement.GPU
	// RoleSize is the job's ranks on nodes of the same role, and RoleFirst the position among them of this node's first.
	RoleSize, RoleFirst int
	// Network is a [nccl.Agreement] of the nodes that the job had when all of it was placed, in text; empty for CPU ranks and for a
	// job on one node.
	Network string
}

func (w World) endpoint() string { return endpoint(w.MasterAddr, w.MasterPort) }
