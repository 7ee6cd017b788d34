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
	// DefaultGrowAfter is long enough that a job restarts only once when several nodes become free
	// one after another.
	DefaultGrowAfter = 10 * time.Minute
	// DefaultExcludeFor is how long a job avoids a node that caused failures.
	DefaultExcludeFor = time.Hour
	// DefaultLastCall is the last_call_timeout of torchrun's c10d rendezvous.
	DefaultLastCall = 30 * time.Second
	// DefaultPort is where a coordinator listens if its address names no port. It is also the
	// default port of torchrun's c10d rendezvous.
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
	// order of node ranks. A single placement.AllGPUs means one rank, or PerGPU ranks, on each GPU.
	// When empty, PerNode is placement.AllGPUs if a scheduler gave GPUs, and otherwise one rank.
	PerNode []int `json:"PerNode"`
	// GPU says that each rank needs a GPU; otherwise ranks use only CPUs. PerGPU is how many ranks
	// share a GPU, each with an equal part of its memory; with 0 or 1 each rank has a GPU of its
	// own.
	GPU    bool `json:"GPU"`
	PerGPU int  `json:"PerGPU"`
	// CPUs and Memory (in bytes) are how much of its node a rank needs; 0 asks for nothing.
	CPUs   int   `json:"CPUs"`
	Memory int64 `json:"Memory"`
	// Strategy says how ranks spread over nodes, placement.StrictPack when empty. Order says in
	// which order nodes get their node ranks; in the order of their addresses when it is the zero
	// Order.
	Strategy placement.Strategy `json:"Strategy"`
	Order    placement.Order    `json:"Order"`
	// Spares is how many more nodes wait to replace a lost node.
	Spares int `json:"Spares"`
	// OwnGPUs are the only GPUs of this machine that the job may use: indexes or UUIDs separated by
	// commas, as in CUDA_VISIBLE_DEVICES. When empty, the job may use all visible GPUs.
	OwnGPUs string `json:"OwnGPUs"`
	// Slots is how many ranks this node runs if PerNode is placement.AllGPUs; 0 means one rank on
	// each GPU. Nodes may have different Slots.
	Slots int `json:"Slots"`
	// Simulate runs every node in a process on this machine. The nodes have PerNode declared GPUs,
	// and the addresses 127.0.0.1, 127.0.0.2, ...
	Simulate bool `json:"Simulate"`
	// PlacementTimeout bounds the wait for nodes and GPUs, after which the job ends with code 124;
	// 0 waits forever.
	PlacementTimeout time.Duration `json:"PlacementTimeout"`
	// LastCall is how long a job that has MinNodes waits for more nodes, up to MaxNodes. It is
	// DefaultLastCall when 0; when negative, the job does not wait.
	LastCall time.Duration `json:"LastCall"`
	// GrowAfter is how long a job runs with fewer nodes than MaxNodes before it grows. If more
	// nodes are free then, the ranks get Stopping.DrainTime, and the job restarts on more nodes.
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
	// Visibility says which GPUs a rank sees: all GPUs of the job on its node (when empty), or only
	// its own. Ranks that share a GPU see only that GPU.
	Visibility rankenv.Visibility `json:"Visibility"`
	// Bind says on which CPUs a rank runs: "auto" (when empty), "none", "numa", "socket", "l3" or
	// "core" (docs/binding.md). A rank that cannot be bound starts with a warning. If Strict is
	// set, it does not start.
	Bind   string `json:"Bind"`
	Strict bool   `json:"Strict"`
	// MasterPort is the port, on the node of rank 0, where the ranks meet. With 0, each attempt
	// takes a free port.
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
	// code` in all attempts (docs/preload.md). With "auto", golaunch takes the modules that the
	// last run of the same command loaded. With "none", each rank imports for itself. Empty means
	// "none", unless the agent of a cluster has a Preload. A rank that cannot be forked imports for
	// itself, with a warning, or does not start if PreloadStrict is set.
	Preload       string `json:"Preload"`
	PreloadStrict bool   `json:"PreloadStrict"`
	// Endpoint lets a controller on another machine reach the ranks ([Client.Endpoints]). The ranks
	// connect to the socket in GOLAUNCH_ENDPOINT.
	Endpoint bool `json:"Endpoint"`
	// Stdin lets rank 0 read the caller's standard input, if it runs in this process's agent.
	Stdin bool `json:"Stdin"`
}

// Restarts say what happens when a rank fails. The zero value restarts nothing; the golaunch
// command's defaults are Max 3, and waits of 1s to 60s.
type Restarts struct {
	// Policy says which ranks restart: all ranks of the job ("job", when empty), the ranks of the
	// same node ("node"), the failed rank alone ("rank"), or none ("never").
	Policy string `json:"Policy"`
	// ReplicaGroups divides the ranks into that many groups of consecutive ranks; 0 for no groups.
	// A group restarts without the other groups. torchft lets the groups train together. The job
	// ends when fewer than MinGroups can run.
	ReplicaGroups int `json:"ReplicaGroups,omitzero"`
	MinGroups     int `json:"MinGroups,omitzero"`
	// TolerateLostRanks is how many ranks of an attempt may fail, or be lost with their node, while
	// the others run on. If the attempt loses more ranks, it fails.
	TolerateLostRanks int `json:"TolerateLostRanks,omitzero"`
	// Max is the budget of restarts for the whole job, or for each replica group.
	Max int `json:"Max"`
	// RefillAfter is how long the job must run without a failure until its budget is Max again;
	// when 0, the budget is never refilled.
	RefillAfter time.Duration `json:"RefillAfter"`
	// BackoffMin is the wait before the first restart. The wait doubles with each restart, with
	// jitter, up to BackoffMax. If both are 0, there is no wait.
	BackoffMin time.Duration `json:"BackoffMin"`
	BackoffMax time.Duration `json:"BackoffMax"`
	// ExitCodes replace the exit codes of endings other than success (docs/failures.md) by codes
	// from 1 to 255. They are for programs that read the code to decide whether to submit the job
	// again.
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
	// DrainTime is how long ranks have to get ready after a SIGTERM to their node, before golaunch
	// stops them; 0 stops them at once. If that node leads the job, golaunch stops all ranks.
	// NoticeSignal, SIGUSR1 or SIGUSR2, is sent to ranks that get a notice (docs/failures.md); no
	// signal when 0.
	DrainTime    time.Duration  `json:"DrainTime"`
	NoticeSignal syscall.Signal `json:"NoticeSignal"`
	// Spot is the cloud of this node, "aws", "gcp" or "azure": the node asks whether the cloud
	// takes the machine back. When empty, the node asks no cloud.
	Spot string `json:"Spot"`
	// Signals has the signals of this process. SIGINT, SIGTERM, SIGHUP and SIGQUIT are stop
	// signals. The first stops the job in order; if it is a SIGTERM, after DrainTime. Stop signals
	// within a second of each other count as one. A later one ends DrainTime. A later SIGINT or
	// SIGQUIT kills a job that is being stopped. SIGUSR1 and SIGUSR2 go to the ranks. When Signals
	// is nil, the job gets no signals.
	Signals <-chan os.Signal `json:"-"`
	// Stops are further signals that stop the job.
	Stops []os.Signal `json:"-"`
	// Standalone says that this process does nothing but run the job, as the golaunch command does.
	// The process then adopts and reaps orphans of its ranks. Leave Standalone false in a program
	// that starts other processes.
	Standalone bool `json:"Standalone"`
}

// Health says what to do about unhealthy nodes and ranks, and what evidence of a failure to keep.
// With the zero value, a job avoids no node because of failures. By default, the golaunch command
// avoids a node for an hour after 2 failures.
type Health struct {
	// Preflight says what to do about a node with findings (docs/doctor.md): "warn" (when empty)
	// prints them, "exclude" starts no rank there, "fail" ends the job with code 125, and "off"
	// checks nothing.
	Preflight string `json:"Preflight"`
	// HangTimeout is how long ranks may make no progress before their attempt fails, at least 1s
	// (docs/failures.md). 0 sets no limit.
	HangTimeout time.Duration `json:"HangTimeout"`
	// RankMonitor serves the rank monitor of NVIDIA's resiliency extension to the ranks
	// (docs/ft-launcher.md): "on", or limits in seconds such as "step:180,checkpointing:none". If a
	// rank exceeds a limit, the attempt fails. When empty, golaunch serves no monitor.
	RankMonitor string `json:"RankMonitor"`
	// InProcessRestart serves the socket of Amazon's HyperPod elastic agent to the ranks, which
	// then restart within their processes. A rank that does not return to the barrier within this
	// time after a fault fails its attempt (docs/hyperpod.md). 0 serves no socket.
	InProcessRestart time.Duration `json:"InProcessRestart"`
	// ExcludeAfter is how many failures a node may cause before the job prefers other nodes for the
	// time ExcludeFor; with 0, it never does. ExcludeFor is DefaultExcludeFor when 0. If a node's
	// hardware fails, the job avoids the node at once.
	ExcludeAfter int           `json:"ExcludeAfter"`
	ExcludeFor   time.Duration `json:"ExcludeFor"`
	// Bundle keeps evidence of each failed attempt beside the logs: "on" (when empty) or "off".
	Bundle string `json:"Bundle"`
	// FailureRules is a file with rules that say what a failure means. They precede the built-in
	// rules (docs/failures.md).
	FailureRules string `json:"-"`
}

// Output says where the output of ranks goes, and where golaunch's own output goes.
type Output struct {
	// Stdout gets the ranks' standard output. Stderr gets their standard error, and golaunch's
	// messages. They are os.Stdout and os.Stderr when nil.
	Stdout, Stderr io.Writer `json:"-"`
	// Ranks are the ranks to show; all when empty.
	Ranks []report.Span `json:"Ranks"`
	// Prefix puts "[r3 n1] " before each line. When nil, lines have a prefix if the job has more
	// than one rank.
	Prefix *bool `json:"Prefix"`
	// Fold shows a line that several ranks print only once, with the ranks: "on", "off", or "auto"
	// (when empty), which folds on a terminal if more than eight ranks have a prefix. The ranks'
	// files still have every line of every rank.
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
	// Observe gets each decision, in order. When Observe is nil, golaunch prints decisions on
	// Stderr: those that a person wants to know or, with JSON, all decisions and the result as JSON
	// lines (docs/json.md). With Quiet, golaunch prints neither decisions nor a report.
	Observe func(report.Decision) `json:"-"`
	JSON    bool                  `json:"JSON"`
	Quiet   bool                  `json:"Quiet"`
}

// Network says where the nodes of a job are, and how they meet and trust each other. With the zero
// value, the job runs on the nodes that a scheduler gave (Slurm, Kubernetes, mpirun, ...), or else
// on this machine. Give at most one of Rendezvous and Hosts.
type Network struct {
	// Rendezvous, HOST:PORT, is where the nodes of a job meet if each node calls Run with the same
	// Job. The node HOST runs the coordinator.
	Rendezvous string `json:"Rendezvous"`
	// Hosts are machines. ssh starts an agent on each.
	Hosts []Host `json:"Hosts"`
	// Golaunch is the path of the golaunch command, here and on the machines where ssh or srun
	// starts it as an agent; when empty, it is golaunch in this machine's PATH. golaunch does not
	// start the program that calls Run on another machine, because there only an argument could
	// tell that program to be an agent.
	Golaunch string `json:"Golaunch"`
	// Scheduler "none" makes golaunch ignore the variables of schedulers and other launchers
	// (SLURM_*, PET_*, ...).
	Scheduler string `json:"Scheduler"`
	// Name is this node's name; when empty, the scheduler's name for it, or the host name. Address
	// is this node's address; when empty, the address on the route to the coordinator. Interface
	// names the network interface that has the address instead.
	Name      string `json:"Name"`
	Address   string `json:"Address"`
	Interface string `json:"Interface"`
	// TokenFile has the secret that the nodes share. When empty, the secret is GOLAUNCH_TOKEN, or
	// the contents of ~/.golaunch/token, a file that golaunch makes at first use.
	TokenFile string `json:"TokenFile"`
	// PortRange, "FIRST:LAST", has the ports where this node listens for other nodes: as the
	// coordinator, for the store, and for everything else whose port is not set. Open this range in
	// the firewall. On a cluster, the job's range narrows the ranges of the agents. When empty, any
	// free port will do.
	PortRange string `json:"PortRange"`
	// A node that is silent for a Lease, at least 1s, counts as lost; DefaultLease when 0. Its
	// ranks are dead by then: an agent kills its ranks when it has not heard from the coordinator
	// for nine tenths of a lease.
	Lease time.Duration `json:"Lease"`
}

// noScheduler is a value of Network.Scheduler.
const noScheduler = "none"

// Cluster gives the job to a running cluster. With the zero value, no cluster gets the job.
type Cluster struct {
	// Coordinator is HOST:PORT of the cluster's coordinator, which gets the job. Without a
	// Coordinator, the other fields have no effect.
	Coordinator string `json:"Coordinator"`
	// Detached jobs run on without the process that submitted them. Run prints the ID of such a job
	// and returns at once.
	Detached bool `json:"Detached"`
	// Within names the reservation on whose GPUs the job runs. GPUs, if set, are indexes: the job
	// may use only these GPUs of each node. Backfill lets the job start before earlier jobs that
	// wait, if this takes nothing from the first of these jobs.
	Within   string `json:"Within"`
	GPUs     []int  `json:"GPUs"`
	Backfill bool   `json:"Backfill"`
	// Priority is "production", "interactive" (the default) or "batch". The job may preempt jobs of
	// a lower priority: the preempted jobs save, end, and start again later.
	Priority string `json:"Priority,omitempty"`
}

// TorchOutput is what torchrun does with the output of ranks
// (torch/distributed/elastic/multiprocessing/api.py). The files have torchrun's names beside
// golaunch's: <LogDir>/<id>_<random>/attempt_<n>/<local rank>/{stdout.log,stderr.log,error.json},
// in a directory for each node and run.
type TorchOutput struct {
	// Redirects says which streams are written only to files. Tee says which streams are written to
	// files and shown, with Prefix before each line. golaunch shows other streams as they are and,
	// unlike torchrun, writes them to files too. The keys are local ranks; -1 stands for all ranks
	// without an entry. The values are those of torchrun: 0 means no stream, 1 stdout, 2 stderr,
	// and 3 both.
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
// If a host is on several lines of a file without slots, each line counts as one slot
// (orte_hosts(7)). Any other host may occur only once, in a file as in a list. Errors are ErrUsage
// and have one line. They name the flag, or the file and the line in it.
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
