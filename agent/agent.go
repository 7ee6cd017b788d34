// Package agent runs the ranks of a node.
//
// An [Agent] decides nothing. It joins a coordinator, carries out its orders for one job or many,
// and reports what happened. The coordinator decides which failure matters and what restarts.
package agent

import (
	"crypto/tls"
	"errors"
	"net/netip"
	"syscall"
	"time"

	"github.com/golaunch/golaunch/agent/internal/masterport"
	"github.com/golaunch/golaunch/agent/internal/ncclprobe"
	"github.com/golaunch/golaunch/internal/host/bind"
	"github.com/golaunch/golaunch/internal/process/logs"
	"github.com/golaunch/golaunch/internal/wire/session"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rankenv"
)

// Task is what every rank of a job runs on this node.
type Task struct {
	// Command is the program and its arguments; "${local_rank}" in an argument stands for the
	// rank's own. With Templates, which are torchrun's, "$local_rank" does too, and "$$" stands for
	// a dollar. In a job with replica groups, "${replica_group}" stands for the rank's group and
	// "${replica_groups}" for their number.
	Command   []string
	Templates bool
	// Dir is the working directory; the agent's own when empty. In a workspace it is relative to the
	// workspace.
	Dir string
	// Env is the node's part of the environment, before a rank's own variables.
	Env *rankenv.Base
	// Presets are added to Env for a start: they depend on what the job's nodes have agreed on
	// ([job.World].Network). Nil adds none.
	Presets func(network string) []rankenv.Var
	// Visibility says which GPUs a rank sees.
	Visibility rankenv.Visibility
	// Bind says on which CPUs a rank runs; bind.None when empty. Strict refuses to start ranks that
	// cannot be bound so, instead of a warning.
	Bind   bind.Policy
	Strict bool
	// MasterPort is fixed by the user, or 0 for a free one per attempt.
	MasterPort int
	// Ports are the ports that the job may use on this node, FIRST:LAST; the agent chooses when
	// empty.
	Ports string
	// Role is the ranks' ROLE_NAME; "default" when empty.
	Role string
	// Rank0Store lets rank 0 serve torch's store at MASTER_PORT; otherwise the master's agent does.
	Rank0Store bool
	// ProxyStore gives each other node a proxy of the store that the master's agent serves.
	ProxyStore bool
	// Bundle keeps evidence of failed attempts in the directory of Output.
	Bundle bool
	// HangTimeout is how long ranks may stand still; 0 is forever.
	HangTimeout time.Duration
	// RankMonitor serves NVRx's rank monitor to the ranks, as [CheckRankMonitor] describes; empty
	// does not.
	RankMonitor string
	// InProcessRestart serves the socket of HyperPod's elastic agent to the ranks, which may take as
	// long to come to the barrier after a fault; 0 does not.
	InProcessRestart time.Duration
	// CheckpointDir is where ranks write checkpoints, relative to Dir; empty if that is to be found
	// out.
	CheckpointDir string
	// SetAsidePartial renames a partial checkpoint that is the newest, before ranks start.
	SetAsidePartial bool
	// Preload are Python modules that a fork server imports once, for all ranks and attempts here.
	// Ranks that cannot be forked import for themselves, or do not start if PreloadStrict.
	Preload       []string
	PreloadStrict bool
	// Local is how many ranks this node will run, if that is known before they are placed, or 0.
	Local int
	// Endpoint lets a controller on another machine reach the ranks, by the socket
	// GOLAUNCH_ENDPOINT.
	Endpoint bool
	// Stdin is what rank 0 reads when it runs here; the other ranks read nothing.
	Stdin bool
	// NoticeSignal is sent to ranks that find a notice in their GOLAUNCH_NOTICE_FILE; none when 0.
	NoticeSignal syscall.Signal
	// StopSignal asks a rank to end; when 0, it is the signal that stops the job, or SIGTERM.
	StopSignal syscall.Signal
	// Linger is how long processes that ranks have left running may go on once all ranks have
	// exited with 0. Grace is how long they may take to end after that.
	Linger, Grace time.Duration
}

// Work is a job as this node runs it.
type Work struct {
	Task   Task
	Output Output
	// User owns the ranks; nil is this process's own user. The agent touches a job's files, and
	// whatever its ranks name, with the rights of that user only.
	User *User
	// Close is called when the job is over here and no client reads its output; it may be nil.
	Close func()
}

// User is a user of this machine, other than root.
type User struct {
	UID, GID uint32
	Groups   []uint32
}

// Output is where the ranks' output goes.
type Output struct {
	// Dir has the files of every attempt.
	Dir *logs.Dir
	// Of says how the output of a rank is kept and shown. Several goroutines call it.
	Of func(Speaker) logs.RankOptions
}

// Speaker is a rank of one attempt on a node.
type Speaker struct {
	Node                     string
	Attempt, Rank, LocalRank int
	WorldSize                int
}

// Assignment is a cluster's job with ranks on this node: what was submitted, and the submitter's
// uid, nil if unknown.
type Assignment struct {
	Task      []byte
	Submitter *uint32
	// Workspace is what the ranks run in; its ID is empty if they run where the Task says.
	Workspace report.Workspace
	// Cluster identifies the cluster on all of its nodes, for as long as its log lasts.
	Cluster string
}

// Agent is a node's part in a job or a cluster.
type Agent struct {
	// Join says what this node is, and how it reaches the coordinator. The agent sets Proof,
	// Former, Clock and Heard itself. A connection from Dial or DialAt ends with a proof once no
	// rank of this node lives.
	Join session.Options
	// Keep is a directory for ranks that outlive this process. The agent goes on with those that an
	// earlier agent has left there. It needs a cluster; when empty, ranks die with this process.
	Keep string
	// Preload are modules for jobs whose Task.Preload is nil.
	Preload []string
	// Endpoints is TLS towards controllers of the ranks; nil admits none.
	Endpoints *tls.Config
	// Workspaces says where the workspaces of jobs are.
	Workspaces Workspaces
	// Standalone says that all children of this process are the agent's, see [proc.Options].
	Standalone bool
	// Open prepares for a job: for the coordinator's only one, or for one that a cluster has
	// assigned. at is this node's address. The error is why no rank of the job can run here.
	Open func(job string, as Assignment, at netip.Addr) (Work, error)
	// Past finds the output of a job that is over; the agent of a cluster needs it.
	Past func(job string) (*logs.Dir, error)
	// Joined is called with this node and its address when the coordinator has accepted it; nil is
	// not.
	Joined func(placement.Node)
	// Signals are passed on to every rank of this node (USR1, USR2); nil passes none.
	Signals <-chan syscall.Signal
	// Leave asks this node to leave: its ranks are stopped in order before the coordinator hears
	// that they are gone. Nil never asks.
	Leave <-chan Departure
	// Grace is how long its ranks may take then.
	Grace time.Duration
	// Reached, unless it is nil, waits a moment and reports whether the ranks have had the signal
	// that has just stopped this process. Then they do not get it twice.
	Reached func() bool
	// Say gets messages for people, and Warn what went wrong without ending the agent, such as a
	// full disk.
	Say  func(string)
	Warn func(error)
}

// Workspaces say where a node keeps workspaces, and how nodes pass them on to each other. Without
// Server and Client, they come from the coordinator alone.
type Workspaces struct {
	Dir            string
	Server, Client *tls.Config
}

// Departure is why a node leaves, and how long its ranks, and those that work with them, have to
// get ready. With All, the scheduler ends the job on all nodes, and this node stays until then. A
// Signal is one that every node's process got; the job stops with it.
type Departure struct {
	Why    string
	Within time.Duration
	All    bool
	Signal syscall.Signal
}

// ErrLeft says that this node left before its jobs ended, as it was asked to, and ErrDrained that
// no job needs it any more.
var (
	ErrLeft    = errors.New("this node has left")
	ErrDrained = errors.New("this node is drained")
)

// AutoPreload, as the only module of a [Task], stands for the modules that rank 0 of the command's
// last run on this node had loaded.
const AutoPreload = "auto"

// PortHolder names the process that listens on a TCP port of this machine, as far as /proc shows
// it, to follow "in use": " by pid 4411 (python3)". It is empty when none listens.
func PortHolder(port int) string { return masterport.Holder(port) }

// RASAddr returns an address of this machine at which nothing listens, for the RAS service of one
// rank's NCCL.
func RASAddr() (string, error) { return ncclprobe.Address() }
