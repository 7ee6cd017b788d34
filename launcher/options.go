package launcher

import (
	"io"
	"os"
	"syscall"
	"time"

	"github.com/golaunch/golaunch/launcher/internal/hostfile"
	"github.com/golaunch/golaunch/launcher/internal/usage"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rankenv"
)

// Defaults of a Job's zero fields, and CodeStopped, the exit code of a job that was stopped on
// request (128 + SIGTERM).
const (
	DefaultGrace = 30 * time.Second
	DefaultLease = 15 * time.Second
	// DefaultGrowAfter spares a job restarts when nodes come one after another.
	DefaultGrowAfter = 10 * time.Minute
	// DefaultExcludeFor is how long a job avoids a node that caused failures.
	DefaultExcludeFor = time.Hour
	// DefaultLastCall is the last_call_timeout of torchrun's c10d rendezvous.
	DefaultLastCall = 30 * time.Second
	// DefaultPort is where a coordinator listens if its address names no port. torchrun's c10d
	// rendezvous has the same port.
	DefaultPort = 29400
	// DefaultLogLimit bounds each log file, in bytes.
	DefaultLogLimit = 8 << 30
	// DefaultWorkspaceLimit bounds the files of a workspace, in bytes; it is Ray's limit.
	DefaultWorkspaceLimit = 512 << 20

	CodeStopped = 143
)

// Resources are the nodes, ranks and GPUs that a job wants, and how long it waits for them.
type Resources struct {
	// MinNodes and MaxNodes bound the number of nodes. If both are 0, they are the number of nodes
	// that a scheduler gave, or of Network.Hosts, less Spares. Without a scheduler and Hosts, they
	// are 1.
	MinNodes int `json:"MinNodes"`
	MaxNodes int `json:"MaxNodes"`
	// PerNode is the number of ranks on a node: one entry for all nodes, or MaxNodes entries in the
	// order of node ranks. A single placement.AllGPUs is one rank, or PerGPU, on each GPU. When
	// empty, it is that if a scheduler gave GPUs, and otherwise one rank.
	PerNode []int `json:"PerNode"`
	// GPU says that each rank needs a GPU; without it ranks are CPU processes. PerGPU is how many
	// ranks share one, each with an equal part of its memory; with 0 or 1 each has its own.
	GPU    bool `json:"GPU"`
	PerGPU int  `json:"PerGPU"`
	// CPUs and Memory, in bytes, are what a rank takes of its node; 0 asks for nothing.
	CPUs   int   `json:"CPUs"`
	Memory int64 `json:"Memory"`
	// Strategy says how ranks spread over nodes, placement.StrictPack when empty. Order says how
	// nodes get their node ranks: by address when zero.
	Strategy placement.Strategy `json:"Strategy"`
	Order    placement.Order    `json:"Order"`
	// Spares is how many nodes beyond the needed ones wait to replace a lost node.
	Spares int `json:"Spares"`
	// OwnGPUs are the only GPUs of this machine that the job may use: indexes or UUIDs separated by
	// commas, as in CUDA_VISIBLE_DEVICES. When empty, the job may use all visible GPUs.
	OwnGPUs string `json:"OwnGPUs"`
	// Slots is how many ranks this node runs if PerNode is placement.AllGPUs; 0 means one rank on
	// each GPU. Nodes may have different Slots.
	Slots int `json:"Slots"`
	// Simulate runs every node in a process on this machine, with PerNode declared GPUs, at
	// 127.0.0.1, 127.0.0.2, ...
	Simulate bool `json:"Simulate"`
	// PlacementTimeout bounds the wait for nodes and GPUs, after which the job ends with code 124;
	// 0 waits forever.
	PlacementTimeout time.Duration `json:"PlacementTimeout"`
	// LastCall is how long a job that has MinNodes waits for more nodes, up to MaxNodes:
	// DefaultLastCall when 0, not at all when negative.
	LastCall time.Duration `json:"LastCall"`
	// GrowAfter is how long a job runs with fewer nodes than MaxNodes before it grows. If more
	// nodes are there, the ranks get Stopping.DrainTime, and the job restarts on more nodes.
	// GrowAfter is DefaultGrowAfter when 0; when negative, the job never grows.
	GrowAfter time.Duration `json:"GrowAfter"`
}

func (r Resources) request() placement.Request {
	return placement.Request{
		MinNodes: r.MinNodes, MaxNodes: r.MaxNodes, PerNode: r.PerNode, GPU: r.GPU, PerGPU: r.PerGPU, CPUs: r.CPUs, Memory: r.Memory,
		Strategy: r.Strategy, Order: r.Order,
	}
}

// Ranks say what each rank finds around it: variables, GPUs, CPUs, and where it meets the others.
type Ranks struct {
	// KeepEnv keeps inherited variables of other launchers (PMI*, OMPI_*, SLURM_PROCID, ...).
	KeepEnv bool `json:"KeepEnv"`
	// Preset chooses the NCCL and libfabric variables: "auto" (when empty), "efa", "efa-classic",
	// "ib", "roce", "tcp" or "none".
	Preset string `json:"Preset"`
	// Inspector is a directory on each node, as an absolute path, in which NCCL's profiler plugin
	// "inspector" writes metrics for Prometheus; none when empty.
	Inspector string `json:"Inspector"`
	// Visibility says which GPUs a rank sees: all of the job's on its node (when empty) or its own,
	// which is all that ranks that share GPUs can have.
	Visibility rankenv.Visibility `json:"Visibility"`
	// Bind says on which CPUs a rank runs: "auto" (when empty), "none", "numa", "socket", "l3" or
	// "core" (docs/binding.md). A rank that cannot be bound starts with a warning. If Strict is
	// set, it does not start.
	Bind   string `json:"Bind"`
	Strict bool   `json:"Strict"`
	// MasterPort is where the ranks meet, on the node of rank 0; 0 takes a free port for each
	// attempt.
	MasterPort int `json:"MasterPort"`
	// Store says who serves torch's TCPStore there (docs/store.md):
	//   - "golaunch" (when empty): the agent of that node serves an empty store for each attempt
	//     before any rank starts, and every rank is a client, as under torchrun
	//     (TORCHELASTIC_USE_AGENT_STORE).
	//   - "proxy": the same, but each other node has a proxy of the store. There, MASTER_ADDR and
	//     MASTER_PORT lead to the proxy.
	//   - "rank0": rank 0 serves the store, and any program may listen at the port.
	Store string `json:"Store"`
	// Role is the ranks' ROLE_NAME; "default" when empty.
	Role string `json:"Role"`
	// TimerFile, if set, is a FIFO for the ranks of this node (TORCHELASTIC_TIMER_FILE). torch's
	// FileTimerClient writes there when a rank must be killed.
	TimerFile string `json:"TimerFile"`
	// Preload are Python modules, separated by commas, that each node imports once in a fork
	// server. The server forks the ranks of `python script.py`, `python -m module` and `python -c
	// code` in all attempts (docs/preload.md). "auto" takes the modules that the last run of the
	// same command loaded. With "none", each rank imports for itself. Empty means "none", unless
	// the agent of a cluster has a Preload. A rank that cannot be forked imports for itself, with a
	// warning, or does not start if PreloadStrict is set.
	Preload       string `json:"Preload"`
	PreloadStrict bool   `json:"PreloadStrict"`
	// Endpoint lets a controller on another machine reach the ranks ([Client.Endpoints]). The ranks
	// connect to the socket in GOLAUNCH_ENDPOINT.
	Endpoint bool `json:"Endpoint"`
	// Stdin lets rank 0 read the caller's standard input, if it runs in this process's agent.
	Stdin bool `json:"Stdin"`
}

// Restarts say what happens when a rank fails. The zero value restarts nothing; the golaunch
// command has Max 3 and waits of 1s to 60s.
type Restarts struct {
	// Policy says which ranks restart: all of the "job" (when empty), those of the "node", the
	// "rank" alone, or none ("never").
	Policy string `json:"Policy"`
	// ReplicaGroups divides the ranks into that many groups of consecutive ranks; 0 for no groups.
	// Groups restart one by one and train together by torchft. The job ends when fewer than
	// MinGroups can run.
	ReplicaGroups int `json:"ReplicaGroups,omitzero"`
	MinGroups     int `json:"MinGroups,omitzero"`
	// TolerateLostRanks is how many ranks of an attempt may fail, or be lost with their node, while
	// the others run on. A further loss is a failure of the job.
	TolerateLostRanks int `json:"TolerateLostRanks,omitzero"`
	// Max is the budget of restarts for the whole job, or for each replica group.
	Max int `json:"Max"`
	// RefillAfter is how long the job must run without a failure to get all of Max back; never when
	// 0.
	RefillAfter time.Duration `json:"RefillAfter"`
	// BackoffMin is the wait before the first restart. The wait doubles with each restart, with
	// jitter, up to BackoffMax. If both are 0, there is no wait.
	BackoffMin time.Duration `json:"BackoffMin"`
	BackoffMax time.Duration `json:"BackoffMax"`
	// ExitCodes replace the exit codes of endings other than success (docs/failures.md) by codes
	// from 1 to 255. They are for programs that decide by the code whether to submit the job again.
	ExitCodes map[report.Ending]int `json:"ExitCodes"`
}

// Stopping says what stops a job, and how its ranks learn in time that they must stop.
type Stopping struct {
	// Grace is how long a rank may take to end after the stop signal, before it is killed;
	// DefaultGrace when 0, none when negative.
	Grace time.Duration `json:"Grace"`
	// StopSignal asks a rank to end. When 0, it is the signal that this process got. It is SIGTERM
	// if that signal was SIGHUP, or if there was none.
	StopSignal syscall.Signal `json:"StopSignal"`
	// Linger is how long processes that ranks left behind may run after all ranks have exited 0.
	// Then they get SIGTERM, and Grace.
	Linger time.Duration `json:"Linger"`
	// DrainTime is how long ranks have to get ready before they are stopped because their node got
	// SIGTERM. If that node leads the job, all ranks are stopped. 0 stops them at once.
	// NoticeSignal, SIGUSR1 or SIGUSR2, tells ranks that they have a notice; no signal when 0.
	DrainTime    time.Duration  `json:"DrainTime"`
	NoticeSignal syscall.Signal `json:"NoticeSignal"`
	// Spot is the cloud of this node, "aws", "gcp" or "azure": the node asks whether the cloud
	// takes the machine back. When empty, the node asks no cloud.
	Spot string `json:"Spot"`
	// Signals has the signals of this process. SIGINT, SIGTERM, SIGHUP and SIGQUIT stop the job in
	// order, a first SIGTERM after DrainTime. Stops within a second of each other count as one. A
	// later stop ends DrainTime. A later SIGINT or SIGQUIT kills a job that is being stopped.
	// SIGUSR1 and SIGUSR2 go to the ranks. Nil has none.
	Signals <-chan os.Signal `json:"-"`
	// Stops are further signals that stop the job.
	Stops []os.Signal `json:"-"`
	// Standalone says that this process exists for the job alone, as the golaunch command does. The
	// process then adopts and reaps orphans of its ranks. Leave Standalone false in a program that
	// starts other processes.
	Standalone bool `json:"Standalone"`
}

// Health says what to do about unhealthy nodes and ranks, and what evidence of a failure to keep.
// The zero value avoids no node; the golaunch command avoids a node for an hour after 2 failures.
type Health struct {
	// Preflight says what to do about a node with findings (docs/doctor.md): "warn" (when empty),
	// "exclude" starts no rank there, "fail" ends the job with code 125, and "off" checks nothing.
	Preflight string `json:"Preflight"`
	// HangTimeout is how long ranks may make no progress before their attempt fails, at least 1s
	// (docs/failures.md). 0 sets no limit.
	HangTimeout time.Duration `json:"HangTimeout"`
	// RankMonitor serves the rank monitor of NVIDIA's resiliency extension to the ranks
	// (docs/ft-launcher.md): "on", or limits such as "step:180,checkpointing:none", after which
	// their attempt fails. Empty serves none.
	RankMonitor string `json:"RankMonitor"`
	// InProcessRestart serves the socket of Amazon's HyperPod elastic agent to the ranks, which
	// then restart within their processes. A rank that does not return to the barrier within this
	// time after a fault fails its attempt (docs/hyperpod.md). 0 serves no socket.
	InProcessRestart time.Duration `json:"InProcessRestart"`
	// ExcludeAfter is how many failures a node may cause before the job prefers other nodes for the
	// time ExcludeFor; 0 is never. ExcludeFor is DefaultExcludeFor when 0. The job avoids a node
	// whose hardware fails at once.
	ExcludeAfter int           `json:"ExcludeAfter"`
	ExcludeFor   time.Duration `json:"ExcludeFor"`
	// Bundle keeps evidence of each failed attempt beside the logs: "on" (when empty) or "off".
	Bundle string `json:"Bundle"`
	// FailureRules is a file with rules of what a failure means, which precede the built-in ones
	// (docs/failures.md).
	FailureRules string `json:"-"`
}

// Output says where the output of ranks goes, and where golaunch's own output goes.
type Output struct {
	// Stdout gets the ranks' standard output, Stderr their standard error and golaunch's messages;
	// os.Stdout and os.Stderr when nil.
	Stdout, Stderr io.Writer `json:"-"`
	// Ranks are the ranks to show; all when empty.
	Ranks []report.Span `json:"Ranks"`
	// Prefix puts "[r3 n1] " before each line. When nil, lines have it if the job has more than one
	// rank.
	Prefix *bool `json:"Prefix"`
	// Fold shows a line that several ranks print only once, with the ranks: "on", "off", or "auto"
	// (when empty), which folds on a terminal if more than eight ranks have a prefix. Files have
	// all lines.
	Fold string `json:"-"`
	// Torch shows the ranks' output, and names its files, as torchrun does. Prefix is then ignored,
	// and the arguments of the command are torchrun's templates, where "$$" is a dollar. When nil,
	// golaunch shows the output in its own way.
	Torch *TorchOutput `json:"Torch"`
	// LogDir gets <id>/attempt-<n>/rank-<r>.{stdout.log,stderr.log,error.json} and
	// <id>/events.jsonl. When LogDir is empty, the files are below the system's temporary directory
	// and are removed if the job succeeds. While another run with the same ID has the directory,
	// this run is refused, or takes <id>.2 if LogDir is empty.
	LogDir string `json:"LogDir"`
	// LogLimit bounds each log file, in bytes; DefaultLogLimit when 0.
	LogLimit int64 `json:"LogLimit"`
	// TerminationLog is a file that gets one line about the end of the job; "none" writes none.
	// When empty, it is a pod's /dev/termination-log, if there is one.
	TerminationLog string `json:"-"`
	// Observe gets each decision, in order. When nil, golaunch prints on Stderr the decisions that
	// a person wants to know. JSON prints all decisions, and the result, as JSON lines
	// (docs/json.md). Quiet prints neither.
	Observe func(report.Decision) `json:"-"`
	JSON    bool                  `json:"JSON"`
	Quiet   bool                  `json:"Quiet"`
}

// Network says where the nodes of a job are, and how they meet and trust each other. The zero value
// is this machine, or what a scheduler says (Slurm, Kubernetes, mpirun, ...). Give at most one of
// Rendezvous and Hosts.
type Network struct {
	// Rendezvous is HOST:PORT for a job whose every node calls Run with the same Job: the owner of
	// HOST runs the coordinator.
	Rendezvous string `json:"Rendezvous"`
	// Hosts are machines. ssh starts an agent on each.
	Hosts []Host `json:"Hosts"`
	// Golaunch is the path of the golaunch command, here and on the machines where ssh or srun
	// starts it as an agent; when empty, it is golaunch in this machine's PATH. A program never
	// starts itself on another machine, because only an argument could tell the program there that
	// it is an agent.
	Golaunch string `json:"Golaunch"`
	// Scheduler is "none" to ignore what a scheduler or another launcher says (SLURM_*, PET_*,
	// ...).
	Scheduler string `json:"Scheduler"`
	// Name is this node's name; when empty, the scheduler's name for it, or the host name. Address
	// is this node's address; when empty, the address on the route to the coordinator. Interface
	// names the network interface that has the address instead.
	Name      string `json:"Name"`
	Address   string `json:"Address"`
	Interface string `json:"Interface"`
	// TokenFile has the secret that the nodes share. When empty, the secret is GOLAUNCH_TOKEN, or
	// is in ~/.golaunch/token, which is made at first use.
	TokenFile string `json:"TokenFile"`
	// PortRange, "FIRST:LAST", has the ports where this node listens for other nodes: the ports of
	// the coordinator, the store, and everything else without a port of its own. Open this range in
	// the firewall. On a cluster, the job's range narrows the ranges of the agents. When empty, any
	// free port will do.
	PortRange string `json:"PortRange"`
	// A node that is silent for a Lease, at least 1s, counts as lost; DefaultLease when 0. Its
	// ranks are dead by then: an agent kills its ranks after nine tenths of a lease without the
	// coordinator.
	Lease time.Duration `json:"Lease"`
}

// noScheduler is a Network's Scheduler.
const noScheduler = "none"

// Cluster gives the job to a running cluster. With the zero value, no cluster gets the job.
type Cluster struct {
	// Coordinator is HOST:PORT of the cluster's coordinator, which gets the job. The other fields
	// have no use without a Coordinator.
	Coordinator string `json:"Coordinator"`
	// Detached jobs run on without the process that submitted them. Run prints the ID of such a job
	// and returns at once.
	Detached bool `json:"Detached"`
	// Within names the reservation on whose GPUs the job runs. GPUs, if set, are indexes: on each
	// node the job may use only these GPUs. Backfill lets the job start before earlier jobs that
	// wait, if this takes nothing from the first of them.
	Within   string `json:"Within"`
	GPUs     []int  `json:"GPUs"`
	Backfill bool   `json:"Backfill"`
	// Priority is "production", "interactive" (the default) or "batch". The job may preempt jobs of
	// a lower priority: these get ready, end, and start again later.
	Priority string `json:"Priority,omitempty"`
}

// TorchOutput is what torchrun does with the output of ranks
// (torch/distributed/elastic/multiprocessing/api.py). The files have torchrun's names beside
// golaunch's: <LogDir>/<id>_<random>/attempt_<n>/<local rank>/{stdout.log,stderr.log,error.json},
// in a directory for each node and run.
type TorchOutput struct {
	// Redirects go to files alone. Tee goes to files and, with Prefix before each line, to the
	// console. Other streams are shown as they are and, unlike under torchrun, are in files too.
	// The keys are local ranks; -1 stands for all ranks without an entry. The values are
	// torchrun's: 0 none, 1 stdout, 2 stderr, 3 both.
	Redirects map[int]int `json:"Redirects"`
	Tee       map[int]int `json:"Tee"`
	// LocalRanks are the local ranks to show; all when empty.
	LocalRanks []int `json:"LocalRanks"`
	// Prefix may have ${role_name}, ${local_rank}, ${rank} and ${hostname};
	// "[${role_name}${local_rank}]:" when empty.
	Prefix string `json:"Prefix"`
	// Filters are texts, for stdout and for stderr: lines of Tee that contain one of them are also
	// in <LogDir>/<id>_<random>/attempt_<n>/filtered_stdout.log and filtered_stderr.log.
	Filters [2][]string `json:"Filters"`
	// ErrorFile, if set, is the TORCHELASTIC_ERROR_FILE of torchrun's caller. If the rank that
	// failed first ran on this node, ErrorFile gets a copy of this rank's error file, with the
	// rank's exit code as errorCode.
	ErrorFile string `json:"ErrorFile"`
}

// Host is a machine that the job may use.
type Host struct {
	// Name is a name, an address or an alias of ssh_config(5), with or without USER@ before it.
	Name string `json:"Name"`
	// Slots is how many ranks the host may have, and how many of its GPUs it offers. 0 means as
	// many ranks as the job wants, and all GPUs.
	Slots int `json:"Slots"`
}

// ParseHosts reads a list such as n1,n2:4, where the number after the colon is the slots, or a file
// of mpirun or DeepSpeed: n1 slots=4. It returns no hosts if both are empty, and at most 2^20. A
// name may be a Slurm host list, such as gpu[01-08]. An IPv6 address stands in brackets.
//
// In a file, a host on several lines without slots has one slot for each (orte_hosts(7)). Any other
// host may occur only once, also in a list. Errors are ErrUsage, have one line, and name the flag,
// or the file with the line.
func ParseHosts(list, file string) (hosts []Host, err error) {
	var found []hostfile.Host
	switch {
	case list != "" && file != "":
		return nil, usage.Errorf("give --hosts or --hostfile, not both")
	case file != "":
		found, err = hostfile.Read(file)
	default:
		found, err = hostfile.Parse(list)
	}
	if err != nil {
		return nil, err
	}
	for _, h := range found {
		hosts = append(hosts, Host(h))
	}
	return hosts, nil
}
