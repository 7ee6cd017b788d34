package launcher

import (
	"cmp"
	"crypto/rand"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/golaunch/golaunch/agent"
	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/host/bind"
	"github.com/golaunch/golaunch/internal/host/lazyregexp"
	"github.com/golaunch/golaunch/internal/host/ports"
	"github.com/golaunch/golaunch/internal/process/postmortem"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/workspace"
	"github.com/golaunch/golaunch/launcher/internal/preflight"
	"github.com/golaunch/golaunch/launcher/internal/signals"
	"github.com/golaunch/golaunch/launcher/internal/spot"
	"github.com/golaunch/golaunch/launcher/internal/torchoutput"
	"github.com/golaunch/golaunch/launcher/internal/usage"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/nccl"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rankenv"
)

// complete fills in defaults and refuses values that make no sense. It changes nothing in a job
// that is complete already, such as a job from another machine. So it does not replace negative
// values by 0, which would then get the default; the code that uses them takes them for 0.
func (j Job) complete() (Job, error) {
	if err := j.takePlace(); err != nil {
		return j, err
	}
	j.hasID = j.ID != ""
	j.defaults()
	if err := j.check(); err != nil {
		return j, err
	}
	var err error
	_, j.ruleText, err = postmortem.ReadRules(j.Health.FailureRules)
	if _, input := errors.AsType[*postmortem.InputError](err); input {
		return j, usage.Errorf("%v", err)
	}
	if err != nil {
		return j, err
	}
	_, err = j.userEnv()
	return j, err
}

func (j *Job) defaults() {
	if j.ID == "" { // it must be unique among the log directories of a machine
		j.ID = time.Now().UTC().Format("20060102-150405") + "-" + strings.ToLower(rand.Text()[:5])
	}
	r := &j.Resources
	if r.MinNodes == 0 && r.MaxNodes == 0 {
		r.MinNodes, r.MaxNodes = 1, 1
	}
	if len(r.PerNode) == 0 {
		r.PerNode = []int{1}
	}
	r.LastCall = cmp.Or(r.LastCall, DefaultLastCall)
	r.GrowAfter = cmp.Or(r.GrowAfter, DefaultGrowAfter)
	if r.PerGPU > 1 {
		j.Ranks.Visibility = cmp.Or(j.Ranks.Visibility, rankenv.SeeOwn)
	}
	j.Ranks.defaults()
	j.Health.Preflight = cmp.Or(j.Health.Preflight, preflight.Warn)
	j.Health.Bundle = cmp.Or(j.Health.Bundle, "on")
	if j.Health.ExcludeAfter > 0 {
		j.Health.ExcludeFor = cmp.Or(j.Health.ExcludeFor, DefaultExcludeFor)
	}
	j.Output.defaults()
	if j.Restarts.ReplicaGroups > 0 {
		j.Restarts.MinGroups = cmp.Or(j.Restarts.MinGroups, 1)
	}
	j.Restarts.Policy = cmp.Or(j.Restarts.Policy, string(job.RestartJob))
	j.Stopping.Grace = cmp.Or(j.Stopping.Grace, DefaultGrace)
	j.Network.Lease = cmp.Or(j.Network.Lease, DefaultLease)
	j.WorkspaceLimit = cmp.Or(j.WorkspaceLimit, DefaultWorkspaceLimit)
}

func (r *Ranks) defaults() {
	r.Preset = cmp.Or(r.Preset, "auto")
	r.Visibility = cmp.Or(r.Visibility, rankenv.SeeJob)
	r.Bind = cmp.Or(r.Bind, string(bind.Auto))
	r.Store = cmp.Or(r.Store, storeGolaunch)
	r.Role = cmp.Or(r.Role, "default")
}

func (o *Output) defaults() {
	o.LogLimit = cmp.Or(o.LogLimit, DefaultLogLimit)
	if o.Stdout == nil {
		o.Stdout = os.Stdout
	}
	if o.Stderr == nil {
		o.Stderr = os.Stderr
	}
}

// check refuses values that make no sense, first in each group of options and then in several
// groups together.
func (j Job) check() error {
	switch {
	case len(j.Command) == 0 || j.Command[0] == "":
		return usage.Errorf("no command; say what to run after --")
	case !validID(j.ID):
		return usage.Errorf("job id %q: use 1 to 64 letters, digits, '.', '_' and '-', beginning with a letter or digit", j.ID)
	case j.Workspace != "" && j.Dir != "" && !filepath.IsLocal(j.Dir):
		return usage.Errorf("working directory %q: with a workspace, a directory in it", j.Dir)
	case j.Workspace != "" && (j.WorkspaceLimit < 0 || j.WorkspaceLimit > workspace.MaxLimit):
		return usage.Errorf("workspace limit %d: at most %s", j.WorkspaceLimit, workspace.Size(workspace.MaxLimit))
	}
	for _, check := range []func() error{
		j.Resources.check, j.Ranks.check, j.Restarts.check, j.checkGroups, j.Stopping.check, j.Health.check, j.Output.check, j.Network.check,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	switch simulate, c := j.Resources.Simulate, j.Cluster; {
	case j.SetAsidePartial && !slices.Contains([]job.Restart{job.RestartJob, job.RestartNever}, job.Restart(j.Restarts.Policy)), j.SetAsidePartial && j.Restarts.ReplicaGroups > 0:
		return usage.Errorf("partial checkpoints are set aside when no rank of the job runs, and some go on at a restart of this job; leave out --set-aside-partial")
	case j.Health.InProcessRestart > 0 && (j.Ranks.Store == storeRank0 || j.Restarts.TolerateLostRanks > 0):
		return usage.Errorf("ranks that restart within their processes wait for all ranks, which agree in golaunch's store; leave out --store rank0 and --tolerate-lost-ranks")
	case simulate && j.Network.Rendezvous != "":
		return usage.Errorf("a simulated job has all its nodes on this machine; leave out the rendezvous")
	case c.Coordinator != "" && (simulate || j.Network.Rendezvous != ""):
		return usage.Errorf("a job runs on a cluster (coordinator) or on nodes of its own (rendezvous, simulate); give one of them")
	case c.Coordinator == "" && (c.Detached || c.Within != "" || len(c.GPUs) > 0 || c.Backfill || c.Priority != ""):
		return usage.Errorf("detach, within, gpu ids, backfill and priority are for a cluster; give its coordinator")
	case c.Priority != "" && !slices.Contains(cluster.Priorities, cluster.Priority(c.Priority)):
		return usage.Errorf("priority %q: production, interactive or batch", c.Priority)
	case c.Priority != "" && c.Within != "":
		return usage.Errorf("priority: reservation %s has one, and the jobs within it have none", c.Within)
	case j.Network.PortRange != "" && len(j.listeners()) > j.Network.ports().Size():
		return usage.Errorf("port range %s has %d ports, and a node of this job may listen on %d: %s; give at least as many",
			j.Network.PortRange, j.Network.ports().Size(), len(j.listeners()), strings.Join(j.listeners(), ", "))
	case j.Resources.PerGPU > 1 && j.Ranks.Visibility != rankenv.SeeOwn:
		return usage.Errorf("gpu visibility %q: of ranks that share a GPU, each sees only that one, as cuda:0; leave it out", j.Ranks.Visibility)
	case j.Resources.OwnGPUs != "" && (c.Coordinator != "" || simulate):
		return usage.Errorf("gpu ids: these nodes have no GPUs of this machine to choose from")
	}
	return nil
}

func (r Resources) check() error {
	switch {
	case r.PlacementTimeout < 0:
		return usage.Errorf("placement timeout %s: at least 0", r.PlacementTimeout)
	case r.Spares < 0 || r.Spares > maxSpares:
		return usage.Errorf("spares %d: 0 to %d", r.Spares, maxSpares)
	case r.PerGPU > 0 && !r.GPU:
		return usage.Errorf("gpus per rank: these ranks have no GPUs; give --gpus-per-node")
	case r.OwnGPUs != "" && !r.GPU:
		return usage.Errorf("gpu ids are for ranks with a GPU each; give --gpus-per-node")
	}
	if err := r.request().Validate(); err != nil {
		return usage.Errorf("%v", err)
	}
	return nil
}

// maxSpares bounds the spares. One machine cannot simulate that many.
const maxSpares = 1 << 16

func (r Ranks) check() error {
	switch {
	case r.Visibility != rankenv.SeeJob && r.Visibility != rankenv.SeeOwn:
		return usage.Errorf("gpu visibility %q: job or own", r.Visibility)
	case !slices.Contains(bind.Policies, bind.Policy(r.Bind)):
		return usage.Errorf("bind %q: auto, none, numa, socket, l3 or core", r.Bind)
	case r.MasterPort < 0 || r.MasterPort > 65535:
		return usage.Errorf("master port %d: 0 (a free one) to 65535", r.MasterPort)
	case r.Store != storeGolaunch && r.Store != storeProxy && r.Store != storeRank0:
		return usage.Errorf("store %q: golaunch, proxy or rank0", r.Store)
	case r.Inspector != "" && !filepath.IsAbs(r.Inspector):
		return usage.Errorf("NCCL inspector %q: an absolute path, for each node", r.Inspector)
	}
	if err := r.checkPreload(); err != nil {
		return err
	}
	if _, err := nccl.Vars(r.Preset, nccl.Agreement{}, nccl.Facts{}); err != nil {
		return usage.Errorf("%v", err)
	}
	return nil
}

// modules matches names of modules that Python can import.
var modules = lazyregexp.New(`^[\pL_][\pL\pN_]*(\.[\pL_][\pL\pN_]*)*$`)

// preload returns the modules of Preload: nil if Preload is empty, and an empty list if it is
// "none".
func (r Ranks) preload() []string {
	switch r.Preload {
	case "":
		return nil
	case preloadNone:
		return []string{}
	default:
		return strings.Split(r.Preload, ",")
	}
}

func (r Ranks) checkPreload() error {
	for _, module := range r.preload() {
		if !modules.Get().MatchString(module) || module == agent.AutoPreload && r.Preload != module {
			return usage.Errorf("preload %q: names of Python modules with commas between, such as torch,transformers, or auto, or none", r.Preload)
		}
	}
	return nil
}

// local returns how many ranks each node runs; 0 if that number differs between nodes, or is
// unknown before placement.
func (j Job) local() int {
	if per := j.Resources.PerNode; len(per) == 1 && per[0] != placement.AllGPUs {
		return per[0]
	}
	return j.Resources.Slots
}

// preloadNone is the value of Ranks.Preload that imports nothing.
const preloadNone = "none"

// The values of Ranks.Store.
const (
	storeGolaunch = "golaunch"
	storeProxy    = "proxy"
	storeRank0    = "rank0"
)

// checkGroups refuses a job that cannot be divided into its replica groups.
func (j Job) checkGroups() error {
	groups, r, total := j.Restarts.ReplicaGroups, j.Resources, 0
	for _, n := range r.PerNode {
		total += n
	}
	if len(r.PerNode) == 1 {
		total *= r.MaxNodes
	}
	switch {
	case groups == 0:
		return nil
	case r.MinNodes != r.MaxNodes:
		return usage.Errorf("nodes %d:%d: replica groups need a fixed number of nodes", r.MinNodes, r.MaxNodes)
	case total > 0 && total%groups != 0:
		return usage.Errorf("%d ranks do not divide into %d replica groups", total, groups)
	case j.Ranks.MasterPort != 0 && groups > 1:
		return usage.Errorf("master port %d: each replica group has a store and a port of its own; leave it out", j.Ranks.MasterPort)
	}
	return nil
}

func (r Restarts) check() error {
	switch {
	case !slices.Contains([]job.Restart{job.RestartJob, job.RestartNode, job.RestartRank, job.RestartNever}, job.Restart(r.Policy)):
		return usage.Errorf("restart %q: job, node, rank or never", r.Policy)
	case r.ReplicaGroups < 0 || r.ReplicaGroups > job.MaxGroups:
		return usage.Errorf("replica groups %d: 1 to %d, or 0 for none", r.ReplicaGroups, job.MaxGroups)
	case r.MinGroups < 0 || r.MinGroups > r.ReplicaGroups:
		return usage.Errorf("min groups %d: 1 to the number of replica groups, %d", r.MinGroups, r.ReplicaGroups)
	case r.ReplicaGroups > 0 && r.Policy != string(job.RestartJob):
		return usage.Errorf("restart %q: replica groups restart one by one; leave it out", r.Policy)
	case r.TolerateLostRanks < 0:
		return usage.Errorf("tolerate lost ranks %d: at least 0", r.TolerateLostRanks)
	case r.TolerateLostRanks > 0 && r.ReplicaGroups > 0:
		return usage.Errorf("tolerate lost ranks %d: of replica groups, some may be lost with min groups; leave one out", r.TolerateLostRanks)
	case r.TolerateLostRanks > 0 && r.Policy != string(job.RestartJob) && r.Policy != string(job.RestartNever):
		return usage.Errorf("tolerate lost ranks %d: ranks restart together then; leave restart %q out", r.TolerateLostRanks, r.Policy)
	case r.Max < 0:
		return usage.Errorf("max restarts %d: at least 0", r.Max)
	case r.RefillAfter < 0:
		return usage.Errorf("restarts back after %s: at least 0", r.RefillAfter)
	case r.BackoffMin < 0 || r.BackoffMax < r.BackoffMin:
		return usage.Errorf("backoff %s:%s: the first wait is at least 0 and at most the bound", r.BackoffMin, r.BackoffMax)
	}
	for ending, code := range r.ExitCodes {
		if code < 1 || code > 255 || !slices.Contains(report.Unsuccessful(), ending) {
			return usage.Errorf("exit code of %s=%d: 1 to 255, for one of %s", ending, code, report.Unsuccessful())
		}
	}
	return nil
}

func (s Stopping) check() error {
	switch {
	case s.DrainTime < 0:
		return usage.Errorf("drain time %s: at least 0", s.DrainTime)
	case s.Spot != "" && !slices.Contains(spot.Clouds, s.Spot):
		return usage.Errorf("spot notices of %q: %s", s.Spot, strings.Join(spot.Clouds, ", "))
	case s.NoticeSignal != 0 && !signals.ForRanks(s.NoticeSignal):
		return usage.Errorf("notice signal %s: SIGUSR1 or SIGUSR2", signals.Name(s.NoticeSignal))
	case s.StopSignal != 0 && !slices.Contains(stopSignals, s.StopSignal):
		return usage.Errorf("stop signal %s: SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1 or SIGUSR2", signals.Name(s.StopSignal))
	case s.Linger < 0:
		return usage.Errorf("linger %s: at least 0", s.Linger)
	}
	return nil
}

// stopSignals are the signals that StopSignal may be.
var stopSignals = []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2}

func (h Health) check() error {
	if err := preflight.Check(h.Preflight); err != nil {
		return err
	}
	switch {
	case h.HangTimeout != 0 && h.HangTimeout < time.Second:
		return usage.Errorf("hang timeout %s: at least 1s, or 0 for none", h.HangTimeout)
	case h.ExcludeAfter < 0 || h.ExcludeFor < 0:
		return usage.Errorf("exclude after %d failures for %s: at least 0, and for some time", h.ExcludeAfter, h.ExcludeFor)
	case h.Bundle != "on" && h.Bundle != "off":
		return usage.Errorf("bundle %q: on or off", h.Bundle)
	case h.InProcessRestart < 0 || h.InProcessRestart > 0 && h.InProcessRestart < time.Second:
		return usage.Errorf("in-process restart within %s: at least 1s, or 0 for none", h.InProcessRestart)
	case h.InProcessRestart > 0 && h.RankMonitor != "":
		return usage.Errorf("both a rank monitor and in-process restarts: ranks speak one of the two protocols")
	case h.RankMonitor != "":
		if err := agent.CheckRankMonitor(h.RankMonitor); err != nil {
			return usage.Errorf("rank monitor: %v", err)
		}
	}
	return nil
}

func (o Output) check() error {
	switch {
	case o.LogLimit < 0:
		return usage.Errorf("log limit %d bytes: at least 0", o.LogLimit)
	case !slices.Contains([]string{"", "auto", "on", "off"}, o.Fold):
		return usage.Errorf("fold %q: auto, on or off", o.Fold)
	}
	if err := (*torchoutput.Output)(o.Torch).Validate(); err != nil {
		return usage.Errorf("%v", err)
	}
	return nil
}

func (n Network) check() error {
	switch {
	case n.Scheduler != "" && n.Scheduler != noScheduler:
		return usage.Errorf("scheduler %q: none, or nothing", n.Scheduler)
	case n.Lease < time.Second:
		return usage.Errorf("lease %s: at least 1s", n.Lease)
	}
	_, err := portRange(n.PortRange)
	return err
}

func validID(s string) bool {
	return wire.ValidName(s) && len(s) <= wire.MaxID && s[0] != '_'
}

func portRange(text string) (ports.Range, error) {
	r, err := ports.Parse(text)
	if err != nil {
		return r, usage.Errorf("%v", err)
	}
	return r, nil
}

// ports returns the parsed PortRange.
func (n Network) ports() ports.Range {
	r, _ := portRange(n.PortRange) // complete has refused invalid ranges
	return r
}

// coordinatorPort returns the port of a coordinator whose address names none.
func coordinatorPort(r ports.Range) int { return cmp.Or(r.First, DefaultPort) }

// listeners names everything that may listen at the same time on one node, with a port of the
// range. It describes the node with the most listeners.
func (j Job) listeners() (on []string) {
	_, _, portless := net.SplitHostPort(j.Network.Rendezvous)
	switch p := j.place; {
	case j.Cluster.Coordinator != "" || j.Resources.Simulate:
	case len(j.Network.Hosts) > 0, j.Network.Rendezvous != "" && portless != nil:
		on = append(on, "the coordinator")
	case p != nil && p.Nodes > 1 && p.Port == 0 && j.Network.Rendezvous == "":
		on = append(on, "the coordinator", "the door where nodes ask for it")
	}
	if j.Ranks.MasterPort == 0 {
		on = append(on, "the store at MASTER_PORT")
	}
	if j.Workspace != "" && (j.Cluster.Coordinator != "" || j.started() > 1) && !j.Resources.Simulate {
		on = append(on, "the workspace for other nodes")
	}
	if j.Ranks.Endpoint {
		on = append(on, "the endpoint of a controller")
	}
	return on
}
