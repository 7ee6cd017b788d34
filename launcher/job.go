// Package launcher is golaunch's front door for Go programs: describe a [Job], see where its ranks would run with [Plan], and run
// it with [Run].
//
//	result, err := launcher.Run(ctx, launcher.Job{
//		Command: []string{"python3", "train.py"},
//		Request: launcher.Request{PerNode: []int{4}},
//	})
//
// Run returns when the job has ended and no process of it is left on any node; cancelling ctx stops the job in order first.
// A program that uses Run is started anew for small helper processes of its own job on the same machine (the guardian, a simulated node),
// which never reach its main. They are known by a descriptor that they inherit: importing this package changes nothing in a program that
// is started in any other way.
package launcher

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/golaunch/golaunch/internal/cluster"
	"github.com/golaunch/golaunch/internal/goodput"
	"github.com/golaunch/golaunch/internal/job"
	"github.com/golaunch/golaunch/internal/where"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rankenv"
	"github.com/golaunch/golaunch/rendezvous"
)

// These are the words of a job that other packages define.
type (
	// Request is what the job wants: nodes, ranks on each, GPUs, strategy and order.
	Request = placement.Request
	// Result is how a job ended.
	Result = job.Result
	// Ending says in one word what a job ended for: success, program, budget, infrastructure, preempted, timeout or cancelled.
	Ending = job.Ending
	// Failure is the first thing that went wrong.
	Failure = job.Failure
	// Goodput is what the time of a job's ranks went into, and which causes and nodes cost how much of it.
	Goodput = goodput.Report
	// Decision is one step of the job, with its reason in words.
	Decision = rendezvous.Decision
	// Restart says which ranks start again when one fails.
	Restart = job.Restart
)

// Restart policies.
const (
	RestartJob   = job.RestartJob
	RestartNode  = job.RestartNode
	RestartRank  = job.RestartRank
	RestartNever = job.RestartNever
)

// Defaults of a Job's zero fields.
const (
	DefaultGrace = 30 * time.Second
	DefaultLease = 15 * time.Second
	// DefaultGrowAfter keeps a job from restarts for nodes that come one after another.
	DefaultGrowAfter = 10 * time.Minute
	// DefaultExcludeFor is how long a node that caused failures is passed over.
	DefaultExcludeFor = time.Hour
	// DefaultLastCall is that of torchrun's c10d rendezvous (last_call_timeout).
	DefaultLastCall = 30 * time.Second
	// DefaultPort is where a coordinator listens when the address names no port; torchrun's c10d rendezvous has the same.
	DefaultPort = 29400
	// DefaultLogLimit bounds each log file, in bytes.
	DefaultLogLimit = 8 << 30
)

// Job is one command, the resources it wants and its restart policy. Only Command has no default.
type Job struct {
	// ID names the job in logs and in the ranks' TORCHELASTIC_RUN_ID; made up when empty. Letters, digits, '.', '_' and '-'.
	ID string
	// Command is the program and its arguments; no shell reads it.
	Command []string
	// Dir is the working directory of the ranks; the caller's own when empty.
	Dir string
	// Env has NAME=value for every rank, above everything else, also above the ranks' facts. NAME alone takes the caller's value.
	Env []string
	// KeepEnv leaves inherited variables of other launchers (PMI*, OMPI_*, SLURM_PROCID, ...) in place.
	KeepEnv bool
	// Preset chooses the NCCL and libfabric variables: "auto" (when empty), "efa", "efa-classic", "ib", "roce", "tcp" or "none".
	Preset string
	// Role is the ranks' ROLE_NAME; "default" when empty.
	Role string
	// Visibility says which GPUs a rank sees: all of the job's on its node (when empty) or its own.
	Visibility rankenv.Visibility

	// Bind says on which CPUs a rank runs: "auto" (when empty), "none", "numa", "socket", "l3" or "core"; docs/binding.md says what they
	// mean. Ranks that cannot be bound as it says start with a warning, or not at all when Strict.
	Bind   string
	Strict bool

	// Preflight is PreflightWarn when empty.
	Preflight Preflight

	// Request is, when it names no nodes, those that a scheduler has given, less Spares, and without one a single node. When it does
	// not say how many ranks a node has, that is one for each GPU that a scheduler has given, and without such one in all.
	Request Request
	// PlacementTimeout bounds the wait for nodes and GPUs; 0 waits for ever.
	PlacementTimeout time.Duration
	// LastCall is how long a job that has MinNodes waits for more, up to MaxNodes; DefaultLastCall when 0, not at all when negative.
	LastCall time.Duration
	// GrowAfter is how long such a job runs at least, with fewer nodes than MaxNodes, until it is stopped to start again with more if
	// there are any, after DrainTime; DefaultGrowAfter when 0, never when negative.
	GrowAfter time.Duration
	// MasterPort is where the ranks meet, on the node of rank 0; 0 takes a free one for each attempt.
	MasterPort int
	// Store says who serves torch's store there: StoreGolaunch when empty.
	Store Store

	// Restart is RestartJob when empty, and MaxRestarts the one budget of the whole job.
	Restart     Restart
	MaxRestarts int
	// RefillAfter is how long the job must run, with no failure, to get all of MaxRestarts back; 0 never.
	RefillAfter time.Duration
	// ExcludeAfter is how many failures a node may be to blame for until other nodes are preferred to it for the time of ExcludeFor;
	// 0 never. A node whose hardware fails is so at once.
	ExcludeAfter int
	ExcludeFor   time.Duration
	// ExitCodes are codes, 1 to 255, for endings other than success, in place of those that docs/failures.md has, for whoever decides by
	// the code whether to submit the job again.
	ExitCodes map[Ending]int
	// Backoff is the wait before the first restart and its upper bound; it doubles, with jitter. 0 and 0 do not wait.
	BackoffMin, BackoffMax time.Duration
	// Grace is how long a rank may take to end after SIGTERM; DefaultGrace when 0, none when negative.
	Grace time.Duration
	// DrainTime is how long ranks have to get ready when a node was told to TERM, before they are stopped, or the job if it leads that;
	// 0 stops them at once. NoticeSignal, SIGUSR1 or SIGUSR2, tells ranks that they find a notice; none when 0.
	DrainTime    time.Duration
	NoticeSignal syscall.Signal
	// HangTimeout is how long ranks may stand still before their attempt fails, see docs/failures.md; 0 for ever. Bundle keeps evidence of
	// each attempt that fails, in the directory of the logs: "on" (when empty) or "off".
	HangTimeout time.Duration
	Bundle      string
	// Spot is the cloud (aws, gcp, azure) that this node asks whether it takes the machine back; none when empty.
	Spot string
	// Lease is the silence after which a node counts as lost; DefaultLease when 0. It has killed its ranks by then: an agent that has
	// not heard the coordinator for nine tenths of a lease does so.
	Lease time.Duration

	// Simulate runs every node on this machine, one agent process each, with Request.PerNode declared GPUs on 127.0.0.1, ...
	Simulate bool
	// Spares is how many nodes beyond those that the job needs wait until one is lost: as many more are simulated, and so many of
	// a scheduler's nodes are left over.
	Spares int
	// Scheduler is NoScheduler to ignore what a scheduler, or another launcher, says of this process (SLURM_*, PET_*, ...).
	Scheduler string
	// Hosts are machines on which the job's agents are started by ssh.
	Hosts []Host
	// Golaunch is the golaunch command, as a path, with which agents are started on other machines, by ssh or srun; it is at the same path
	// there. The one in PATH here when empty. A program never starts itself there, where nothing but an argument could tell it what it is.
	Golaunch string
	// Rendezvous is HOST:PORT for a job whose every node calls Run with the same Job: whoever owns HOST runs the coordinator.
	Rendezvous string
	// Coordinator is HOST:PORT of a cluster's coordinator, which gets the job instead of this process.
	Coordinator string
	// Detached jobs go on without the process that submitted them, and their Run returns at once; it prints the job's ID.
	Detached bool
	// Within names the reservation on whose GPUs the job runs, GPUs the only indexes that it may have on each node, and Backfill lets
	// it start before earlier jobs that wait, where that takes nothing from the first of them. All three are for a cluster.
	Within   string
	GPUs     []int
	Backfill bool
	// OwnGPUs are the only GPUs of this machine that the job may have, indexes or UUIDs with commas between, as CUDA_VISIBLE_DEVICES has
	// them; all that are visible when empty.
	OwnGPUs string
	// TokenFile has the secret that the nodes share. When it is empty, GOLAUNCH_TOKEN in the environment is the secret, or
	// ~/.golaunch/token has it, which is made at first use.
	TokenFile string
	// NodeName is the scheduler's name for this node, or the host name, when empty. Address is the one on the route to the coordinator
	// when empty; Interface names the network interface that has it instead.
	NodeName, Address, Interface string

	// Stdout and Stderr are os.Stdout and os.Stderr when nil: ranks' stdout to Stdout, their stderr and golaunch's own words to
	// Stderr. Stdin lets rank 0 read the caller's standard input, when it runs in this process's agent.
	Stdout, Stderr io.Writer `json:"-"`
	Stdin          bool
	// LogDir takes <id>/attempt-<n>/rank-<r>.{stdout.log,stderr.log,error.json} and <id>/events.jsonl. When it is empty, they
	// stand below the system's temporary directory and are removed if the job succeeds.
	LogDir string
	// LogLimit bounds each log file, in bytes; DefaultLogLimit when 0.
	LogLimit int64
	// TerminationLog is a file that gets one line about the job's end; when it is empty, a pod's /dev/termination-log, if there is
	// one. NoTerminationLog writes none.
	TerminationLog string `json:"-"`
	// FailureRules is a file with rules of what a failure means, which come before the built-in ones; see docs/failures.md.
	FailureRules string `json:"-"`
	// Ranks are shown on Stdout and Stderr; all when empty.
	Ranks []Span
	// Prefix puts "[r3 n1] " before each line; nil does so when there is more than one rank.
	Prefix *bool
	// Torch shows the ranks' output, and names its files, as torchrun does; Prefix then means nothing. Nil does so as golaunch does.
	Torch *TorchOutput

	// Observe is told each decision, in order; nil prints on Stderr what a person wants to know of them. JSON prints all of them,
	// and the result, as JSON lines; Quiet prints neither.
	Observe     func(Decision) `json:"-"`
	JSON, Quiet bool
	// Standalone says that this process exists for the job alone, as the golaunch command does: it then adopts and reaps orphans
	// of its ranks. Leave it false in a program that starts other processes too.
	Standalone bool
	// Signals takes what this process is told: INT, TERM, HUP and QUIT stop the job in order, a first TERM after DrainTime, and the next one
	// kills it; USR1 and USR2 go to the ranks. Nil takes none.
	Signals <-chan os.Signal `json:"-"`

	// place is what a scheduler says, hasID that the ID was given, rules are those of FailureRules, and ruleText is that file.
	place    *where.Place
	hasID    bool
	rules    []Rule
	ruleText string
}

// Span is a range of ranks, both ends included.
type Span = rendezvous.Span

// ErrUsage marks errors of a Job that can never run: the caller must change it.
var ErrUsage = errors.New("bad job")

func usage(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrUsage}, args...)...)
}

// Store says who serves torch's TCPStore at MASTER_ADDR and MASTER_PORT.
type Store string

const (
	// StoreGolaunch has the agent of the master node serve it, an empty one for each attempt, before any rank starts: as torchrun
	// does, TORCHELASTIC_USE_AGENT_STORE then tells torch that every rank is a client.
	StoreGolaunch Store = "golaunch"
	// StoreRank0 leaves it to rank 0, and the port to any program that listens there.
	StoreRank0 Store = "rank0"
)

// submission is the job as a coordinator sees it.
func (j Job) submission() rendezvous.Submission {
	return rendezvous.Submission{
		Title:            strings.Join(j.Command, " "),
		PlacementTimeout: j.PlacementTimeout, BackoffMin: j.BackoffMin, BackoffMax: j.BackoffMax,
		Spec: cluster.Spec{Job: job.Spec{
			ID: j.ID, Request: j.Request, Restart: j.Restart, MaxRestarts: j.MaxRestarts, RefillAfter: j.RefillAfter, Grace: j.Grace,
			ExcludeAfter: j.ExcludeAfter, ExcludeFor: j.ExcludeFor, Rules: j.ruleText, ExitCodes: j.ExitCodes,
			GrowAfter: max(0, j.GrowAfter), DrainTime: j.DrainTime,
			FixedPool: j.closed(), Pool: j.pool(),
		}},
	}
}

// pool is the number of nodes that will come at all; 0 when the job waits for whoever comes.
func (j Job) pool() int {
	switch {
	case j.Simulate:
		return j.Request.MaxNodes + j.Spares
	case len(j.Hosts) > 0:
		return len(j.Hosts)
	case j.closed() && j.place != nil:
		return j.place.Nodes
	}
	return 0
}

// together is how many nodes a scheduler has started at once, with this command each; 0 when it was not so.
func (j Job) together() int {
	if j.place != nil && j.place.Each && j.closed() {
		return j.place.Nodes
	}
	return 0
}

// closed says that no other nodes can come than those that are there from the start. Pods are replaced.
func (j Job) closed() bool {
	return j.Rendezvous == "" && (j.place == nil || j.place.Port == 0)
}

// whole is how many nodes a job has that a scheduler starts again one by one, as it does pods: node 0 may be there for the second time. It
// is 0 for others, and for a job that waits for all of them anyway.
func (j Job) whole() int {
	r, all := j.Request, j.Request.MaxNodes+j.Spares
	if !inPod() || j.closed() || r.MinNodes == all || r.MinNodes < r.MaxNodes && j.LastCall > j.Lease {
		return 0
	}
	return all
}

// facts is what must be the same on every node, by the flag's name.
func (j Job) facts() map[string]string {
	facts := map[string]string{
		"command":          fmt.Sprintf("%q", j.Command),
		"--nodes":          fmt.Sprintf("%d:%d", j.Request.MinNodes, j.Request.MaxNodes),
		"ranks per node":   fmt.Sprint(j.Request.PerNode),
		"GPU ranks":        fmt.Sprint(j.Request.GPU),
		"--strategy":       string(j.Request.Strategy),
		"--order":          fmt.Sprint(j.Request.Order),
		"--restart":        string(j.Restart),
		"--max-restarts":   fmt.Sprintf("%d/%v", j.MaxRestarts, j.RefillAfter),
		"--exclude-after":  fmt.Sprintf("%d/%v", j.ExcludeAfter, j.ExcludeFor),
		"--grow-after":     j.GrowAfter.String(),
		"--exit-codes":     fmt.Sprint(j.ExitCodes),
		"--grace":          j.Grace.String(),
		"--master-port":    fmt.Sprint(j.MasterPort),
		"--store":          string(j.Store),
		"--env-preset":     j.Preset,
		"--gpu-visibility": string(j.Visibility),
		"--bind":           j.Bind,
		"--strict":         fmt.Sprint(j.Strict),
		"--preflight":      string(j.Preflight),
		"--hang-timeout":   j.HangTimeout.String(),
		"--bundle":         j.Bundle,
		"--lease":          j.Lease.String(),
		"--keep-env":       fmt.Sprint(j.KeepEnv),
		"--role":           j.role(),
	}
	if j.Torch != nil {
		delete(facts, "command") // under torchrun each node may give the script arguments of its own
	}
	for _, kv := range j.Env {
		name, value, _ := strings.Cut(kv, "=")
		sum := sha256.Sum256([]byte(value)) // a refusal prints facts, and a value may be a secret
		facts["--env "+name] = fmt.Sprintf("a value with hash %x", sum[:4])
	}
	return facts
}

func (j Job) shown(rank int) bool {
	return len(j.Ranks) == 0 || slices.ContainsFunc(j.Ranks, func(s Span) bool { return s.From <= rank && rank <= s.To })
}

// prefixed says whether lines of a job with that many ranks say whose they are.
func (j Job) prefixed(worldSize int) bool {
	if j.Prefix != nil {
		return *j.Prefix
	}
	return worldSize > 1
}
