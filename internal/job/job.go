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
//   - What starts, and not for the second time, is on nodes that have said that they reach the port of the master, if that one lives.
//
// A step costs O(1), but for the placement and the start or stop of a whole attempt.
package job

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/golaunch/golaunch/internal/goodput"
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
	ExitCodes map[Ending]int
	// Rules are the user's own rules of what a failure means, as [verdict.Parse] reads them; they come before the built-in ones.
	Rules string
	// Grace is how long a rank may take to end after SIGTERM before it is killed.
	Grace time.Duration
	// FixedPool says that no node can join any more once the ones it waits for are lost: a job that cannot be placed then ends. Pool
	// is how many are to come before that, spares included; 0 waits for none that is late.
	FixedPool bool
	Pool      int
}

// Exit is how one process ended.
type Exit struct {
	// Code is the exit code; for a process that died of a signal it is 128+Signal.
	Code int
	// Signal is the signal that ended the process, or 0.
	Signal int
	// OOM says that the kernel killed it for want of memory.
	OOM bool
	// Spawn says why the process could not be started at all: Code is then 126 (not executable), 127 (not found) or 125.
	Spawn string
}

// OK reports success.
func (e Exit) OK() bool { return e.Code == 0 && e.Spawn == "" }

// Event is something that happened.
//
//sumtype:decl
type Event interface {
	event()
	fmt.Stringer
}

type (
	// Submitted begins the job, so that the wait for its first node is bounded too.
	Submitted struct{}
	// Joined says that a node is there, at the start or as a spare. For one that is there and idle it brings newer facts.
	Joined struct{ Node placement.Node }
	// Lost says that a node's agent is gone and that none of its ranks can be alive.
	Lost struct{ Node, Why string }
	// Rejoined says that an agent is back after its connection broke: it was never lost, but orders to it may have been.
	Rejoined struct{ Node string }
	// Draining says that a node will be gone after the time of Within, and why: its ranks may use that time.
	Draining struct {
		Node   string
		Within time.Duration
		Why    string
	}
	// Ready answers [Notice]: all ranks of a unit on this node have said that they are ready, or have ended.
	Ready struct {
		Node          string
		Unit, Attempt int
	}
	// Prepared answers [Prepare]: the master node has a free port, or says in Err why not.
	Prepared struct {
		Node    string
		Unit    int
		Attempt int
		Port    int
		Err     string
	}
	// Reached answers the [Reach] of that number: the node reaches the master's port, or says in Err why not.
	Reached struct {
		Node string
		Seq  int
		Err  string
	}
	// Started says that all ranks of a unit on this node were started, with their process ids and, for ranks with GPUs, the addresses
	// on their node where NCCL's RAS service of each can be asked, both in the order of the ranks.
	Started struct {
		Node          string
		Unit, Attempt int
		PIDs          []int
		RAS           []string
	}
	// Met says who has come to the store that the master node serves to a gang, and who waits there for what, after nothing of that
	// has changed for a while. It is empty when there is nothing to say of an attempt that there was before.
	Met struct {
		Node          string
		Unit, Attempt int
		Clients       []Client
	}
	// Stalled says which ranks of a node stand still, and for how long, once one that has a heartbeat has had none for the limit
	// (--hang-timeout), or none of the node's ranks has moved for that long. It comes again every half of the limit while that is so, and
	// with no ranks when it is over.
	Stalled struct {
		Node          string
		Unit, Attempt int
		Ranks         []Still
		// Behind are the processes that NCCL waits for, as its RAS service says; Key is the reason. Only the master's node asks.
		Behind []Client
	}
	// Stepped says to which step, above 0, rank 0 has come by its heartbeat, and how long ago that was.
	Stepped struct {
		Node          string
		Unit, Attempt int
		Step          int64
		Ago           time.Duration
	}
	// Exited says that a rank ended, or could not be started.
	Exited struct {
		Node          string
		Unit, Attempt int
		Rank          int
		Exit          Exit
		// At is when it ended, by the coordinator's clock, and Lived for how long it had run.
		At    time.Time
		Lived time.Duration
		// Step is how far the rank said it had come; 0 when it did not.
		Step int64
		// Kernel has what the node's kernel said of its GPUs while the rank lived.
		Kernel string
		// Told says that the node had been ordered to stop it.
		Told bool
		// Tail has the last lines of the rank's standard error, and Traceback what it left in its TORCHELASTIC_ERROR_FILE.
		Tail, Traceback string
	}
	// Stopped says that no process of this unit and attempt lives on the node any more, whether they were ordered to stop or
	// ended by themselves. It follows the reports of their exits.
	Stopped struct {
		Node          string
		Unit, Attempt int
	}
	// Elapsed answers [Wait].
	Elapsed struct{ Unit, Attempt int }
	// TimedOut answers [Alarm].
	TimedOut struct {
		Kind AlarmKind
		Seq  int
	}
	// Queued says why a cluster has not given the job the nodes that it [State.Wants]; the next node it gets makes that void.
	Queued struct{ Why string }
	// Cancel asks for the end of the job: Code is its exit code (130 for ^C; 0 counts as 130), Why the reason, and Ending the word for
	// it, [EndCancelled] when empty. A second one kills.
	Cancel struct {
		Code   int
		Why    string
		Ending Ending `json:",omitempty"`
		// Within, if there is any, is the time that ranks have to get ready before the job ends; a later one of this kind may change the
		// limit, and the words until nothing lives; one without it ends the job. Loose says that there is no limit: somebody else will end
		// what is not ready then.
		Within time.Duration `json:",omitempty"`
		Loose  bool          `json:",omitempty"`
	}
)

// Still is a rank that does not move.
type Still struct {
	Rank int
	// For is how long it has not moved, in the eyes of its agent. Beat says that its heartbeat stands still, which alone counts for a
	// rank that ever had one.
	For  time.Duration
	Beat bool
	// Step is that of its last heartbeat; -1 when there is none.
	Step int64
	// Does is what its busiest process is: "stopped", "asleep (futex_do_wait)".
	Does string
}

// Client is a process that has come to the store.
type Client struct {
	Addr netip.Addr
	// PID is the process id on its node; 0 when it is not known.
	PID int
	// Key is the first one that it waits for; empty when it does not wait.
	Key string
}

// Action is something that must now be done. Actions are idempotent.
//
//sumtype:decl
type Action interface {
	action()
	fmt.Stringer
}

type (
	// Prepare asks the master node for the port of an attempt, where ranks on Peers can come. Fresh says that nothing of what an
	// earlier attempt left there may be found any more.
	Prepare struct {
		Node          string
		Unit, Attempt int
		Fresh         bool
		Peers         []netip.Addr
	}
	// Admit tells the master node anew whose ranks can come to the port it gave.
	Admit struct {
		Node  string
		Peers []netip.Addr
	}
	// Reach asks a node whether it reaches the port that the master gave, at Addr, which is an address in text. A newer Seq replaces
	// an older one. Late says that ranks have started there since: if rank 0 is to listen, it may have ended that, or not yet begun.
	Reach struct {
		Node string
		Seq  int
		Addr string
		Port int
		Late bool
	}
	// Start orders a node to start its ranks of a unit, unless it knows of this attempt or a later one already.
	Start struct {
		Unit, Attempt int
		// Group is the node's own share of the plan, with just the bundles to be started.
		Group placement.Group
		World World
	}
	// Notice tells the ranks of a unit on a node that they will be stopped after the time of Within, or once all have said [Ready].
	Notice struct {
		Node          string
		Unit, Attempt int
		Within        time.Duration
		Why           string
	}
	// Stop orders a node to end a unit and to answer [Stopped]: SIGTERM, the grace period, SIGKILL; Kill goes to SIGKILL at once.
	// An attempt that the node does not know yet must not start there any more. Evidence says what to keep of the ranks before that.
	Stop struct {
		Node          string
		Unit, Attempt int
		Grace         time.Duration
		Kill          bool
		Evidence      Evidence
	}
	// Wait asks for an [Elapsed] after the backoff that follows the Restarts-th restart, at once for 0, or after the longest one: what
	// is outside of the job must be mended first.
	Wait struct {
		Unit, Attempt, Restarts int
		Long                    bool
	}
	// Alarm asks for a [TimedOut] after the limit of that kind, or after the time of For; a newer Seq replaces an older one.
	Alarm struct {
		Kind AlarmKind
		Seq  int
		For  time.Duration
	}
	// Shun says that a node's hardware has failed, as one of its ranks or the kernel said: what is about to be placed there should go to
	// other nodes for as long as [Spec.ExcludeFor].
	Shun struct{ Node, Why string }
	// Finish ends the job. It is the last action.
	Finish struct{ Result Result }
)

// Evidence says why ranks are stopped, for what is worth keeping of them.
type Evidence string

const (
	// NoEvidence is for a stop that was asked for, or follows one that was.
	NoEvidence Evidence = ""
	// CrashEvidence is for the peers of a rank or node that failed: quickly, since nothing waits any more but the restart.
	CrashEvidence Evidence = "crash"
	// HangEvidence is for ranks that hang: where each of them stands is what there is to know.
	HangEvidence Evidence = "hang"
)

// AlarmKind names a limit on waiting.
type AlarmKind string

const (
	// AlarmPlacement bounds the wait for nodes and GPUs (--placement-timeout).
	AlarmPlacement AlarmKind = "placement"
	// AlarmLastCall bounds the wait for more nodes once the least number is there (--nodes MIN:MAX).
	AlarmLastCall AlarmKind = "last-call"
	// AlarmRefill ends the time without a failure after which the budget is whole again ([Spec.RefillAfter]).
	AlarmRefill AlarmKind = "refill"
	// AlarmDrain bounds the wait for ranks to get ready for the end of a node.
	AlarmDrain AlarmKind = "drain"
	// AlarmGrow ends the time for which a job has as many nodes as it has ([Spec.GrowAfter]).
	AlarmGrow AlarmKind = "grow"
	// AlarmExclusion ends the exclusion of nodes ([Spec.ExcludeFor]).
	AlarmExclusion AlarmKind = "exclusion"
)

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
	// Network is a [nccl.Agreement] of the nodes that the job had when all of it was placed, in text; empty for CPU ranks and for a
	// job on one node.
	Network string
}

// Failure is what an attempt failed of. What follows it is an echo.
type Failure struct {
	// Node and Rank say where; Rank is -1 when it is not about one rank (a lost node).
	Node string
	Rank int
	// GPU is the rank's GPU, for the report; nil for a CPU rank.
	GPU     *placement.GPU
	Attempt int
	Exit    Exit
	At      time.Time
	Lived   time.Duration
	Step    int64
	// Further is how many other ranks of the attempt failed before they were told to stop.
	Further int
	// Why is the failure in words: "rank 3 on n1 (gpu 3) died of SIGKILL (out of memory)".
	Why             string
	Tail, Traceback string
	// Kernel has what the node's kernel said of its GPUs.
	Kernel string
	// Hung says that nothing ended: the ranks stood still, and Rank is the one that lags, if one does.
	Hung bool
}

// Ending says in one word what a job ended for, for whoever decides whether to submit it again.
type Ending string

const (
	// EndSuccess has all ranks of the last attempt exit 0.
	EndSuccess Ending = "success"
	// EndProgram would fail again: do not submit it again as it is.
	EndProgram Ending = "program"
	// EndBudget has failed more often than it may. A restart might have helped, or not.
	EndBudget Ending = "budget"
	// EndInfrastructure has failed: a node, its hardware, the network or golaunch itself. Submit it again.
	EndInfrastructure Ending = "infrastructure"
	// EndPreempted lost its nodes to another job, or its time was over. Submit it again.
	EndPreempted Ending = "preempted"
	// EndTimeout has not got its nodes in time.
	EndTimeout Ending = "timeout"
	// EndCancelled was told to stop.
	EndCancelled Ending = "cancelled"
)

// Unsuccessful are all endings but one.
var Unsuccessful = []Ending{EndProgram, EndBudget, EndInfrastructure, EndPreempted, EndTimeout, EndCancelled}

// Result is how a job ended.
type Result struct {
	// Code is 0 for success, the root cause's exit code, or golaunch's own: 124 a timeout waiting for nodes, 125 golaunch's own
	// failure, an infeasible request or a lost node.
	Code   int
	Ending Ending
	// Reason is the whole in one line.
	Reason string
	// Cause is the root cause of the last attempt; nil on success and when there was none.
	Cause *Failure
	// Attempts is the number of attempts that were started, over all units; Restarts the budget used.
	Attempts, Restarts int
	// Goodput is what the time of its ranks went into, which the clock's owner adds; nil if it never had ranks.
	Goodput *goodput.Report `json:",omitempty"`
}
