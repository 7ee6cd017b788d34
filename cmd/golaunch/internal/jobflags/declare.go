package jobflags

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
	"github.com/golaunch/golaunch/launcher"
)

// groups declares the flags of a job. The groups have the names and the order of launcher.Job's
// fields; the first is for Job's own fields.
var groups = []struct {
	name    string
	declare func(*Flags, *pflag.FlagSet)
}{
	{"Job", (*Flags).declareJob},
	{"Resources", (*Flags).declareResources},
	{"Ranks", (*Flags).declareRanks},
	{"Restarts", (*Flags).declareRestarts},
	{"Stopping", (*Flags).declareStopping},
	{"Health", (*Flags).declareHealth},
	{"Output", (*Flags).declareOutput},
	{"Network", (*Flags).declareNetwork},
	{"Cluster", (*Flags).declareCluster},
}

// Declare declares the flags of a job. Flags end where its command begins.
func (o *Flags) Declare(f *pflag.FlagSet) {
	f.SetInterspersed(false)
	f.SetNormalizeFunc(cli.NormalizeName)
	for _, g := range groups {
		g.declare(o, f)
		note := map[string][]string{cli.GroupNote: {g.name}}
		f.VisitAll(func(flag *pflag.Flag) {
			if flag.Annotations == nil {
				flag.Annotations = note // the map is shared: SetFromEnv changes a copy
			}
		})
	}
}

func (o *Flags) declareJob(f *pflag.FlagSet) {
	j := &o.Job
	j.WorkspaceLimit = launcher.DefaultWorkspaceLimit
	f.StringVar(&j.ID, "job-id", "", "`name` of the job in logs and TORCHELASTIC_RUN_ID")
	f.StringVar(&j.Dir, "dir", "", "working `directory` of the ranks")
	f.StringVar(&j.Workspace, "workspace", "", "`directory` that travels to the nodes, without what .gitignore and .rayignore name; the ranks run in a copy of it, at --dir")
	f.Var(size{&j.WorkspaceLimit}, "workspace-limit", "the most that the files of the workspace may have: bytes, or `SIZE` such as 2GiB")
	f.StringArrayVarP(&j.Env, "env", "e", nil, "`NAME=value` for every rank, above all else; NAME alone passes golaunch's own value")
}

func (o *Flags) declareResources(f *pflag.FlagSet) {
	r := &o.Job.Resources
	f.StringVarP(&o.resources.nodes, "nodes", "N", "", "nodes wanted: `N` or MIN:MAX (1, or the scheduler's nodes less the spares)")
	f.StringVarP(&o.resources.gpus, "gpus-per-node", "g", "", "one rank per GPU: `N`, auto (all GPUs found) or a list such as 4,8,2")
	f.StringVar(&o.resources.perRank, "gpus-per-rank", "", "`part` of a GPU that each rank has: 1, or 1/2 (0.5) to 1/48, so that ranks share GPUs")
	f.StringVarP(&o.resources.procs, "procs-per-node", "n", "", "CPU ranks on each node: `N` or a list")
	f.StringVar(&o.resources.nproc, "nproc-per-node", "", "as torchrun's: `N` ranks, on GPUs if there are any; gpu, cpu or auto")
	f.StringVar(&o.resources.gpuIDs, "gpu-ids", "", "only these GPUs of each node: indexes such as `2,4,7`, or UUIDs without a cluster; one rank each, or as --gpus-per-node says")
	f.StringVar(&o.resources.strategy, "strategy", "STRICT_PACK", "placement `strategy`: STRICT_PACK, PACK, SPREAD or STRICT_SPREAD")
	f.StringVar(&o.resources.order, "order", "ip", "`order` of the node ranks: ip, name, slurm, topology or file:PATH (a node name on each line)")
	f.IntVar(&r.Spares, "spares", 0, "nodes beyond what the job needs, parked until one is lost")
	f.BoolVar(&r.Simulate, "simulate", false, "run all nodes on this machine, with declared GPUs, at 127.0.0.1, 127.0.0.2, ...")
	f.DurationVar(&r.PlacementTimeout, "placement-timeout", 0, "how long to wait for nodes and GPUs; 0 waits for ever")
	f.DurationVar(&r.GrowAfter, "grow-after", launcher.DefaultGrowAfter, "how long a job with fewer than MAX nodes runs until it restarts with more; 0s for ever")
}

func (o *Flags) declareRanks(f *pflag.FlagSet) {
	r := &o.Job.Ranks
	f.BoolVar(&r.KeepEnv, "keep-env", false, "keep inherited variables of other launchers (PMI*, OMPI_*, SLURM_PROCID, ...)")
	f.StringVar(&r.Inspector, "nccl-inspector", "", "`directory` on each node for the metrics of NCCL's profiler plugin inspector, such as node-exporter's; none if empty")
	f.StringVar(&r.Preset, "env-preset", "auto", "NCCL and libfabric `variables`: auto, efa, efa-classic, ib, roce, tcp or none")
	f.StringVar(&o.see, "gpu-visibility", "job", "GPUs that a rank sees: `job` (the job's on its node; it uses cuda:LOCAL_RANK) or own (its own, as cuda:0)")
	f.StringVar(&r.Bind, "bind", "auto", "`CPUs` that a rank runs on: auto, none, numa, socket, l3 or core")
	f.BoolVar(&r.Strict, "strict", false, "start no rank on a node where --bind warns")
	f.StringVar(&r.Preload, "preload", "", "Python `modules` that each node imports once and forks its ranks from: torch,transformers; auto (what the last run loaded); or none")
	f.BoolVar(&r.PreloadStrict, "preload-strict", false, "start no rank without the preloaded modules")
	f.IntVar(&r.MasterPort, "master-port", 0, "MASTER_PORT, on rank 0's node; 0 chooses a free one for each attempt")
	f.StringVar(&r.Store, "store", "golaunch", "`server` of torch's store at MASTER_PORT: golaunch, proxy (golaunch, with a proxy on each other node) or rank0")
}

func (o *Flags) declareRestarts(f *pflag.FlagSet) {
	r := &o.Job.Restarts
	r.Max = 3
	f.Var(window{&r.Max, &r.RefillAfter}, "max-restarts", "restarts of the whole job, or of each replica group: `N`, or N/TIME to regain them after TIME without a failure")
	f.StringVar(&r.Policy, "restart", "job", "`ranks` that restart when one fails: job (all ranks), node (those of its node), rank or never")
	f.IntVar(&r.ReplicaGroups, "replica-groups", 0, "`number` of torchft's replica groups, which restart one by one; each has the same number of ranks")
	f.IntVar(&r.MinGroups, "min-groups", 0, "`number` of replica groups that a quorum and the job need (1)")
	f.IntVar(&r.TolerateLostRanks, "tolerate-lost-ranks", 0, "`number` of ranks that may fail, or be lost with their node, while the others go on")
	f.StringVar(&o.Backoff, "backoff", "1s:60s", "wait before a restart, from `MIN:MAX`; doubles each time, with jitter; 0s does not wait")
	f.Var(exitCodes{&r.ExitCodes}, "exit-codes", "exit codes by how the job ended: `ENDING=CODE,...`, such as infrastructure=75,preempted=75")
}

func (o *Flags) declareStopping(f *pflag.FlagSet) {
	s := &o.Job.Stopping
	f.DurationVar(&s.Grace, "grace", launcher.DefaultGrace, "how long a rank may take to end after the stop signal")
	f.StringVar(&o.stop, "stop-signal", "", "stop `signal` for ranks: TERM, INT, QUIT, HUP, USR1 or USR2 (the one golaunch got, with TERM for HUP; else TERM)")
	f.DurationVar(&s.Linger, "linger", 0, "how long processes that ranks left behind may run after all ranks exited with 0, until SIGTERM and --grace")
	f.StringVar(&o.Job.CheckpointDir, "checkpoint-dir", "", "`directory` of the ranks' checkpoints; golaunch finds it by the files that they have open")
	f.BoolVar(&o.Job.SetAsidePartial, "set-aside-partial", false, "rename the newest checkpoint to partial/NAME before ranks start, if it is not complete")
	f.DurationVar(&s.DrainTime, "drain-time", 0, "how long ranks may prepare for their end after a node gets SIGTERM, see GOLAUNCH_NOTICE_FILE")
	f.StringVar(&o.notice, "notice-signal", "", "`signal` that tells ranks of such a notice: USR1 or USR2")
	f.StringVar(&s.Spot, "spot-notice", "", "`cloud` to ask for notices that it takes this machine back: aws, gcp or azure")
}

func (o *Flags) declareHealth(f *pflag.FlagSet) {
	h := &o.Job.Health
	f.StringVar(&h.Preflight, "preflight", "warn", "`action` if the checks of golaunch doctor find an error on a node: off, warn, exclude or fail")
	f.DurationVar(&h.HangTimeout, "hang-timeout", 0, "how long ranks may make no progress before they restart; 0 for ever")
	f.DurationVar(&h.InProcessRestart, "inprocess-restart", 0, "serve the socket of HyperPod's elastic agent to the ranks; those not back at the barrier so long after a fault restart")
	f.StringVar(&h.RankMonitor, "rank-monitor", "", "serve NVRx's rank monitor to the ranks: on, or `LIMITS` in seconds after which they restart, such as step:180,checkpointing:none")
	h.ExcludeAfter, h.ExcludeFor = 2, time.Hour
	f.Var(window{&h.ExcludeAfter, &h.ExcludeFor}, "exclude-after", "pass over a node after N failures, for TIME, if other nodes suffice: `N/TIME`; 0 never")
	f.StringVar(&h.Bundle, "bundle", "on", "on or off: keep a `bundle` of evidence of each failed attempt, beside its logs")
	f.StringVar(&h.FailureRules, "failure-rules", "", RulesUsage)
}

func (o *Flags) declareOutput(f *pflag.FlagSet) {
	j := &o.Job
	f.StringVar(&j.Output.LogDir, "log-dir", "", "`directory` for the ranks' output and events.jsonl; if empty, a temporary one, removed on success")
	f.Int64Var(&j.Output.LogLimit, "log-limit", launcher.DefaultLogLimit, "`bytes` that one log file may have")
	f.StringVar(&j.Output.TerminationLog, "termination-log", "", "`file` for one line about the job's end (in a pod /dev/termination-log); none or empty writes none")
	f.StringVar(&o.ranks, "ranks", "", "show only these ranks' output: `0,8-15`")
	f.BoolVar(&o.prefix, "prefix", true, "put [r3 n1] before each line of a rank; by default with several ranks")
	f.StringVar(&j.Output.Fold, "fold", "auto", FoldUsage)
	f.BoolVar(&j.Output.Quiet, "quiet", false, "print only the ranks' output")
	f.BoolVar(&o.JSON, "json", false, "print golaunch's messages (or the plan) as JSON")
}

func (o *Flags) declareNetwork(f *pflag.FlagSet) {
	j := &o.Job
	f.StringVar(&j.Network.Rendezvous, "rendezvous", "", "the same command on every node meets at `HOST:PORT`; HOST runs the coordinator")
	f.StringVar(&o.hosts, "hosts", "", "start the job's agents on these machines with ssh: `n1,n2:4`, slots after the colon")
	f.StringVar(&o.hostfile, "hostfile", "", "`file` with such machines, as mpirun and DeepSpeed have it: n1 slots=4")
	f.StringVar(&j.Network.Scheduler, "scheduler", "", "none ignores the variables of a `scheduler` or another launcher (SLURM_*, PET_*, OMPI_*, ...)")
	f.DurationVar(&j.Network.Lease, "lease", launcher.DefaultLease, "how long a node may be silent; then its ranks are dead and it counts as lost")
	f.StringVar(&j.Network.Name, "name", "", "this node's `name` (the host name)")
	f.StringVar(&j.Network.Address, "address", "", "this node's `address` (the one on the route to the coordinator)")
	f.StringVar(&j.Network.Interface, "interface", "", "network `interface` that has this node's address")
	f.StringVar(&j.Network.PortRange, "port-range", "", cli.PortRangeUsage)
	f.StringVar(&j.Network.TokenFile, "token-file", "", "`file` with the nodes' shared secret (~/.golaunch/token; GOLAUNCH_TOKEN has the secret itself)")
}

func (o *Flags) declareCluster(f *pflag.FlagSet) {
	c := &o.Job.Cluster
	f.StringVar(&c.Coordinator, "coordinator", "", "submit to the coordinator at `HOST:PORT`, or to several, separated by commas; none runs the job here, even beside a coordinator")
	f.BoolVarP(&c.Detached, "detach", "d", false, "print the job's id and exit; the job goes on")
	f.StringVar(&c.Within, "within", "", "run on the GPUs of this `reservation`")
	f.StringVar(&c.Priority, "priority", "", "production, interactive (the default) or batch: how urgent the job is; it may preempt jobs of a lower `priority`")
	f.BoolVar(&c.Backfill, "backfill", false, "start before earlier waiting jobs, if that does not delay the first of them")
}

const FoldUsage = "show equal lines of several ranks once, `when`: on, off, or auto (on a terminal, with more than eight ranks)"

const RulesUsage = "`file` with rules for log lines, before the built-in ones: ACTION CODE /REGEXP/ REMEDY"
