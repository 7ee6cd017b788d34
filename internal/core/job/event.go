package job

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

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
	// Draining says that a node will be gone after the time of Within, and why: its ranks may use that time. It may come again, with
	// less of it.
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
	// Prepared answers [Prepare]: the master node has a free port, or says in Err why not. Unable is how a rank would end that it started,
	// if it knows that it could not. At is when the coordinator heard so, if it is not well.
	Prepared struct {
		Node    string
		Unit    int
		Attempt int
		Port    int
		Err     string
		Unable  report.Exit `json:",omitzero"`
		At      time.Time   `json:",omitzero"`
	}
	// Reached answers the [Reach] of that number: the node reaches the master's port, or says in Err why not. Unable and At are as in
	// [Prepared].
	Reached struct {
		Node   string
		Seq    int
		Err    string
		Unable report.Exit `json:",omitzero"`
		At     time.Time   `json:",omitzero"`
	}
	// Started says that all ranks of a unit on this node were started, with their process ids and, for ranks with GPUs, the addresses
	// on their node where NCCL's RAS service of each can be asked, both in the order of the ranks.
	Started struct {
		Node          string
		Unit, Attempt int
		PIDs          []int
		RAS           []string
		Imports       Imports `json:",omitzero"`
	}
	// Met says in words, which are [State.Meeting]'s, who is missing at the store that the master node serves to a gang, or what most wait
	// for there, after nothing of that has changed for a while. It is empty when there is nothing to say any more.
	Met struct {
		Node          string
		Unit, Attempt int
		Why           string
	}
	// Stalled says which ranks of a node stand still, and for how long, once one that has a heartbeat has had none for the limit
	// (--hang-timeout), or none of the node's ranks has moved for that long, or some have not and the others have not printed a word. It
	// comes again every half of the limit while that is so, and with no ranks when it is over.
	Stalled struct {
		Node          string
		Unit, Attempt int
		Ranks         []Still
		// Behind are the processes that NCCL waits for, as its RAS service says; Key is the reason. Only the master's node asks.
		Behind []Client
		// More counts further ranks, which tell less than those of Ranks.
		More int `json:",omitempty"`
		// Moving counts those that go on without a word; no heartbeat is missed then.
		Moving int `json:",omitempty"`
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
		Exit          report.Exit
		// At is when it ended, by the coordinator's clock, and Lived for how long it had run.
		At    time.Time
		Lived time.Duration
		// Step is how far the rank said it had come; 0 when it did not.
		Step int64
		// Kernel has what the node's kernel said of its GPUs while the rank lived.
		Kernel string
		// Told says that the node had been ordered to stop it.
		Told bool
		// Alike says that Kernel, Tail and Traceback are left out: by the built-in rules they show no more than those of a failure on this node
		// that was reported before, and came no later.
		Alike bool
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
	// it, [report.EndCancelled] when empty. A second one kills.
	Cancel struct {
		Code   int
		Why    string
		Ending report.Ending `json:",omitempty"`
		// Within, if there is any, is the time that ranks have to get ready before the job ends. A later one of this kind may end it
		// sooner, and has the last word on why until nothing lives; one without Within ends the job at once. Loose says that somebody
		// else will end what is not ready then.
		Within time.Duration `json:",omitempty"`
		Loose  bool          `json:",omitempty"`
		// Signal is what the ranks get, see [Stop]. Once says that this changes nothing for a job
		// that is being stopped already: of several processes each may be told the same.
		Signal int  `json:",omitempty"`
		Once   bool `json:",omitempty"`
	}
)

// Signalled is how a signal stops a job of which each process may have got it; its ranks have the
// time of within to get ready, and then get it too.
func Signalled(number int, why string, within time.Duration) Cancel {
	return Cancel{Code: 128 + number, Why: why, Within: within, Signal: number, Once: true}
}

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
	// Key is what it waits for; empty when it does not wait.
	Key string
}

// Meeting is who has come to the store of a gang.
type Meeting struct {
	// Clients are the processes that have come, each once; none when they are too many to be named. The Key of those that wait for it is
	// that of the meeting, which is what most wait for of those that wait; what others wait for does not matter.
	Clients []Client
	Key     string
	// Came counts them, and Waiting those that wait for Key.
	Came, Waiting int
}
