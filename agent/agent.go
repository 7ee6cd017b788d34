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
	// rank's local rank. With Templates (torchrun's macros), "$local_rank" stands for the local
	// rank too, and "$$" for a dollar sign. In a job with replica groups, "${replica_group}" stands
	// for the rank's group and "${replica_groups}" for their number.
	Command   []string
	Templates bool
	// Dir is the working directory of the ranks. When it is empty, they use the agent's. If the job
	// has a workspace, Dir is relative to the workspace.
	Dir string
	// Env has the variables that all ranks of the node share. Each rank also gets variables of its
	// own.
	Env *rankenv.Base
	// Presets returns further variables for the ranks of an attempt. They depend on what the job's
	// nodes have agreed on ([job.World].Network). A nil Presets adds none.
	Presets func(network string) []rankenv.Var
	// Visibility says which GPUs a rank sees.
	Visibility rankenv.Visibility
	// PerGPU is how many ranks share a GPU. With 0 or 1, each rank has a GPU of its own.
	PerGPU int
	// Bind says on which CPUs a rank runs; bind.None when empty. If ranks cannot be bound like
	// this, the agent warns, or with Strict does not start them.
	Bind   bind.Policy
	Strict bool
	// MasterPort is the port that the user has fixed. When 0, each attempt gets a free port.
	MasterPort int
	// Ports is the range of ports that the job may use on this node, FIRST:LAST. When empty, the
	// agent chooses.
	Ports string
	// Role is the ranks' ROLE_NAME; "default" when empty.
	Role string
	// Rank0Store lets rank 0 serve torch's store at MASTER_PORT; otherwise the master's agent does.
	Rank0Store bool
	// ProxyStore gives each other node a proxy of the store that the master's agent serves.
	ProxyStore bool
	// Bundle keeps evidence of failed attempts in the directory of Output.
	Bundle bool
	// HangTimeout is how long ranks may stand still; 0 means forever.
	HangTimeout time.Duration
	// RankMonitor, if not empty, serves NVRx's rank monitor to the ranks, as [CheckRankMonitor]
	// describes.
	RankMonitor string
	// InProcessRestart, if not 0, serves the socket of HyperPod's elastic agent to the ranks. It is
	// how long ranks may take to reach the barrier after a fault.
	InProcessRestart time.Duration
	// CheckpointDir is where ranks write checkpoints, relative to Dir. When empty, the agent finds
	// it out.
	CheckpointDir string
	// SetAsidePartial renames the newest checkpoint before ranks start, if that checkpoint is
	// partial.
	SetAsidePartial bool
	// Preload are Python modules that a fork server imports once, for all ranks and attempts here.
	// Ranks that cannot be forked import the modules themselves; with PreloadStrict they do not
	// start.
	Preload       []string
	PreloadStrict bool
	// Local is how many ranks this node will run, or 0 if that is unknown before they are placed.
	Local int
	// Endpoint lets a controller on another machine reach the ranks, through the socket
	// GOLAUNCH_ENDPOINT.
	Endpoint bool
	// Stdin is what rank 0 reads when it runs here; the other ranks read nothing.
	Stdin bool
	// NoticeSignal is sent to ranks that have a new notice in their GOLAUNCH_NOTICE_FILE. No signal
	// is sent when it is 0.
	NoticeSignal syscall.Signal
	// StopSignal asks a rank to end. When 0, the rank gets the signal that stops the job, or
	// SIGTERM.
	StopSignal syscall.Signal
	// Linger is how long leftover processes of ranks may run once all ranks have exited with 0.
	// Grace is how long these processes may then take to end.
	Linger, Grace time.Duration
}

// Work is a job as this node runs it.
type Work struct {
	Task   Task
	Output Output
	// User owns the ranks; nil is this process's own user. The agent opens the job's files, and
	// files that its ranks name, only with the rights of that user.
	User *User
	// Close is called when the job is over on this node and no client reads its output. It may be
	// nil.
	Close func()
}

// User is a user of this machine, other than root.
type User struct {
	UID, GID uint32
	Groups   []uint32
}

// Output is where the ranks' output is written.
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

// Assignment is a job of a cluster with ranks on this node: the submitted task, and the submitter's
// uid, which is nil if unknown.
type Assignment struct {
	Task      []byte
	Submitter *uint32
	// Workspace is the workspace in which the ranks run. Its ID is empty if the job has none.
	Workspace report.Workspace
	// Cluster is the ID of the cluster. It is the same on all nodes for as long as the
	// coordinator's log exists.
	Cluster string
}

// Agent runs a node's part of a job or a cluster.
type Agent struct {
	// Join describes this node and how it reaches the coordinator. The agent sets Proof, Former,
	// Clock and Heard itself. Once no rank of this node lives, the guardian sends a proof of that
	// on the connection from Dial or DialAt.
	Join session.Options
	// Keep is a directory for ranks that outlive this process. The agent adopts ranks that an
	// earlier agent has left there. Only the agent of a cluster may have it. When Keep is empty,
	// ranks die with this process.
	Keep string
	// Preload are modules for jobs whose Task.Preload is nil.
	Preload []string
	// Endpoints is the TLS configuration for controllers of the ranks; nil admits no controller.
	Endpoints *tls.Config
	// Workspaces says where the workspaces of jobs are.
	Workspaces Workspaces
	// Standalone says that all children of this process belong to the agent, see [proc.Options].
	Standalone bool
	// Open prepares for a job: the coordinator's only job, or a job that a cluster has assigned. at
	// is this node's address. The error says why no rank of the job can run here.
	Open func(job string, as Assignment, at netip.Addr) (Work, error)
	// Past finds the output of a job that is over. The agent of a cluster needs it.
	Past func(job string) (*logs.Dir, error)
	// Joined, unless it is nil, is called with this node and its address when the coordinator has
	// accepted the node.
	Joined func(placement.Node)
	// Signals are passed on to every rank of this node (USR1, USR2); nil passes none.
	Signals <-chan syscall.Signal
	// Leave asks this node to leave. The agent stops the node's ranks in order before the
	// coordinator learns that they are gone. A nil Leave never asks.
	Leave <-chan Departure
	// Grace is how long the ranks of a leaving node may take to end.
	Grace time.Duration
	// Reached, unless it is nil, waits a moment and reports whether the ranks have received the
	// signal that has just stopped this process. If they have, the agent does not send them the
	// signal again.
	Reached func() bool
	// Say gets messages for people. Warn gets errors that do not end the agent, such as a full
	// disk.
	Say  func(string)
	Warn func(error)
}

// Workspaces say where a node keeps workspaces, and how nodes pass them on to each other. Without
// Server and Client, a node gets workspaces only from the coordinator.
type Workspaces struct {
	Dir            string
	Server, Client *tls.Config
}

// Departure says why a node leaves, and how long its ranks, and the ranks that work with them, have
// to get ready. With All, the scheduler ends the job on all nodes, and this node stays until then.
// Signal, if set, is a signal that the process on every node got; the job stops with that signal.
type Departure struct {
	Why    string
	Within time.Duration
	All    bool
	Signal syscall.Signal
}

// ErrLeft says that this node was asked to leave, and left before its jobs ended. ErrDrained says
// that no job needs this node any more.
var (
	ErrLeft    = errors.New("this node has left")
	ErrDrained = errors.New("this node is drained")
)

// AutoPreload, as the only module of a [Task], stands for the modules that rank 0 had loaded when
// the command last ran on this node.
const AutoPreload = "auto"

// PortHolder names the process that listens on a TCP port of this machine. The text follows "in
// use": " by pid 4411 (python3)". It is empty if /proc shows no such process.
func PortHolder(port int) string { return masterport.Holder(port) }

// RASAddr returns an unused address of this machine for the RAS service of one rank's NCCL.
func RASAddr() (string, error) { return ncclprobe.Address() }
