package job

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/golaunch/golaunch/internal/core/lighthouse"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// Event is something that happened to a job.
//
//sumtype:decl
type Event interface {
	event()
	fmt.Stringer
}

type (
	// Submitted begins the job, so that the wait for its first node is bounded too.
	Submitted struct{}
	// Joined says that a node is there, at the start or as a spare. If the node had joined before
	// and is idle, the event has newer facts about it.
	Joined struct{ Node placement.Node }
	// Freed says that some GPUs of a node, by index, are free now. Other processes held them when
	// the node joined.
	Freed struct {
		Node string
		GPUs []int
	}
	// Lost says that a node's agent is gone and that none of its ranks can be alive.
	Lost struct{ Node, Why string }
	// Rejoined says that an agent is back after its connection broke. The node was never lost, but
	// orders to its agent may have been.
	Rejoined struct{ Node string }
	// Draining says that a node will be gone after Within, and why. The node's ranks may use that
	// time. The event may be repeated with less time.
	Draining struct {
		Node   string
		Within time.Duration
		Why    string
		// At is when the coordinator heard of the event.
		At time.Time `json:",omitzero"`
	}
	// Ready answers [Notice]: each rank of a unit on this node has said that it is ready, or has
	// ended.
	Ready struct {
		Node          string
		Unit, Attempt int
	}
	// Catching answers [Notice]: each rank of a unit on this node catches the signal that stops it,
	// and no other signal announces its end. The node reports checkpoints that these ranks are
	// writing before this event.
	Catching struct {
		Node          string
		Unit, Attempt int
	}
	// Prepared answers [Prepare]: the master node has a free Port, or Port is 0 and Err says why.
	// If the node knows that it cannot start its ranks, Unable is how the first rank would end. At
	// is when the coordinator heard of the event.
	Prepared struct {
		Node    string
		Unit    int
		Attempt int
		Port    int
		Err     string
		Unable  report.Exit `json:",omitzero"`
		At      time.Time   `json:",omitzero"`
	}
	// Reached answers the [Reach] with the same Seq: the node reaches the master's port, or Err
	// says why not. Unable and At are as in [Prepared].
	Reached struct {
		Node   string
		Seq    int
		Err    string
		Unable report.Exit `json:",omitzero"`
		At     time.Time   `json:",omitzero"`
	}
	// Started says that all ranks of a unit on this node were started. PIDs are their process ids.
	// For ranks with GPUs, RAS has the addresses on the node at which each rank's NCCL RAS service
	// answers. Both are in the order of the ranks.
	Started struct {
		Node          string
		Unit, Attempt int
		PIDs          []int
		RAS           []string
		Imports       Imports `json:",omitzero"`
	}
	// Met says, in the words of jobstate.State.Meeting, which ranks of a gang are missing at the
	// store of the master node, or for which key most ranks wait there. The node sends the event
	// once this has not changed for a while. Why is empty when no rank is missing and none waits.
	Met struct {
		Node          string
		Unit, Attempt int
		Why           string
		// Complete says that all ranks have connected; nil before they have.
		Complete *Complete `json:",omitempty"`
	}
	// Stalled says which ranks of a node stand still, and for how long. The node sends it when a
	// rank's heartbeat has been missing for the limit (--hang-timeout). It also sends it when no
	// rank of the node has moved for that long, or when some ranks have not moved and the others
	// have printed nothing. While the stall lasts, the node repeats it after each half of the
	// limit. When the stall is over, the node sends it without ranks.
	Stalled struct {
		Node          string
		Unit, Attempt int
		Ranks         []Still
		// Behind are the processes for which others wait, according to NCCL's RAS service; Key is
		// the reason. Only the master's node asks that service.
		Behind []Client
		// More counts further ranks, which are less significant than the ranks in Ranks.
		More int `json:",omitempty"`
		// Moving counts the ranks that still move but print nothing. If it is not 0, no heartbeat
		// is missing.
		Moving int `json:",omitempty"`
	}
	// Stepped says which step, above 0, rank 0 has reached according to its heartbeat, and how long
	// ago.
	Stepped struct {
		Node          string
		Unit, Attempt int
		Step          int64
		Ago           time.Duration
	}
	// Saved says how complete a checkpoint is that ranks of the node write or have written.
	Saved struct {
		Node          string
		Unit, Attempt int
		State         SaveState
		Path, Format  string
		// Step is 0 if the checkpoint does not name its step. Bytes is the size of the files that
		// this node sees.
		Step, Bytes int64
		// Shared says that all nodes see the same files, so that one node's proof is enough.
		Shared bool
		// Ago is how long ago the save began, in the state [SaveBegan], or how long ago it ended,
		// in the other states. Took is how long the save took. At is when the coordinator heard of
		// the event.
		Ago, Took time.Duration
		At        time.Time `json:",omitzero"`
		// Why names the missing part of a partial checkpoint.
		Why string
	}
	// Exited says that a rank ended, or could not be started.
	Exited struct {
		Node          string
		Unit, Attempt int
		Rank          int
		Exit          report.Exit
		// At is when the rank ended, by the coordinator's clock. Lived is how long it had run.
		At    time.Time
		Lived time.Duration
		// Step is the last step that the rank reported; 0 for none.
		Step int64
		// Kernel has what the node's kernel logged about its GPUs while the rank lived.
		Kernel string
		// Told says that the node had been ordered to stop the rank.
		Told bool
		// Alike says that Kernel, Tail and Traceback are left out. By the built-in rules, they show
		// no more than an earlier failure that this node has reported.
		Alike bool
		// Tail has the last lines of the rank's standard error, Traceback the contents of its
		// TORCHELASTIC_ERROR_FILE.
		Tail, Traceback string
	}
	// Stopped says that no process of this unit and attempt lives on the node any more, whether the
	// unit was ordered to stop or ended by itself. Stopped follows the reports of the ranks' exits.
	Stopped struct {
		Node          string
		Unit, Attempt int
	}
	// Cohort says which replicas the newest cohort of the replica groups has. If Why is set, there
	// is no cohort although replicas ask, and ID and Members are those of the last cohort.
	Cohort struct {
		ID      int64
		Members []lighthouse.Replica
		Why     string
	}
	// Elapsed answers [Wait].
	Elapsed struct{ Unit, Attempt int }
	// TimedOut answers [Alarm].
	TimedOut struct {
		Kind AlarmKind
		Seq  int
	}
	// Queued says why a cluster has not given the job the nodes that it wants
	// (jobstate.State.Wants). The reason no longer holds once the job gets another node.
	Queued struct{ Why string }
	// Cancel asks for the end of the job. Code is the job's exit code (130 for ^C; 0 counts as
	// 130). Why is the reason in words, and Ending is the reason as a code, [report.EndCancelled]
	// when empty. A second Cancel kills the ranks.
	Cancel struct {
		Code   int
		Why    string
		Ending report.Ending `json:",omitempty"`
		// Within, if above 0, is the time that ranks have to get ready before the job ends. A later
		// Cancel with Within may end the job sooner. While a process lives, its reason replaces the
		// earlier one. A Cancel without Within ends the job at once. Loose says that the scheduler
		// ends the ranks that are not ready by then.
		Within time.Duration `json:",omitempty"`
		Loose  bool          `json:",omitempty"`
		// AfterSave, with Within, stops the ranks as soon as they have saved: see saving.go.
		AfterSave bool `json:",omitempty"`
		// Signal is the signal that the ranks get, see [Stop]. Once says that this event changes
		// nothing for a job that is already being stopped: several processes may get the same
		// signal.
		Signal int  `json:",omitempty"`
		Once   bool `json:",omitempty"`
		// At is when the coordinator heard of the event.
		At time.Time `json:",omitzero"`
	}
)

// Signalled stops a job because of a signal that each of its processes may have got. The ranks have
// the time within to get ready, and then get the signal too.
func Signalled(number int, why string, within time.Duration) Cancel {
	return Cancel{Code: 128 + number, Why: why, Within: within, Signal: number, Once: true}
}

// Still is a rank that does not move.
type Still struct {
	Rank int
	// For is how long the rank has not moved, as its agent sees it. Beat says that its heartbeat
	// stands still. For a rank that ever had a heartbeat, only the heartbeat counts.
	For  time.Duration
	Beat bool
	// Step is the step of its last heartbeat; -1 when there is none.
	Step int64
	// Does is what its busiest process does: "stopped", "asleep (futex_do_wait)".
	Does string
}

// Complete says that all ranks of a gang have connected to its store. Last was the last rank, -1 if
// unknown, and Ago is how long ago it connected.
type Complete struct {
	Last int
	Ago  time.Duration
}

// Client is a process that has connected to the store.
type Client struct {
	Addr netip.Addr
	// PID is the process id on its node; 0 when it is not known.
	PID int
	// Key is the key that the process waits for; empty when it does not wait.
	Key string
}

// Meeting says which processes have connected to the store of a gang.
type Meeting struct {
	// Clients are the connected processes, each once; nil when they are too many to be named. Key
	// is the key for which most of the waiting processes wait. A client's own Key is the same key
	// or empty.
	Clients []Client
	Key     string
	// Came counts the processes that have connected. Waiting counts the processes that wait for
	// Key.
	Came, Waiting int
	// Last is the last process to connect, and Ago is how long ago it connected. Last is nil until
	// all ranks have connected.
	Last *Client
	Ago  time.Duration
}

func (Submitted) event() {}
func (Joined) event()    {}
func (Freed) event()     {}
func (Lost) event()      {}
func (Rejoined) event()  {}
func (Draining) event()  {}
func (Ready) event()     {}
func (Catching) event()  {}
func (Prepared) event()  {}
func (Reached) event()   {}
func (Started) event()   {}
func (Met) event()       {}
func (Stalled) event()   {}
func (Stepped) event()   {}
func (Saved) event()     {}
func (Exited) event()    {}
func (Stopped) event()   {}
func (Cohort) event()    {}
func (Elapsed) event()   {}
func (TimedOut) event()  {}
func (Queued) event()    {}
func (Cancel) event()    {}
