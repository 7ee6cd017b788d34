package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/golaunch/golaunch/launcher"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rankenv"
)

// options are the flags of a job as they were given.
type options struct {
	job      launcher.Job
	nodes    string
	hosts    string
	hostfile string
	gpus     string
	procs    string
	nproc    string
	strategy string
	order    string
	restart  string
	see      string
	backoff  string
	notice   string
	ranks    string
	prefix   bool
	json     bool
}

// aliases are torchrun's and other launchers' names for flags with the same meaning.
var aliases = map[string]string{
	"nnodes":        "nodes",
	"rdzv-endpoint": "rendezvous",
	"rdzv-id":       "job-id",
}

// newFlags declares the flags of a job into o.
func newFlags(verb string, o *options) *pflag.FlagSet {
	f := pflag.NewFlagSet(verb, pflag.ContinueOnError)
	f.SetInterspersed(false)
	f.SortFlags = false
	f.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		name = strings.ReplaceAll(name, "_", "-")
		if to, ok := aliases[name]; ok {
			name = to
		}
		if verb == "plan" && name == "dry-run" {
			name = "explain"
		}
		return pflag.NormalizedName(name)
	})
	f.Usage = func() {}
	j := &o.job
	f.StringVarP(&o.nodes, "nodes", "N", "", "nodes wanted: `N` or MIN:MAX (1, or what a scheduler has given, less the spares)")
	f.StringVarP(&o.gpus, "gpus-per-node", "g", "", "one rank per GPU: `N`, auto (all GPUs found) or a list such as 4,8,2")
	f.StringVarP(&o.procs, "procs-per-node", "n", "", "CPU ranks on each node: `N` or a list")
	f.StringVar(&j.OwnGPUs, "gpus", "", "only these GPUs of this machine: indexes or UUIDs, such as `2,4,7`; one rank on each unless --gpus-per-node says less")
	f.StringVar(&o.nproc, "nproc-per-node", "", "torchrun's: `N` ranks, on GPUs where there are any; gpu, cpu or auto")
	f.BoolVar(&j.Simulate, "simulate", false, "run all nodes on this machine, with declared GPUs, at 127.0.0.1, 127.0.0.2, ...")
	f.StringVar(&j.Rendezvous, "rendezvous", "", "the same command on every node meets at `HOST:PORT`; HOST runs the coordinator")
	f.StringVar(&j.Coordinator, "coordinator", "", "submit to the cluster of the coordinator at `HOST:PORT`; none runs the job here even if one is here")
	f.BoolVarP(&j.Detached, "detach", "d", false, "print the job's id and go; the job goes on")
	f.BoolVar(&j.Backfill, "backfill", false, "on a cluster: start before earlier jobs that wait, if that takes nothing from the first of them")
	f.IntSliceVar(&j.GPUs, "gpu-ids", nil, "on a cluster: only GPUs of these `indexes` on each node, such as 0,2,5")
	f.StringVar(&j.Within, "within", "", "on a cluster: run on the GPUs of this `reservation`")
	f.StringVar(&o.strategy, "strategy", "STRICT_PACK", "`how` bundles spread: STRICT_PACK, PACK, SPREAD or STRICT_SPREAD")
	f.StringVar(&o.order, "order", "ip", "`what` sorts the nodes into node ranks: ip, name, slurm, topology or file:PATH (a node name on each line)")
	f.DurationVar(&j.GrowAfter, "grow-after", launcher.DefaultGrowAfter, "how long a job of fewer than MAX nodes runs until it is restarted for more; 0s for ever")
	f.IntVar(&j.Spares, "spares", 0, "nodes beyond what the job needs, parked until one is lost")
	f.StringVar(&j.Scheduler, "scheduler", "", "none ignores what a `scheduler` or another launcher says of the job (SLURM_*, PET_*, OMPI_*, ...)")
	f.StringVar(&o.hosts, "hosts", "", "start the job's agents on these machines with ssh: `n1,n2:4`, slots after the colon")
	f.StringVar(&o.hostfile, "hostfile", "", "`file` with such machines, as mpirun and DeepSpeed have it: n1 slots=4")
	j.MaxRestarts = 3
	f.Var(window{&j.MaxRestarts, &j.RefillAfter}, "max-restarts", "restarts of the whole job, over all nodes: `N`, or N/TIME, which come back after TIME without a failure")
	j.ExcludeAfter, j.ExcludeFor = 2, time.Hour
	f.Var(window{&j.ExcludeAfter, &j.ExcludeFor}, "exclude-after", "failures by which a node is passed over, if others will do, for a time: `N/TIME`; 0 never")
	f.Var(exitCodes{&j.ExitCodes}, "exit-codes", "exit codes by how the job ended: `ENDING=CODE,...`, such as infrastructure=75,preempted=75")
	f.StringVar(&o.restart, "restart", "job", "`which` ranks restart when one fails: job, node, rank or never")
	f.StringVar(&o.backoff, "backoff", "1s:60s", "`MIN:MAX` wait before a restart; doubles each time, with jitter; 0s does not wait")
	f.DurationVar(&j.Grace, "grace", launcher.DefaultGrace, "how long a rank may take to end after SIGTERM")
	f.DurationVar(&j.DrainTime, "drain-time", 0, "how long ranks have to get ready when one of their nodes got SIGTERM, see GOLAUNCH_NOTICE_FILE")
	f.StringVar(&j.Spot, "spot-notice", "", "`cloud` to ask whether it takes this machine back: aws, gcp or azure")
	f.StringVar(&o.notice, "notice-signal", "", "`signal` that tells ranks of such a notice: USR1 or USR2")
	f.DurationVar(&j.HangTimeout, "hang-timeout", 0, "how long ranks may stand still before they are restarted; 0 for ever")
	f.StringVar(&j.Bundle, "bundle", "on", "on or off: keep `evidence` of each attempt that fails, beside its logs")
	f.IntVar(&j.MasterPort, "master-port", 0, "MASTER_PORT, on the node of rank 0; 0 takes a free one for each attempt")
	f.StringVar((*string)(&j.Store), "store", "golaunch", "`who` serves torch's store at MASTER_PORT: golaunch or rank0")
	f.StringArrayVarP(&j.Env, "env", "e", nil, "`NAME=value` for every rank, above all else; NAME alone passes golaunch's own value")
	f.BoolVar(&j.KeepEnv, "keep-env", false, "keep inherited variables of other launchers (PMI*, OMPI_*, SLURM_PROCID, ...)")
	f.StringVar(&j.Preset, "env-preset", "auto", "NCCL and libfabric `variables`: auto, efa, efa-classic, ib, roce, tcp or none")
	f.StringVar(&o.see, "gpu-visibility", "job", "a rank sees the `job`'s GPUs on its node and uses cuda:LOCAL_RANK, or its own only")
	f.StringVar(&j.Bind, "bind", "auto", "`what` CPUs a rank runs on: auto, none, numa, socket, l3 or core")
	f.BoolVar(&j.Strict, "strict", false, "start no rank on a node where --bind warns of something")
	f.StringVar((*string)(&j.Preflight), "preflight", "warn", "`what` is done about nodes with something wrong, see golaunch doctor: off, warn, exclude or fail")
	f.DurationVar(&j.Lease, "lease", launcher.DefaultLease, "the silence after which a node counts as lost, and its ranks are dead")
	f.DurationVar(&j.PlacementTimeout, "placement-timeout", 0, "how long to wait for nodes and GPUs; 0 waits for ever")
	f.StringVar(&j.LogDir, "log-dir", "", "`directory` for the ranks' output and events.jsonl; a temporary one when empty, removed on success")
	f.Int64Var(&j.LogLimit, "log-limit", launcher.DefaultLogLimit, "`bytes` that one log file may have")
	f.StringVar(&j.TerminationLog, "termination-log", "", "`file` for one line about the job's end (in a pod /dev/termination-log); none or empty writes none")
	f.StringVar(&j.FailureRules, "failure-rules", "", rulesUsage)
	f.StringVar(&o.ranks, "ranks", "", "show only these ranks' output: `0,8-15`")
	f.BoolVar(&o.prefix, "prefix", true, "put [r3 n1] before each line of a rank; by default when there are several ranks")
	f.BoolVar(&j.Quiet, "quiet", false, "print nothing but the ranks' output")
	f.BoolVar(&o.json, "json", false, "print golaunch's own words (or the plan) as JSON")
	f.StringVar(&j.Dir, "dir", "", "working `directory` of the ranks")
	f.StringVar(&j.ID, "job-id", "", "`name` of the job in logs and TORCHELASTIC_RUN_ID")
	f.StringVar(&j.NodeName, "name", "", "this node's `name` (the host name)")
	f.StringVar(&j.Address, "address", "", "this node's `address` (the one on the route to the coordinator)")
	f.StringVar(&j.Interface, "interface", "", "network `interface` that has this node's address")
	f.StringVar(&j.TokenFile, "token-file", "", "`file` with the nodes' shared secret (~/.golaunch/token; GOLAUNCH_TOKEN has the secret itself)")
	return f
}

// parse reads flags, then GOLAUNCH_ variables, then torchrun's PET_ variables, each only for what the ones before left open.
func parse(f *pflag.FlagSet, o *options, args []string) error {
	if err := f.Parse(args); err != nil {
		return fmt.Errorf("%w: %w; see golaunch help %s", launcher.ErrUsage, err, f.Name())
	}
	if err := fromEnv(f); err != nil {
		return err
	}
	o.job.Command = f.Args()
	return o.complete(f)
}

func fromEnv(f *pflag.FlagSet) error {
	var errs []error
	f.VisitAll(func(flag *pflag.Flag) {
		for _, name := range variables(flag.Name) {
			value, ok := os.LookupEnv(name)
			if !ok || flag.Changed {
				continue
			}
			if err := f.Set(flag.Name, value); err != nil {
				errs = append(errs, fmt.Errorf("%w: %s: %w", launcher.ErrUsage, name, err))
			}
		}
	})
	return errors.Join(errs...)
}

// variables are the names under which the environment can give a flag, the strongest first.
func variables(flag string) []string {
	upper := func(name string) string { return strings.ToUpper(strings.ReplaceAll(name, "-", "_")) }
	names := []string{"GOLAUNCH_" + upper(flag)}
	switch flag {
	case "nproc-per-node", "max-restarts", "master-port", "log-dir":
		names = append(names, "PET_"+upper(flag))
	}
	for alias, to := range aliases {
		if to == flag {
			names = append(names, "PET_"+upper(alias))
		}
	}
	return names
}

// complete turns the text of flags into the job's fields.
func (o *options) complete(f *pflag.FlagSet) (err error) {
	j := &o.job
	j.Restart = launcher.Restart(o.restart)
	j.Visibility = rankenv.Visibility(o.see)
	switch {
	case j.Grace < 0:
		return bad("grace", fmt.Errorf("%s: at least 0s", j.Grace))
	case j.Grace == 0:
		j.Grace = -1
	}
	if j.GrowAfter == 0 {
		j.GrowAfter = -1
	}
	if f.Changed("prefix") {
		j.Prefix = &o.prefix
	}
	if f.Changed("termination-log") && j.TerminationLog == "" {
		j.TerminationLog = launcher.NoTerminationLog
	}
	if j.Request.MinNodes, j.Request.MaxNodes, err = parseNodes(o.nodes); err != nil {
		return bad("nodes", err)
	}
	if j.Request.Strategy, err = placement.ParseStrategy(o.strategy); err != nil {
		return bad("strategy", err)
	}
	if j.Request.Order, err = parseOrder(o.order); err != nil {
		return bad("order", err)
	}
	if j.BackoffMin, j.BackoffMax, err = parseBackoff(o.backoff); err != nil {
		return bad("backoff", err)
	}
	if j.NoticeSignal, err = parseSignal(o.notice); err != nil {
		return bad("notice-signal", err)
	}
	if j.Ranks, err = parseSpans(o.ranks); err != nil {
		return bad("ranks", err)
	}
	for _, flag := range []string{"hosts", "hostfile"} { // a variable that is empty must not make this a job of one machine
		if f.Changed(flag) && f.Lookup(flag).Value.String() == "" {
			return bad(flag, errors.New("it is empty"))
		}
	}
	if j.Hosts, err = launcher.ParseHosts(o.hosts, o.hostfile); err != nil {
		return err
	}
	return o.perNode()
}

func bad(flag string, err error) error {
	return fmt.Errorf("%w: --%s: %w", launcher.ErrUsage, flag, err)
}

// perNode settles how many ranks a node has from the one flag of three that was given.
func (o *options) perNode() (err error) {
	r := &o.job.Request
	switch {
	case (o.gpus != "" && o.procs != "") || (o.nproc != "" && o.gpus+o.procs != ""):
		return fmt.Errorf("%w: give one of --gpus-per-node, --procs-per-node and --nproc-per-node", launcher.ErrUsage)
	case o.job.OwnGPUs != "" && o.gpus+o.procs+o.nproc == "":
		r.GPU, r.PerNode = true, []int{placement.AllGPUs}
	case o.gpus != "":
		r.GPU = true
		if r.PerNode, err = placement.ParsePerNode(o.gpus); err != nil {
			return bad("gpus-per-node", err)
		}
	case o.procs != "":
		if r.PerNode, err = placement.ParsePerNode(o.procs); err != nil || r.PerNode[0] == placement.AllGPUs {
			return bad("procs-per-node", errors.Join(err, fmt.Errorf("%q: a number of at least 1, or a list", o.procs)))
		}
	case o.nproc != "":
		if r.PerNode, r.GPU, err = launcher.TorchRanks(context.Background(), o.nproc); err != nil {
			return bad("nproc-per-node", err)
		}
	}
	return nil
}

// parseNodes reads N or MIN:MAX.
func parseNodes(text string) (low, high int, err error) {
	if text == "" {
		return 0, 0, nil
	}
	first, second, ranged := strings.Cut(text, ":")
	low, err = strconv.Atoi(first)
	high = low
	if err == nil && ranged {
		high, err = strconv.Atoi(second)
	}
	if err != nil || low < 1 || high < low {
		return 0, 0, fmt.Errorf("%q: a number of at least 1, or MIN:MAX with MIN not above MAX", text)
	}
	return low, high, nil
}

// parseOrder reads ip, name, or file:PATH with a node name on each line.
func parseOrder(text string) (placement.Order, error) {
	path, isFile := strings.CutPrefix(text, "file:")
	switch {
	case text == "ip" || text == "name" || text == "slurm" || text == "topology":
		return placement.Order{By: text}, nil
	case !isFile:
		return placement.Order{}, fmt.Errorf("%q: ip, name, slurm, topology or file:PATH", text)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return placement.Order{}, err
	}
	return placement.Order{By: "list", List: strings.Fields(string(data))}, nil
}

func parseBackoff(text string) (low, high time.Duration, err error) {
	first, second, ranged := strings.Cut(text, ":")
	low, err = time.ParseDuration(first)
	high = low
	if err == nil && ranged {
		high, err = time.ParseDuration(second)
	}
	if err != nil || low < 0 || high < low {
		return 0, 0, fmt.Errorf("%q: MIN:MAX such as 1s:60s", text)
	}
	return low, high, nil
}

func parseSignal(text string) (syscall.Signal, error) {
	switch strings.TrimPrefix(text, "SIG") {
	case "":
		return 0, nil
	case "USR1":
		return syscall.SIGUSR1, nil
	case "USR2":
		return syscall.SIGUSR2, nil
	}
	return 0, fmt.Errorf("%q: USR1 or USR2", text)
}

// parseSpans reads ranks such as 0,8-15.
func parseSpans(text string) ([]launcher.Span, error) {
	if text == "" {
		return nil, nil
	}
	var spans []launcher.Span
	for part := range strings.SplitSeq(text, ",") {
		first, second, ranged := strings.Cut(part, "-")
		from, err := strconv.Atoi(first)
		to := from
		if err == nil && ranged {
			to, err = strconv.Atoi(second)
		}
		if err != nil || from < 0 || to < from {
			return nil, fmt.Errorf("%q: ranks such as 0,8-15", part)
		}
		spans = append(spans, launcher.Span{From: from, To: to})
	}
	return spans, nil
}
