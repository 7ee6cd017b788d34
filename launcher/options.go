package launcher

import (
	"io"
	"os"
	"syscall"
	"time"

	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rankenv"
)

// Defaults of a Job's zero fields, and CodeStopped, the exit code of a job that somebody stopped (128 + SIGTERM).
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

	CodeStopped = 143
)

// Resources are the nodes, ranks and GPUs that a job wants, and how long it waits for them.
type Resources struct {
	// MinNodes and MaxNodes bound the number of nodes. When both are 0, they are the nodes that a scheduler has given, or
	// Network.Hosts, less Spares, and without these one.
	MinNodes, MaxNodes int
	// PerNode is the number of ranks on a node: one entry for all nodes alike, or MaxNodes entries in the order of node ranks. A single
	// placement.AllGPUs is a rank on each GPU. When empty, it is one rank for each GPU that a scheduler has given, and without such one.
	PerNode []int
	// GPU says that each rank needs a GPU of its own; without it ranks are CPU processes.
	GPU bool
	// CPUs and Memory, in bytes, are what a rank takes of its node; 0 asks for nothing.
	CPUs   int
	Memory int64
	// Strategy says how ranks spread over nodes, placement.StrictPack when empty, and Order sorts the nodes into node ranks, by address
	// when zero.
	Strategy placement.Strategy
	Order    placement.Order
	// Spares is how many nodes beyond those that the job needs wait until one is lost.
	Spares int
	// OwnGPUs are the only GPUs of this machine that the job may have, indexes or UUIDs with commas between, as CUDA_VISIBLE_DEVICES has
	// them; all that are visible when empty.
	OwnGPUs string
	// Slots is how many ranks this node runs of a job whose PerNode is placement.AllGPUs; 0 is one on each GPU. Nodes may differ in it.
	Slots int
	// Simulate runs every node on this machine, one process each, with PerNode declared GPUs, on 127.0.0.1, 127.0.0.2, ...
	Simulate bool
	// PlacementTimeout bounds the wait for nodes and GPUs, after which the job ends with code 124; 0 waits for ever.
	PlacementTimeout time.Duration
	// LastCall is how long a job that has MinNodes waits for more, up to MaxNodes; DefaultLastCall when 0, not at all when negative.
	LastCall time.Duration
	// GrowAfter is how long such a job runs at least, with fewer nodes than MaxNodes, until it is stopped to start again with more if
	// there are any, after Stopping.DrainTime; DefaultGrowAfter when 0, never when negative.
	GrowAfter time.Duration
}

func (r Resources) request() placement.Request {
	return placement.Request{
		MinNodes: r.MinNodes, MaxNodes: r.MaxNodes, PerNode: r.PerNode, GPU: r.GPU, CPUs: r.CPUs, Memory: r.Memory,
		Strategy: r.Strategy, Order: r.Order,
	}
}

// Ranks say what each rank finds around it: variables, GPUs, CPUs, and where it meets the others.
type Ranks struct {
	// KeepEnv leaves inherited variables of other launchers (PMI*, OMPI_*, SLURM_PROCID, ...) in place.
	KeepEnv bool
	// Preset chooses the NCCL and libfabric variables: "auto" (when empty), "efa", "efa-classic", "ib", "roce", "tcp" or "none".
	Preset string
	// Inspector is a directory on each node, an absolute path, to which NCCL's profiler plugin "inspector" writes metrics for Prometheus; none
	// when empty.
	Inspector string
	// Visibility says which GPUs a rank sees: all of the job's on its node (when empty) or its own.
	Visibility rankenv.Visibility
	// Bind says on which CPUs a rank runs: "auto" (when empty), "none", "numa", "socket", "l3" or "core"; docs/binding.md says what they
	// mean. Ranks that cannot be bound as it says start with a warning, or not at all when Strict.
	Bind   string
	Strict bool
	// MasterPort is where the ranks meet, on the node of rank 0; 0 takes a free one for each attempt.
	MasterPort int
	// Store says who serves torch's TCPStore there: "golaunch" (when empty), where the agent of that node serves an empty one for each
	// attempt before any rank starts, and every rank is a client, as under torchrun (TORCHELASTIC_USE_AGENT_STORE); "proxy", which is the same
	// but for a proxy of that store on each other node, to which MASTER_ADDR and MASTER_PORT lead there (docs/store.md); or "rank0", which
	// leaves it to rank 0, and the port to any program that listens there.
	Store string
	// Role is the ranks' ROLE_NAME; "default" when empty.
	Role string
	// TimerFile, if set, is a FIFO that is made for the ranks of this node (TORCHELASTIC_TIMER_FILE), in which they may say, by torch's
	// FileTimerClient, by when they are to be killed.
	TimerFile string
	// Preload are Python modules, with commas between, that each node imports once in a fork server, of which it forks the ranks of
	// `python script.py`, `python -m module` and `python -c code` in all attempts; docs/preload.md says how. "auto" takes what the last run of
	// the same command had loaded. With "none" each rank imports for itself, and so it does when this is empty, but for agents of a cluster
	// that have a Preload. Ranks that cannot be forked import for themselves too, with a warning; with PreloadStrict they do not start.
	Preload       string
	PreloadStrict bool
	// Endpoint lets a controller on another machine reach the ranks ([Client.Endpoints]), which come to the socket that is their GOLAUNCH_ENDPOINT.
	Endpoint bool
	// Stdin lets rank 0 read the caller's standard input, when it runs in this process's agent; the others read nothing.
	Stdin bool
}

// Restarts say what follows when a rank fails. The zero value restarts nothing; the golaunch command has Max 3 and waits of 1s to 60s.
type Restarts struct {
	// Policy is which ranks start again: those of the whole "job" (when empty), of the "node", the "rank" alone, or "never" any.
	Policy string
	// Max is the budget of restarts, one for the whole job over all its nodes.
	Max int
	// RefillAfter is how long the job must run, with no failure, to get all of Max back; 0 never.
	RefillAfter time.Duration
	// BackoffMin is the wait before the first restart, and BackoffMax its upper bound: it doubles, with jitter. 0 and 0 do not wait.
	BackoffMin, BackoffMax time.Duration
	// ExitCodes are codes, 1 to 255, for endings other than success, in place of those that docs/failures.md has, for whoever decides by
	// the code whether to submit the job again.
	ExitCodes map[report.Ending]int
}

// Stopping says what stops a job, and what its ranks hear of it in time.
type Stopping struct {
	// Grace is how long a rank may take to end after it was asked to, until it is killed;
	// DefaultGrace when 0, none when negative.
	Grace time.Duration
	// StopSignal asks a rank to end; when 0 it is what this process was told, SIGTERM for a HUP,
	// and SIGTERM where nobody was told.
	StopSignal syscall.Signal
	// Linger is how long what ranks have left running goes on when all of them have exited with 0.
	// After that it gets SIGTERM, and Grace.
	Linger time.Duration
	// DrainTime is how long ranks have to get ready when a node was told to TERM, before they are stopped, or the job if it leads that;
	// 0 stops them at once. NoticeSignal, SIGUSR1 or SIGUSR2, tells ranks that they find a notice; none when 0.
	DrainTime    time.Duration
	NoticeSignal syscall.Signal
	// Spot is the cloud, "aws", "gcp" or "azure", that this node asks whether it takes the machine back; none when empty.
	Spot string
	// Signals takes what this process is told: INT, TERM, HUP and QUIT stop the job in order, a
	// first TERM after DrainTime. What comes within a second of a stop is the same event. A later
	// one ends the time of DrainTime, and a later INT or QUIT kills a job that is being stopped;
	// USR1 and USR2 go to the ranks. Nil takes none.
	Signals <-chan os.Signal `json:"-"`
	// Stops are signals that stop the job too.
	Stops []os.Signal `json:"-"`
	// Standalone says that this process exists for the job alone, as the golaunch command does: it then adopts and reaps orphans
	// of its ranks. Leave it false in a program that starts other processes too.
	Standalone bool
}

// Health says what is done about nodes and ranks that are not well, and what is kept of a failure. The zero value passes no node over; the
// golaunch command does so for an hour after 2 failures.
type Health struct {
	// Preflight says what is done about a node on which something is wrong, see docs/doctor.md: "warn" (when empty) says so, "exclude"
	// starts no rank there, "fail" ends the job with code 125, and "off" looks at no node.
	Preflight string
	// HangTimeout is how long ranks may stand still before their attempt fails, at least 1s, see docs/failures.md; 0 for ever.
	HangTimeout time.Duration
	// ExcludeAfter is how many failures a node may be to blame for until other nodes are preferred to it for the time of ExcludeFor,
	// DefaultExcludeFor when 0; 0 never. A node whose hardware fails is so at once.
	ExcludeAfter int
	ExcludeFor   time.Duration
	// Bundle keeps evidence of each attempt that fails, in the directory of the logs: "on" (when empty) or "off".
	Bundle string
	// FailureRules is a file with rules of what a failure means, which come before the built-in ones; see docs/failures.md.
	FailureRules string `json:"-"`
}

// Output says where the words of ranks go, and golaunch's own.
type Output struct {
	// Stdout and Stderr are os.Stdout and os.Stderr when nil: ranks' stdout to Stdout, their stderr and golaunch's own words to Stderr.
	Stdout, Stderr io.Writer `json:"-"`
	// Ranks are shown there; all when empty.
	Ranks []Span
	// Prefix puts "[r3 n1] " before each line; nil does so when there is more than one rank.
	Prefix *bool
	// Fold shows lines that ranks have in common once, with the ranks that say them: "on" does, "off" does not, and "auto", or empty, does on
	// a terminal where more than eight ranks have a prefix. Files have all lines.
	Fold string `json:"-"`
	// Torch shows the ranks' output, and names its files, as torchrun does; Prefix then means nothing. Nil does so as golaunch does. It has
	// the arguments of the command be torchrun's templates too, in which "$$" is a dollar.
	Torch *TorchOutput
	// LogDir takes <id>/attempt-<n>/rank-<r>.{stdout.log,stderr.log,error.json} and <id>/events.jsonl. When it is empty, they
	// stand below the system's temporary directory and are removed if the job succeeds.
	// Another run with the same ID that lives has it for itself: this one is refused, or takes <id>.2 if
	// LogDir is empty.
	LogDir string
	// LogLimit bounds each log file, in bytes; DefaultLogLimit when 0.
	LogLimit int64
	// TerminationLog is a file that gets one line about the job's end, and "none" writes none; when it is empty, it is a pod's
	// /dev/termination-log, if there is one.
	TerminationLog string `json:"-"`
	// Observe is told each decision, in order; nil prints on Stderr what a person wants to know of them. JSON prints all of them,
	// and the result, as JSON lines, which docs/json.md describes; Quiet prints neither.
	Observe     func(Decision) `json:"-"`
	JSON, Quiet bool
}

// Span is a range of ranks, both ends included.
type Span struct{ From, To int }

// Network says where the nodes of a job are, and how they meet and trust each other. The zero value is this machine, or what a scheduler
// says (Slurm, Kubernetes, mpirun, ...). At most one of Rendezvous and Hosts is given.
type Network struct {
	// Rendezvous is HOST:PORT for a job whose every node calls Run with the same Job: whoever owns HOST runs the coordinator.
	Rendezvous string
	// Hosts are machines on each of which ssh starts an agent.
	Hosts []Host
	// Golaunch is the golaunch command, as a path, with which agents are started on other machines, by ssh or srun; it is at the same path
	// there. The one in PATH here when empty. A program never starts itself there, where nothing but an argument could tell it what it is.
	Golaunch string
	// Scheduler is "none" to ignore what a scheduler, or another launcher, says of this process (SLURM_*, PET_*, ...).
	Scheduler string
	// Name is the scheduler's name for this node, or the host name, when empty. Address is the one on the route to the coordinator when
	// empty; Interface names the network interface that has it instead.
	Name, Address, Interface string
	// TokenFile has the secret that the nodes share. When it is empty, GOLAUNCH_TOKEN in the environment is the secret, or
	// ~/.golaunch/token has it, which is made at first use.
	TokenFile string
	// PortRange, "FIRST:LAST", is where this node listens for others, for firewalls that let just that through: with the coordinator, the
	// store, and all else for which no port is given. On a cluster it narrows the ranges of the agents. Any free port when empty.
	PortRange string
	// Lease is the silence after which a node counts as lost, at least 1s; DefaultLease when 0. It has killed its ranks by then: an agent
	// that has not heard the coordinator for nine tenths of a lease does so.
	Lease time.Duration
}

// noScheduler is a Network's Scheduler.
const noScheduler = "none"

// Cluster gives the job to a cluster that runs already. The zero value does not.
type Cluster struct {
	// Coordinator is HOST:PORT of the cluster's coordinator, which gets the job instead of this process. All else needs it.
	Coordinator string
	// Detached jobs go on without the process that submitted them, and their Run returns at once; it prints the job's ID.
	Detached bool
	// Within names the reservation on whose GPUs the job runs, GPUs the only indexes that it may have on each node, and Backfill lets
	// it start before earlier jobs that wait, where that takes nothing from the first of them.
	Within   string
	GPUs     []int
	Backfill bool
}
