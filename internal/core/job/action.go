package job

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// Action is something that must now be done. Actions are idempotent.
//
//sumtype:decl
type Action interface {
	action()
	fmt.Stringer
}

type (
	// Prepare asks the master node for the port of an attempt, where ranks on Peers can come, and whether it could start its Ranks of the
	// job. Fresh says that nothing of what an earlier attempt left there may be found any more.
	Prepare struct {
		Node          string
		Unit, Attempt int
		Fresh         bool
		Peers         []netip.Addr
		Ranks         int
	}
	// Admit tells the master node anew whose ranks can come to the port it gave.
	Admit struct {
		Node  string
		Peers []netip.Addr
	}
	// Reach asks a node whether it could start its Ranks of the job, and reaches the port that the master gave, at Addr, which is an
	// address in text. A newer Seq replaces an older one. Late says that ranks have started there since: if rank 0 is to listen, it may
	// have ended that, or not yet begun.
	Reach struct {
		Node  string
		Seq   int
		Addr  string
		Port  int
		Late  bool
		Ranks int
	}
	// Start orders a node to start its ranks of a unit, unless it knows of this attempt or a later one already.
	Start struct {
		Unit, Attempt int
		// Group is the node's own share of the plan, with just the bundles to be started.
		Group placement.Group
		World World
		// OwnRules says that the job has failure rules of its own, which may tell apart what the built-in ones do not.
		OwnRules bool
	}
	// Notice tells the ranks of a unit on a node that they will be stopped after the time of Within, or once all have said [Ready]. Of
	// several the one that ends first counts. Alarm is the Seq of the [Alarm] that ends it, 0 if somebody else does: when the notice is
	// repeated, whoever keeps the clock knows by that how much of Within is left.
	Notice struct {
		Node          string
		Unit, Attempt int
		Within        time.Duration
		Why           string
		Alarm         int
	}
	// Stop orders a node to end a unit and to answer [Stopped]: Signal, the grace period, SIGKILL;
	// Kill goes to SIGKILL at once. Signal is what the job was told to stop with, 0 when it was
	// not: then it is SIGTERM. An attempt that the node does not know yet must not start there any
	// more. Evidence says what to keep of the ranks before that.
	Stop struct {
		Node          string
		Unit, Attempt int
		Grace         time.Duration
		Kill          bool
		Evidence      Evidence
		Signal        int `json:",omitempty"`
	}
	// Wait asks for an [Elapsed] after the backoff that follows the Restarts-th restart, at once for 0, or after the longest one: what
	// is outside of the job must be mended first.
	Wait struct {
		Unit, Attempt, Restarts int
		Long                    bool
	}
	// Alarm asks for a [TimedOut] after the limit of that kind, or after the time of For. A newer Seq replaces an older one, but for
	// [AlarmDeparture], of which several may be out.
	Alarm struct {
		Kind AlarmKind
		Seq  int
		For  time.Duration
	}
	// Quarantine says that a node's hardware has failed, as one of its ranks or the kernel said: what is about to be placed there should go to
	// other nodes for as long as [Spec.ExcludeFor].
	Quarantine struct{ Node, Why string }
	// Finish ends the job. It is the last action.
	Finish struct{ Result report.Result }
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
	// AlarmDeparture ends the time that ranks have to get ready to be stopped.
	AlarmDeparture AlarmKind = "departure"
	// AlarmGrow ends the time for which a job has as many nodes as it has ([Spec.GrowAfter]).
	AlarmGrow AlarmKind = "grow"
	// AlarmExclusion ends the exclusion of nodes ([Spec.ExcludeFor]).
	AlarmExclusion AlarmKind = "exclusion"
)
