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
				flag.Annotations = note // shared: SetFromEnv changes a copy
			}
		})
	}
}

func (o *Flags) declareJob(f *pflag.FlagSet) {
	j := &o.Job
	f.StringVar(&j.ID, "job-id", "", "`name` of the job in logs and TORCHELASTIC_RUN_ID")
	f.StringVar(&j.Dir, "dir", "", "working `directory` of the ranks")
	f.StringArrayVarP(&j.Env, "env", "e", nil, "`NAME=value` for every rank, above all else; NAME alone passes golaunch's own value")
}

func (o *Flags) declareResources(f *pflag.FlagSet) {
	r := &o.Job.Resources
	f.StringVarP(&o.resources.nodes, "nodes", "N", "", "nodes wanted: `N` or MIN:MAX (1, or what a scheduler has given, less the spares)")
	f.StringVarP(&o.resources.gpus, "gpus-per-node", "g", "", "one rank per GPU: `N`, auto (all GPUs found) or a list such as 4,8,2")
	f.StringVarP(&o.resources.procs, "procs-per-node", "n", "", "CPU ranks on each node: `N` or a list")
	f.StringVar(&o.resources.nproc, "nproc-per-node", "", "torchrun's: `N` ranks, on GPUs where there are any; gpu, cpu or auto")
	f.StringVar(&o.resources.gpuIDs, "gpu-ids", "", "only these GPUs of each node: indexes, or UUIDs without a cluster, such as `2,4,7`; one rank on each unless --gpus-per-node says less")
	f.StringVar(&o.resources.strategy, "strategy", "STRICT_PACK", "`how` bundles spread: STRICT_PACK, PACK, SPREAD or STRICT_SPREAD")
	f.StringVar(&o.resources.order, "order", "ip", "`what` sorts the nodes into node ranks: ip, name, slurm, topology or file:PATH (a node name on each line)")
	f.IntVar(&r.Spares, "spares", 0, "nodes beyond what the job needs, parked until one is lost")
	f.BoolVar(&r.Simulate, "simulate", false, "run all nodes on this machine, with declared GPUs, at 127.0.0.1, 127.0.0.2, ...")
	f.DurationVar(&r.PlacementTimeout, "placement-timeout", 0, "how long to wait for nodes and GPUs; 0 waits for ever")
	f.DurationVar(&r.GrowAfter, "grow-after", launcher.DefaultGrowAfter, "how long a job of fewer than MAX nodes runs until it is restarted for more; 0s for ever")
}

func (o *Flags) declareRanks(f *pflag.FlagSet) {
	r := &o.Job.Ranks
	f.BoolVar(&r.KeepEnv, "keep-env", false, "keep inherited variables of other launchers (PMI*, OMPI_*, SLURM_PROCID, ...)")
	f.StringVar(&r.Inspector, "nccl-inspector", "", "`directory` on each node for the metrics of NCCL's profiler plugin inspector, such as node-exporter's; none when empty")
	f.StringVar(&r.Preset, "env-preset", "auto", "NCCL and libfabric `variables`: auto, efa, efa-classic, ib, roce, tcp or none")
	f.StringVar(&o.see, "gpu-visibility", "job", "a rank sees the `job`'s GPUs on its node and uses cuda:LOCAL_RANK, or its own only")
	f.StringVar(&r.Bind, "bind", "auto", "`what` CPUs a rank runs on: auto, none, numa, socket, l3 or core")
	f.BoolVar(&r.Strict, "strict", false, "start no rank on a node where --bind warns of something")
	f.StringVar(&r.Preload, "preload", "", "Python `modules` that each node imports once, and forks its ranks from, in all attempts: torch,transformers; or auto, what the last run had loaded; or none")
	f.BoolVar(&r.PreloadStrict, "preload-strict", false, "start no rank that cannot be forked so")
	f.IntVar(&r.MasterPort, "master-port", 0, "MASTER_PORT, on the node of rank 0; 0 takes a free one for each attempt")
	f.StringVar(&r.Store, "store", "golaunch", "`who` serves torch's store at MASTER_PORT: golaunch, proxy (golaunch too, with a proxy on each other node) or rank0")
}

func (o *Flags) declareRestarts(f *pflag.FlagSet) {
	r := &o.Job.Restarts
	r.Max = 3
	f.Var(window{&r.Max, &r.RefillAfter}, "max-restarts", "restarts of the whole job, over all nodes: `N`, or N/TIME, which come back after TIME without a failure")
	f.StringVar(&r.Policy, "restart", "job", "`which` ranks restart when one fails: job, node, rank or never")
	f.StringVar(&o.Backoff, "backoff", "1s:60s", "`MIN:MAX` wait before a restart; doubles each time, with jitter; 0s does not wait")
	f.Var(exitCodes{&r.ExitCodes}, "exit-codes", "exit codes by how the job ended: `ENDING=CODE,...`, such as infrastructure=75,preempted=75")
}

func (o *Flags) declareStopping(f *pflag.FlagSet) {
	s := &o.Job.Stopping
	f.DurationVar(&s.Grace, "grace", launcher.DefaultGrace, "how long a rank may take to end after it was asked to")
	f.StringVar(&o.stop, "stop-signal", "", "`signal` that asks a rank to end: TERM, INT, QUIT, HUP, USR1 or USR2 (what golaunch got, TERM for HUP; else TERM)")
	f.DurationVar(&s.Linger, "linger", 0, "how long what ranks have left running may go on when all have exited with 0, before SIGTERM and --grace")
	f.DurationVar(&s.DrainTime, "drain-time", 0, "how long ranks have to get ready when one of their nodes got SIGTERM, see GOLAUNCH_NOTICE_FILE")
	f.StringVar(&o.notice, "notice-signal", "", "`signal` that tells ranks of such a notice: USR1 or USR2")
	f.StringVar(&s.Spot, "spot-notice", "", "`cloud` to ask whether it takes this machine back: aws, gcp or azure")
}

func (o *Flags) declareHealth(f *pflag.FlagSet) {
	h := &o.Job.Health
	f.StringVar(&h.Preflight, "preflight", "warn", "`what` is done about nodes with something wrong, see golaunch doctor: off, warn, exclude or fail")
	f.DurationVar(&h.HangTimeout, "hang-timeout", 0, "how long ranks may stand still before they are restarted; 0 for ever")
	h.ExcludeAfter, h.ExcludeFor = 2, time.Hour
	f.Var(window{&h.ExcludeAfter, &h.ExcludeFor}, "exclude-after", "failures by which a node is passed over, if others will do, for a time: `N/TIME`; 0 never")
	f.StringVar(&h.Bundle, "bundle", "on", "on or off: keep `evidence` of each attempt that fails, beside its logs")
	f.StringVar(&h.FailureRules, "failure-rules", "", RulesUsage)
}

func (o *Flags) declareOutput(f *pflag.FlagSet) {
	j := &o.Job
	f.StringVar(&j.Output.LogDir, "log-dir", "", "`directory` for the ranks' output and events.jsonl; a temporary one when empty, removed on success")
	f.Int64Var(&j.Output.LogLimit, "log-limit", launcher.DefaultLogLimit, "`bytes` that one log file may have")
	f.StringVar(&j.Output.TerminationLog, "termination-log", "", "`file` for one line about the job's end (in a pod /dev/termination-log); none or empty writes none")
	f.StringVar(&o.ranks, "ranks", "", "show only these ranks' output: `0,8-15`")
	f.BoolVar(&o.prefix, "prefix", true, "put [r3 n1] before each line of a rank; by default when there are several ranks")
	f.StringVar(&j.Output.Fold, "fold", "auto", FoldUsage)
	f.BoolVar(&j.Output.Quiet, "quiet", false, "print nothing but the ranks' output")
	f.BoolVar(&o.JSON, "json", false, "print golaunch's own words (or the plan) as JSON")
}

func (o *Flags) declareNetwork(f *pflag.FlagSet) {
	j := &o.Job
	f.StringVar(&j.Network.Rendezvous, "rendezvous", "", "the same command on every node meets at `HOST:PORT`; HOST runs the coordinator")
	f.StringVar(&o.hosts, "hosts", "", "start the job's agents on these machines with ssh: `n1,n2:4`, slots after the colon")
	f.StringVar(&o.hostfile, "hostfile", "", "`file` with such machines, as mpirun and DeepSpeed have it: n1 slots=4")
	f.StringVar(&j.Network.Scheduler, "scheduler", "", "none ignores what a `scheduler` or another launcher says of the job (SLURM_*, PET_*, OMPI_*, ...)")
	f.DurationVar(&j.Network.Lease, "lease", launcher.DefaultLease, "the silence after which a node counts as lost, and its ranks are dead")
	f.StringVar(&j.Network.Name, "name", "", "this node's `name` (the host name)")
	f.StringVar(&j.Network.Address, "address", "", "this node's `address` (the one on the route to the coordinator)")
	f.StringVar(&j.Network.Interface, "interface", "", "network `interface` that has this node's address")
	f.StringVar(&j.Network.PortRange, "port-range", "", cli.PortRangeUsage)
	f.StringVar(&j.Network.TokenFile, "token-file", "", "`file` with the nodes' shared secret (~/.golaunch/token; GOLAUNCH_TOKEN has the secret itself)")
}

func (o *Flags) declareCluster(f *pflag.FlagSet) {
	c := &o.Job.Cluster
	f.StringVar(&c.Coordinator, "coordinator", "", "submit to the cluster of the coordinator at `HOST:PORT`, or of several with commas between them; none runs the job here even if one is here")
	f.BoolVarP(&c.Detached, "detach", "d", false, "print the job's id and go; the job goes on")
	f.StringVar(&c.Within, "within", "", "run on the GPUs of this `reservation`")
	f.BoolVar(&c.Backfill, "backfill", false, "start before earlier jobs that wait, if that takes nothing from the first of them")
}

const FoldUsage = "show lines that ranks have in common once, with those ranks, `when`: on, off, or auto on a terminal with more than eight"

const RulesUsage = "`file` with rules for lines of logs that come before the built-in ones: ACTION CODE /REGEXP/ REMEDY"
