package job

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// Action is an order that the coordinator must now carry out. Actions are idempotent.
//
//sumtype:decl
type Action interface {
	action()
	fmt.Stringer
}

type (
	// Prepare asks the master node for the port of an attempt, and whether the node can start its
	// Ranks of the job. Ranks on Peers may connect to the port. Fresh says that the attempt needs a
	// new, empty store.
	Prepare struct {
		Node          string
		Unit, Attempt int
		Fresh         bool
		Peers         []netip.Addr
		Ranks         int
	}
	// Admit tells the master node anew which addresses may connect to its port.
	Admit struct {
		Node  string
		Peers []netip.Addr
	}
	// Reach asks a node whether it can start its Ranks of the job and reaches the master's Port at
	// Addr, an address in text. A newer Seq of a Unit replaces an older one. Late says that ranks
	// have started with that port. If rank 0 itself listens at the port, it may not listen yet, or
	// no longer listen.
	Reach struct {
		Node  string
		Unit  int
		Seq   int
		Addr  string
		Port  int
		Late  bool
		Ranks int
	}
	// Start orders a node to start its ranks of a unit, unless the node already knows of this
	// attempt or a later one.
	Start struct {
		Unit, Attempt int
		// Group is the node's own share of the plan, with only the bundles to be started.
		Group placement.Group
		World World
		// OwnRules says that the job has failure rules of its own, which may distinguish more than
		// the built-in ones.
		OwnRules bool
	}
	// Notice announces to the ranks of a unit on a node that they will be stopped after Within, or
	// earlier if all are [Ready]. Of several notices, the one that ends first counts. Alarm is the
	// Seq of the [Alarm] that ends the notice, 0 if the scheduler ends the ranks. When the
	// coordinator repeats a notice, it finds out from Alarm how much of Within is left.
	Notice struct {
		Node          string
		Unit, Attempt int
		Within        time.Duration
		Why           string
		Alarm         int
	}
	// Stop orders a node to end a unit and to answer [Stopped]. The node sends Signal, waits for
	// the grace period, and then sends SIGKILL. With Kill it sends SIGKILL at once. Signal is the
	// signal with which the job was told to stop; 0 means SIGTERM. If the node does not know the
	// attempt yet, it must no longer start it. Evidence says which evidence of the ranks to keep
	// before they are signalled. Alarm, if not 0, is the Seq of the [Alarm] with which the grace
	// period begins: the ranks may use the time until then too.
	Stop struct {
		Node          string
		Unit, Attempt int
		Grace         time.Duration
		Kill          bool
		Evidence      Evidence
		Signal        int `json:",omitempty"`
		Alarm         int `json:",omitempty"`
	}
	// Wait asks for an [Elapsed] after the backoff for that number of Restarts. For 0 Restarts
	// there is no backoff. Long asks for the longest backoff, because something outside the job
	// must be mended first.
	Wait struct {
		Unit, Attempt, Restarts int
		Long                    bool
	}
	// Alarm asks for a [TimedOut] after the limit of its Kind, or after For. A newer Seq replaces
	// an older one, except that several [AlarmDeparture] and [AlarmSave] may be set.
	Alarm struct {
		Kind AlarmKind
		Seq  int
		For  time.Duration
	}
	// Quarantine says that a node's hardware has failed, according to one of the node's ranks or
	// the kernel. For the time of [Spec.ExcludeFor], jobs get this node only if no other node fits.
	Quarantine struct{ Node, Why string }
	// Finish ends the job. It is the last action.
	Finish struct{ Result report.Result }
)

// Evidence says why ranks are stopped. The reason decides which evidence is worth keeping.
type Evidence string

const (
	// NoEvidence is for a stop that a user or a scheduler asked for, and for any stop after that.
	NoEvidence Evidence = ""
	// CrashEvidence is for the peers of a failed rank or node. It is taken quickly, since the
	// restart waits for it.
	CrashEvidence Evidence = "crash"
	// HangEvidence is for ranks that hang: keep each rank's place in the program.
	HangEvidence Evidence = "hang"
)

// AlarmKind names a limit on waiting.
type AlarmKind string

const (
	// AlarmPlacement bounds the wait for nodes and GPUs (--placement-timeout).
	AlarmPlacement AlarmKind = "placement"
	// AlarmLastCall bounds the wait for more nodes once MIN of --nodes MIN:MAX are there.
	AlarmLastCall AlarmKind = "last-call"
	// AlarmRefill ends the time without a failure after which the job gets its whole budget back
	// ([Spec.RefillAfter]).
	AlarmRefill AlarmKind = "refill"
	// AlarmDeparture ends the time that ranks have to get ready to be stopped.
	AlarmDeparture AlarmKind = "departure"
	// AlarmSave begins the last part of that time. In this part, ranks that catch the signal save.
	AlarmSave AlarmKind = "save"
	// AlarmGrow ends the time in which a job keeps its number of nodes ([Spec.GrowAfter]).
	AlarmGrow AlarmKind = "grow"
	// AlarmExclusion ends the exclusion of nodes ([Spec.ExcludeFor]).
	AlarmExclusion AlarmKind = "exclusion"
)

func (Prepare) action()    {}
func (Admit) action()      {}
func (Reach) action()      {}
func (Start) action()      {}
func (Notice) action()     {}
func (Stop) action()       {}
func (Wait) action()       {}
func (Alarm) action()      {}
func (Quarantine) action() {}
func (Finish) action()     {}
