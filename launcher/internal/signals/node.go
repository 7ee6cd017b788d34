package signals

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/golaunch/golaunch/agent"
)

// Node passes on the signals of this process while another node leads the job. The first stop
// signal makes the node leave in order, or give up joining. A later one ends the time that the
// node's ranks have to get ready. A later one from the keyboard kills the ranks.
type Node struct {
	// Pass carries the signals for the ranks, and Leave the reason to leave.
	Pass  chan syscall.Signal
	Leave chan agent.Departure
	// DrainTime is how long ranks have to get ready after a SIGTERM.
	DrainTime time.Duration
	// EndsJob says that a stop signal ends the whole job, because the processes of all nodes get
	// it.
	EndsJob bool
	// HandOver, if it is set, is closed at a SIGHUP. The SIGHUP then does not stop the node.
	HandOver chan struct{}
	// OnJoin, if set, is called when the coordinator has admitted this node.
	OnJoin func()
	// Cancel makes the node end at once.
	Cancel context.CancelCauseFunc

	joined atomic.Bool
	// first is the number of the first stop signal. departing is set if the node leaves for another
	// reason.
	first     atomic.Int32
	departing atomic.Bool
}

// NewNode returns a Node with this Cancel.
func NewNode(cancel context.CancelCauseFunc) *Node {
	return &Node{Pass: make(chan syscall.Signal, 8), Leave: make(chan agent.Departure, 2), Cancel: cancel}
}

// Follow calls tell for each signal until done is closed.
func Follow(signals <-chan os.Signal, done <-chan struct{}, tell func(os.Signal)) {
	for {
		select {
		case <-done:
			return
		case s, open := <-signals:
			if !open {
				return
			}
			tell(s)
		}
	}
}

// Depart makes the node leave the job for the reason in d, or give up joining. A later stop signal
// may shorten the time that the ranks have.
func (n *Node) Depart(d agent.Departure) {
	switch {
	case n.first.Load() != 0 || n.departing.Swap(true):
	case n.joined.Load():
		n.Leave <- d
	default:
		n.Cancel(errors.New(d.Why))
	}
}

// Tell obeys a signal. It must not wait, so that a stop signal overtakes the signals before it.
func (n *Node) Tell(s os.Signal) {
	if sig, ok := s.(syscall.Signal); ok && ForRanks(sig) {
		select {
		case n.Pass <- sig:
		default: // Pass is full: as in the kernel, several signals count as one
		}
		return
	}
	first := n.first.CompareAndSwap(0, int32(Of(s)))
	switch d := (agent.Departure{Why: "got " + Name(s), All: n.EndsJob, Signal: Of(s)}); {
	case s == syscall.SIGHUP && n.HandOver != nil:
		if first {
			close(n.HandOver)
		}
	case !n.joined.Load(), !first && FromKeyboard(s):
		n.Cancel(errors.New(d.Why))
	case first && s == syscall.SIGTERM:
		d.Within = n.DrainTime
		n.Leave <- d
	default:
		select {
		case n.Leave <- d:
		default: // the node already leaves at once
		}
	}
}

// Join notes that the coordinator has admitted this node.
func (n *Node) Join() {
	n.joined.Store(true)
	if n.OnJoin != nil {
		n.OnJoin()
	}
}

// Joined reports whether the coordinator has admitted this node.
func (n *Node) Joined() bool { return n.joined.Load() }

// Stopped reports whether the node got a stop signal.
func (n *Node) Stopped() bool { return n.first.Load() != 0 }

// Code returns the exit code of a node that was told to leave; 0 if it was not.
func (n *Node) Code() int {
	switch first := n.first.Load(); {
	case first != 0:
		return 128 + int(first)
	case n.departing.Load():
		return 128 + int(syscall.SIGTERM)
	}
	return 0
}

// During handles signals before there is a node, until the caller calls stopped. It calls cancel at
// a stop signal. stopped returns the exit code for the first stop signal; 0 if there was none.
func During(signals <-chan os.Signal, cancel context.CancelCauseFunc) (stopped func() int) {
	n, done, ended := NewNode(cancel), make(chan struct{}), make(chan struct{})
	go func() {
		Follow(signals, done, n.Tell)
		close(ended)
	}()
	return func() int {
		close(done)
		<-ended
		return n.Code()
	}
}
