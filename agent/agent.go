// Package agent is golaunch on a node: it starts the ranks that the coordinator orders, watches them, files their output and
// makes sure that none is left behind.
//
// An [Agent] decides nothing. It joins a coordinator, carries out its orders, for one job or for many, and reports what happened; which
// failure matters and what restarts is the coordinator's business.
package agent

import (
	"crypto/tls"
	"errors"
	"net/netip"
	"syscall"
	"time"

	"github.com/golaunch/golaunch/internal/wire/session"
	"github.com/golaunch/golaunch/placement"

	"github.com/golaunch/golaunch/internal/host/bind"
	"github.com/golaunch/golaunch/internal/process/logs"
	"github.com/golaunch/golaunch/rankenv"
)

// Task is what every rank of a job runs on this node.
type Task struct {
	// Command is the program and its arguments; "${local_rank}" in an argument stands for the rank's own. With Templates, which are
	// torchrun's, "$local_rank" does too, and "$$" stands for a dollar.
	Command   []string
	Templates bool
	// Dir is the working directory; the agent's own when empty.
	Dir string
	// Env is the node's part of the environment, before a rank's own variables.
	Env *rankenv.Base
	// Presets are added to Env for a start: they depend on what the job's nodes agreed on ([job.World].Network). Nil adds none.
	Presets func(network string) []rankenv.Var
	// Visibility says which GPUs a rank sees.
	Visibility rankenv.Visibility
	// Bind says on which CPUs a rank runs; bind.None when empty. Strict makes what Bind would warn of a reason not to start.
	Bind   bind.Policy
	Strict bool
	// MasterPort is fixed by the user, or 0 for a free one per attempt.
	MasterPort int
	// Ports are those on which this node listens for the job, FIRST:LAST; the agent has the choice when empty.
	Ports string
	// Role is the ranks' ROLE_NAME; "default" when empty.
	Role string
	// Rank0Store leaves it to rank 0 to serve torch's store at MASTER_PORT; otherwise the master's agent serves it.
	Rank0Store bool
	// ProxyStore gives the ranks of each node but the master's a proxy of the store that the master's agent serves.
	ProxyStore bool
	// Bundle keeps evidence of attempts that fail, in the directory of Output. HangTimeout is how long ranks may stand still; 0 for ever.
	Bundle      bool
	HangTimeout time.Duration
	// Preload are Python modules that a fork server imports once, for all ranks here and all attempts. Ranks that cannot be forked are
	// started as without it, or not at all when PreloadStrict.
	Preload       []string
	PreloadStrict bool
	// Local is how many ranks this node is to run, if that is known before they are placed, or 0.
	Local int
	// Endpoint lets a controller on another machine reach the ranks, by a socket that they know as GOLAUNCH_ENDPOINT.
	Endpoint bool
	// Stdin is what rank 0 reads when it runs here; the other ranks read nothing.
	Stdin bool
	// NoticeSignal is sent to ranks that find a notice in their GOLAUNCH_NOTICE_FILE; none when 0.
	NoticeSignal syscall.Signal
	// StopSignal asks a rank to end; when 0, what the job was told to stop with, or SIGTERM.
	StopSignal syscall.Signal
	// Linger is how long what ranks have left running, when all of them have exited with 0, may go
	// on; Grace is how long it may take to end after that.
	Linger, Grace time.Duration
}

// Work is a job as this node carries it out.
type Work struct {
	Task   Task
	Output Output
	// User is whose ranks they are; nil is this process's own. The agent does nothing for a job with its files, or with what its ranks have named,
	// that he could not do.
	User *User
	// Close is called when the job is over here and nobody reads its output; it may be nil.
	Close func()
}

// User is a user of this machine, other than root's.
type User struct {
	UID, GID uint32
	Groups   []uint32
}

// Assignment is a job of a cluster of which this node gets ranks: what was submitted, and the uid of who did, nil if nobody knows it.
type Assignment struct {
	Task      []byte
	Submitter *uint32
	// Cluster is the same on all of its nodes, for as long as the coordinators' log lasts, and no
	// other cluster's.
	Cluster string
}

// Agent is a node's part in a job, or in a cluster for as long as it stays there.
type Agent struct {
	// Join says what this node is, and how it reaches the coordinator. Proof, Former, Clock and Heard are the agent's own to set, and what
	// Dial and DialAt make is held, so that it ends with a proof when no rank of this node lives.
	Join session.Options
	// Keep is a directory for ranks that outlive this process: the agent goes on with those that an earlier one has left there. None do when
	// it is empty. The coordinator must be a cluster's.
	Keep string
	// Preload are modules for jobs whose Task has a Preload that is nil.
	Preload []string
	// Endpoints is the node's side of TLS towards controllers of its ranks; nil lets none come.
	Endpoints *tls.Config
	// Standalone says that this process has no other children than the agent's, see [proc.Options].
	Standalone bool
	// Open makes ready for a job: for the only one of the coordinator, or for one of a cluster, as it was assigned; at is this node's address.
	// The error is why no rank of the job can run here.
	Open func(job string, as Assignment, at netip.Addr) (Work, error)
	// Past finds the output of a job that is over; the agent of a cluster needs it.
	Past func(job string) (*logs.Dir, error)
	// Joined is told of this node, with its address, whenever the coordinator has taken it in; nil is not.
	Joined func(placement.Node)
	// Signals are passed on to every rank of this node (USR1, USR2); nil passes none.
	Signals <-chan syscall.Signal
	// Leave asks this node to leave: its ranks are stopped in order before the coordinator hears that they are gone. Nil never asks.
	Leave <-chan Departure
	// Grace is how long its ranks may take then.
	Grace time.Duration
	// Reached, unless it is nil, waits for a moment and says whether who has just told this process
	// to stop has told the ranks too: they do not hear it twice.
	Reached func() bool
	// Say is told what a person wants to know, and Warn what went wrong without ending the agent, such as a full disk.
	Say  func(string)
	Warn func(error)
}

// Departure is why a node leaves, and how long its ranks, and those that work with them, have to
// get ready for that. With All it tells of the end of the session's only job, on all nodes, by
// somebody else: this one stays until then. A Signal beside it is one that each node's process has
// got, and has the job stopped.
type Departure struct {
	Why    string
	Within time.Duration
	All    bool
	Signal syscall.Signal
}

// ErrLeft says that this node left before the end of its jobs, as it was asked to, and ErrDrained that no job needs it any more.
var (
	ErrLeft    = errors.New("this node has left")
	ErrDrained = errors.New("this node is drained")
)
