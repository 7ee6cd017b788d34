package launcher

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/golaunch/golaunch/agent"
	"github.com/golaunch/golaunch/internal/host/health"
	"github.com/golaunch/golaunch/internal/process/logs"
	"github.com/golaunch/golaunch/internal/process/proc"
	"github.com/golaunch/golaunch/internal/wire/jsonout"
	"github.com/golaunch/golaunch/internal/wire/mtls"
	"github.com/golaunch/golaunch/internal/wire/session"
	"github.com/golaunch/golaunch/internal/wire/workspace"
	"github.com/golaunch/golaunch/launcher/internal/address"
	"github.com/golaunch/golaunch/launcher/internal/jobdir"
	"github.com/golaunch/golaunch/launcher/internal/preflight"
	"github.com/golaunch/golaunch/launcher/internal/progress"
	"github.com/golaunch/golaunch/launcher/internal/reporter"
	"github.com/golaunch/golaunch/launcher/internal/role"
	"github.com/golaunch/golaunch/launcher/internal/signals"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rendezvous"
)

// unleased is the lease of an agent in the coordinator's own process, where neither can lose the
// other. It is so long that the ranks stay alive when the process is stopped (^Z), or when its
// machine is paused.
const unleased = 10 * 365 * 24 * time.Hour

// leaseParts divides a lease. An agent keeps its ranks for the time silence without a word from the
// coordinator, and then has the time kill to end them. kill includes a quarter of a second for a
// busy machine. The coordinator counts the node as lost only after both times.
func leaseParts(lease time.Duration) (silence, kill time.Duration) {
	return lease - lease/10, lease/10 + 250*time.Millisecond
}

// localRun is this process's part in a job.
type localRun struct {
	job Job
	*reporter.Reporter
	files   *jobdir.Run
	process *role.Process
	signals *signals.Merged
	// done is closed when the job has ended here.
	done chan struct{}
	// filesOnNodes says that the ranks' files are on the nodes and not on this machine.
	filesOnNodes bool
	// cluster is the coordinator of the cluster that runs the job, if one does.
	cluster string
	// slurmGPUs and nobodyHint are the values of the fields of role.Nodes.
	slurmGPUs  int
	nobodyHint string
	// archive is the job's workspace, which the process that begins the job packs.
	archive *workspace.Archive
}

func newLocalRun(j Job) *localRun {
	l := &localRun{job: j, process: &role.Process{}, done: make(chan struct{}), archive: new(workspace.Archive)}
	l.Reporter = reporter.New(j.Output.console(), j.Output.JSON, j.Output.Quiet)
	l.signals = signals.Merge(j.Stopping.Signals, j.Stopping.Stops, l.done)
	l.job.Stopping.Signals = l.signals.C
	l.files = &jobdir.Run{Chosen: j.Output.LogDir, ID: logs.NewRun(), Name: j.dirName, Warn: l.Warn}
	return l
}

// role fills in the fields of process from the job, and returns process.
func (l *localRun) role() *role.Process {
	j, p := l.job, l.process
	silence, kill := leaseParts(j.Network.Lease)
	s := j.submission()
	s.LastCall = max(0, j.Resources.LastCall)
	s.Workspace = l.archive.Workspace
	p.Coordinator = rendezvous.Config{
		Job: &s, Facts: j.facts(), HasID: j.hasID, Lease: silence, KillTime: kill, Warn: l.Warn, Note: l.Note,
		StartedTogether: j.startedTogether(), AllNodes: j.allNodesKnown(), Nodes: j.started(), Workspaces: jobdir.WorkspacesDir(),
	}
	p.Agent = agent.Agent{
		Standalone: j.Stopping.Standalone, Grace: max(0, j.Stopping.Grace), Say: l.Note, Warn: l.Warn,
		Workspaces: agent.Workspaces{Dir: jobdir.WorkspacesDir()},
		Open:       func(id string, _ agent.Assignment, at netip.Addr) (agent.Work, error) { return l.agentWork(id, at) },
	}
	p.Signals = role.Signals{
		Merged: l.signals, Done: l.done, ReachRanks: j.place.RanksHear(), ReachNodes: j.nodesHear(), EndJob: j.nodesHear() && j.fixedNodes(),
		DrainTime: j.Stopping.DrainTime, InSlurm: j.place.Slurm(), First: j.place != nil && j.place.Node == 0, Spot: j.Stopping.Spot,
	}
	p.Nodes = role.Nodes{
		Wanted: max(j.Resources.MaxNodes, j.pool()), SlurmGPUs: l.slurmGPUs, NobodyHint: l.nobodyHint,
		RefuseUnfit: j.Health.Preflight == preflight.Fail,
	}
	p.Files, p.Named, p.JoinTimeout = l.files, j.Network.Name != "", j.Resources.PlacementTimeout
	p.Observe = l.observe
	p.Progress = func(ctx context.Context) func(report.Ending) { return l.followProgress(ctx, seriesHere(j.ID)).End }
	return p
}

// examinedNode returns this machine as a node, with the findings of preflight. alone says that no
// other process cleans up after this one; preflight then also checks that this process can use a
// cgroup.
func (l *localRun) examinedNode(ctx context.Context, alone bool) (placement.Node, error) {
	node, devices, err := l.job.thisNode(ctx)
	if err == nil {
		system := health.ThisMachine(l.job.Output.LogDir)
		if alone {
			system.Holds = proc.Holds
		}
		preflight.Examine(ctx, l.job.Health.Preflight, &node, l.job.Resources.GPU, devices, system)
	}
	return node, err
}

func (l *localRun) pack() error {
	archive, err := jobdir.Pack(l.job.Workspace, l.job.WorkspaceLimit)
	if err == nil {
		l.archive = archive
	}
	return err
}

// agentWork returns what the ranks of the job run on this node, whose address is at, and where
// their output goes.
func (l *localRun) agentWork(id string, at netip.Addr) (agent.Work, error) {
	if err := l.files.GiveUp(id); err != nil { // first, so that the directory is removed even if task fails
		return agent.Work{}, err
	}
	task, err := l.job.task(at, os.Environ())
	if err == nil {
		err = l.files.Open(id)
	}
	if err == nil && l.job.Workspace != "" {
		_, err = jobdir.Base("") // this makes the directory that contains WorkspacesDir
	}
	if err != nil {
		return agent.Work{}, err
	}
	return agent.Work{Task: task, Output: agent.Output{Dir: l.files.Dir(), Of: l.job.outputOf(l.Console, l.Warn)}}, nil
}

// nodesHear reports whether the other nodes, or the ranks, get the signals of this process too,
// because a scheduler started them all.
func (j Job) nodesHear() bool {
	return j.place.RanksHear() || j.place != nil && j.place.Each && j.Network.Rendezvous == ""
}

// member returns a node as a member of the job. target, HOST:PORT, is the address of its
// coordinator. The name HOST need not resolve yet.
func (l *localRun) member(node placement.Node, target string, token mtls.Token) role.Member {
	m := role.Member{Options: session.Options{
		Node: node, Target: target, TLS: mtls.Client(token, l.identity(node)), Dial: address.Dialer(target),
	}}
	if l.job.Workspace != "" && l.job.started() > 1 {
		m.Server = mtls.Server(token, l.identity(node))
	}
	return m
}

func (l *localRun) identity(node placement.Node) mtls.Identity {
	return mtls.Identity{Node: node.Name, Job: l.job.ID}
}

// candidate returns this node as a candidate in elections. listens is this node's address if this
// node listens where the nodes meet. home is the HOST:PORT where they meet if that is another node.
// Both are empty if the nodes meet only once. A job on one or two nodes has no candidates, because
// no majority is left when it loses a node.
func (l *localRun) candidate(node placement.Node, token mtls.Token, listens, home string) *rendezvous.Candidate {
	if l.job.Resources.MaxNodes+l.job.Resources.Spares < 3 {
		return nil
	}
	id := l.identity(node)
	silence, _ := leaseParts(l.job.Network.Lease)
	return rendezvous.NewCandidate(rendezvous.CandidateConfig{
		Listen: func(at netip.Addr) (net.Listener, error) {
			return l.job.Network.ports().Listen(context.Background(), at.String())
		},
		Node: node.Name, Addr: listens, Home: home, Lease: silence, Server: mtls.Server(token, id), Client: mtls.Client(token, id), Warn: l.Warn,
	})
}

func (l *localRun) followProgress(ctx context.Context, ask progress.Samples) *progress.Follower {
	return progress.Follow(ctx, l.Reporter, l.job.Output.Torch == nil, ask)
}

// observe passes a decision to the job's Observe, or prints the decision.
func (l *localRun) observe(d report.Decision) {
	if l.job.Output.Observe != nil {
		l.job.Output.Observe(d)
		return
	}
	l.Decision(d.At, d.Reason, d.News)
}

// evidence names the logs and other files that show why the job failed.
func (l *localRun) evidence(r report.Result, logs string) string {
	if r.Cause == nil || l.files.Dir() == nil || logs == "" {
		return logs
	}
	bundle := l.bundle(r)
	switch here := logs == l.files.Path(); {
	case !here && bundle != "":
		return logs + "; " + bundle + " has the evidence"
	case !here:
		return logs
	case bundle != "":
		return logs + " (golaunch explain has the rest, " + filepath.Base(bundle) + " the evidence)"
	}
	return logs + " (golaunch explain has the rest)"
}

// bundle returns the path of a failure bundle on this machine: that of the failed rank's node if it
// is here, or else another node's; empty if there is none.
func (l *localRun) bundle(r report.Result) string {
	dir := l.files.Dir()
	if dir.Root() == nil {
		return ""
	}
	names, err := dir.Root().Glob(fmt.Sprintf("bundle-*-attempt-%d.tar.gz", r.Cause.Attempt))
	if err != nil || len(names) == 0 {
		return ""
	}
	i := slices.IndexFunc(names, func(name string) bool { return strings.HasPrefix(name, "bundle-"+r.Cause.Node+"-") })
	return filepath.Join(dir.Path(), names[max(i, 0)])
}

// printError prints the error of a node's process that could not report it to a coordinator.
func (j Job) printError(err error) {
	if j.Output.JSON {
		fmt.Fprintf(os.Stderr, "%s", jsonout.Words{Warning: err.Error()}.Bytes())
		return
	}
	fmt.Fprintln(os.Stderr, "golaunch:", err)
}
