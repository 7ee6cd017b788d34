// Package job is the language of jobs: requests ([Spec]), events ([Event]), actions ([Action]) and
// summaries ([Summary]). Events are the reports of agents and the requests of users. Actions are
// orders, mostly to agents. Package jobstate decides which actions follow from an event.
package job

import (
	"cmp"
	"fmt"
	"time"

	"github.com/golaunch/golaunch/internal/core/words"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// Restart says which ranks start again when a rank fails.
type Restart string

const (
	// RestartJob restarts the whole gang.
	RestartJob Restart = "job"
	// RestartNode restarts the ranks of the failed rank's node.
	RestartNode Restart = "node"
	// RestartRank restarts the failed rank alone, for programs that support this.
	RestartRank Restart = "rank"
	// RestartGroup restarts the ranks of the failed rank's replica group: see [Spec].Groups.
	RestartGroup Restart = "group"
	// RestartNever ends the job at the first failure.
	RestartNever Restart = "never"
)

// MaxGroups bounds the replica groups of a job.
const MaxGroups = 1024

// Spec is the request for a job.
type Spec struct {
	ID      string
	Request placement.Request
	Restart Restart
	// Groups is the number of replica groups that [RestartGroup] restarts; 0 for other policies.
	// Each group has the same number of consecutive ranks. The job ends when fewer than MinGroups
	// can run.
	Groups, MinGroups int
	// LostRanks is how many ranks of an attempt may fail, or be lost with their node, while the others
	// go on; only for a [Spec.Gang].
	LostRanks int
	// MaxRestarts is the budget of each replica group. A job without replica groups has one such
	// budget, for all its nodes and units.
	MaxRestarts int
	// RefillAfter is how long the job must run without a failure to get its whole budget back. With
	// 0 it never gets the budget back.
	RefillAfter time.Duration
	// ExcludeAfter is the number of failures after which the node that is to blame is excluded for
	// the time ExcludeFor: the job then prefers other nodes. With 0 the job excludes no node. A
	// node whose hardware fails is excluded at once.
	ExcludeAfter int
	ExcludeFor   time.Duration
	// GrowAfter is the least time for which a gang runs on fewer nodes than the request allows. If
	// there are more nodes after that, the job stops and starts again on more nodes. With 0 it
	// never does so. DrainTime is how long the ranks have to get ready for that stop.
	GrowAfter, DrainTime time.Duration
	// ExitCodes replace, for each ending, the exit code that the result would have.
	ExitCodes map[report.Ending]int
	// Rules are the user's own rules for what a failure means, as [verdict.Parse] reads them. They
	// are tried before the built-in ones.
	Rules string
	// Grace is how long a rank may take to end after SIGTERM before it is killed.
	Grace time.Duration
	// FixedPool says that all nodes of the job start together, so that no node can join later. Pool
	// is the number of these nodes, spares included, or 0 if it is not known. Once Pool nodes have
	// joined and ranks have started or a node was lost, the job waits for no further node: it ends
	// if it cannot be placed.
	FixedPool bool
	Pool      int
}

// Gang reports whether all ranks restart together.
func (s *Spec) Gang() bool {
	return s.Restart != RestartNode && s.Restart != RestartRank && s.Restart != RestartGroup
}

// Imports says what a fork server has done for the ranks of a unit on a node.
type Imports struct {
	// Waited is how long the start waited for the fork server. Took is how long the server's
	// imports took, once for all attempts since.
	Waited time.Duration `json:",omitzero"`
	Took   time.Duration `json:",omitzero"`
	// Forked is how many ranks the server forked, and Forking how long that took. Why says why
	// other ranks were not forked.
	Forked  int           `json:",omitzero"`
	Forking time.Duration `json:",omitzero"`
	Why     string        `json:",omitzero"`
	// Modules are the modules that took the longest, at most [MaxModules].
	Modules []report.Module `json:",omitempty"`
}

// MaxModules bounds the modules that an [Imports] names.
const MaxModules = 5

// Add joins the imports of another node.
func (m *Imports) Add(other Imports) {
	if other.Took > m.Took {
		m.Modules = other.Modules
	}
	m.Waited, m.Took, m.Forking = max(m.Waited, other.Waited), max(m.Took, other.Took), max(m.Forking, other.Forking)
	m.Forked += other.Forked
	m.Why = cmp.Or(m.Why, other.Why)
}

// Text describes the imports of that many ranks.
func (m Imports) Text(ranks int) string {
	var forked, others string
	if m.Forked > 0 {
		were := "were"
		if m.Forked == 1 {
			were = "was"
		}
		forked = fmt.Sprintf("imports took %.1f s, once, and %s %s forked in %.3f s",
			m.Took.Seconds(), words.Count(m.Forked, "rank"), were, m.Forking.Seconds())
	}
	if m.Why != "" {
		others = fmt.Sprintf("%d of %d ranks import for themselves: %s", ranks-m.Forked, ranks, m.Why)
	}
	return words.Also(forked, others)
}

// World has the facts about the whole job that a rank must know. Its size does not depend on the
// number of nodes. For a rank of a replica group, the whole job is the group.
type World struct {
	WorldSize, Nodes int
	// Groups is the number of replica groups, 0 for none. Group is the group of these ranks.
	// FirstRank and FirstNode are the rank and the node rank, in the job, with which the group
	// begins.
	Groups, Group        int
	FirstRank, FirstNode int
	// MasterAddr is an address in text. MasterPort is a port that was proven free for this attempt.
	MasterAddr string
	MasterPort int
	// Uniform is the number of ranks on each node, or 0 if nodes have different numbers.
	Uniform int
	// MaxRestarts is the budget.
	MaxRestarts int
	// LocalSize is the number of the job's ranks on the node that gets this World. GPUs are the
	// devices of all these ranks by local rank (nil for CPU ranks), even if only some ranks are to
	// be started.
	LocalSize int
	GPUs      []placement.GPU
	// RoleSize is the number of the job's ranks on nodes of the same role. RoleFirst is the
	// position of this node's first rank among them.
	RoleSize, RoleFirst int
	// Network is the [nccl.Agreement] of the nodes that the job had when it was placed as a whole,
	// in text; empty for CPU ranks and for a job on one node.
	Network string
}

// Ranks is the number of ranks of the job, in all groups.
func (w World) Ranks() int { return w.WorldSize * max(1, w.Groups) }
