// Package launcher runs distributed jobs from Go programs: describe a [Job], see with [Plan] where
// its ranks would run, and [Run] it. [Connect] reaches a cluster that jobs share. A cluster is a
// [Coordinator] with [Agent]s.
//
//	result, err := launcher.Run(ctx, launcher.Job{
//		Command:   []string{"python3", "train.py"},
//		Resources: launcher.Resources{PerNode: []int{4}},
//	})
//
// When Run returns, no process of the job is left on any node. Cancelling ctx stops the job in
// order.
package launcher

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/golaunch/golaunch/agent"
	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/replica"
	"github.com/golaunch/golaunch/internal/host/gpu"
	"github.com/golaunch/golaunch/internal/process/console"
	"github.com/golaunch/golaunch/internal/process/logs"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/launcher/internal/address"
	"github.com/golaunch/golaunch/launcher/internal/machine"
	"github.com/golaunch/golaunch/launcher/internal/pod"
	"github.com/golaunch/golaunch/launcher/internal/schedenv"
	"github.com/golaunch/golaunch/launcher/internal/torchoutput"
	"github.com/golaunch/golaunch/launcher/internal/usage"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// Job is one command, what it runs on, and what happens when it fails. Only Command has no default.
// For a value that makes no sense, Run and Plan return an ErrUsage.
type Job struct {
	// ID names the job in logs and in the ranks' TORCHELASTIC_RUN_ID: at most 64 letters, digits,
	// '.', '_' and '-'; when it is empty, golaunch chooses an ID.
	ID string `json:"ID"`
	// Command is the program and its arguments; no shell reads it.
	Command []string `json:"Command"`
	// Dir is the working directory of the ranks; the caller's own when empty.
	Dir string `json:"Dir"`
	// Env has NAME=value for every rank, with precedence over all other sources. An entry NAME
	// takes the value from the caller's environment.
	Env []string `json:"Env"`

	Resources Resources `json:"Resources"` // nodes, ranks and GPUs, and how long to wait for them
	Ranks     Ranks     `json:"Ranks"`     // what a rank finds around it: variables, GPUs, CPUs, the store
	Restarts  Restarts  `json:"Restarts"`  // what happens when a rank fails
	Stopping  Stopping  `json:"Stopping"`  // what stops the job, and how its ranks learn of it
	Health    Health    `json:"Health"`    // what to do about nodes and ranks that are not well
	Output    Output    `json:"Output"`    // where output and logs go
	Network   Network   `json:"Network"`   // where the nodes are, and how they meet
	Cluster   Cluster   `json:"Cluster"`   // a cluster that runs the job instead of this process

	// Workspace is a directory that travels to the nodes of the job; none when empty. It is packed
	// when the job begins, without the files that .gitignore and .rayignore name. On each node the
	// ranks run in a copy of it, in Dir, which is relative to the copy (docs/workspace.md). A
	// directory that cannot travel is an ErrUsage.
	Workspace string `json:"Workspace"`
	// WorkspaceLimit bounds the files of Workspace, in bytes; DefaultWorkspaceLimit when 0.
	WorkspaceLimit int64 `json:"WorkspaceLimit"`
	// CheckpointDir is where the ranks write checkpoints, relative to their working directory. When
	// empty, golaunch looks for the directory among the files that the ranks have open
	// (docs/checkpoints.md).
	CheckpointDir string `json:"CheckpointDir"`
	// SetAsidePartial renames the newest checkpoint to partial/NAME before the ranks start, if it is
	// partial and the program would load it.
	SetAsidePartial bool `json:"SetAsidePartial"`

	// place has what a scheduler has given to this process. hasID says that the user chose the ID.
	// ruleText is the text of the file FailureRules.
	place    *schedenv.Place
	hasID    bool
	ruleText string
}

var (
	// ErrUsage marks errors in a Job, or in a request, that the caller must correct.
	ErrUsage = usage.Kind()
	// ErrNotThere marks errors about a job or node that the cluster does not have.
	ErrNotThere = errors.New("it is not there")
	// ErrNoCoordinator says that no coordinator was named, and none runs on this machine.
	ErrNoCoordinator = errors.New("no coordinator runs on this machine; start one (golaunch coordinator), or name one (--coordinator HOST:PORT)")
)

// submission returns the parts of the job that the coordinator needs.
func (j Job) submission() replica.Submission {
	return replica.Submission{
		Title:            strings.Join(j.Command, " "),
		PlacementTimeout: j.Resources.PlacementTimeout, BackoffMin: j.Restarts.BackoffMin, BackoffMax: j.Restarts.BackoffMax,
		Spec: cluster.Spec{Job: job.Spec{
			ID: j.ID, Request: j.Resources.request(), Grace: max(0, j.Stopping.Grace),
			Restart: j.Restarts.policy(), Groups: j.Restarts.ReplicaGroups, MinGroups: j.Restarts.MinGroups, LostRanks: j.Restarts.TolerateLostRanks, MaxRestarts: j.Restarts.Max, RefillAfter: j.Restarts.RefillAfter,
			ExcludeAfter: j.Health.ExcludeAfter, ExcludeFor: j.Health.ExcludeFor, Rules: j.ruleText, ExitCodes: j.Restarts.ExitCodes,
			GrowAfter: max(0, j.Resources.GrowAfter), DrainTime: j.Stopping.DrainTime,
			FixedPool: j.fixedNodes(), Pool: j.pool(),
		}},
	}
}

// pool returns how many nodes can ever join the job; 0 if there is no limit.
func (j Job) pool() int {
	switch {
	case j.Resources.Simulate:
		return j.Resources.MaxNodes + j.Resources.Spares
	case len(j.Network.Hosts) > 0:
		return len(j.Network.Hosts)
	case j.fixedNodes() && j.place != nil:
		return j.place.Nodes
	}
	return 0
}

// startedTogether returns how many nodes a scheduler started at once, each with this command. It
// returns 0 if no scheduler did so.
func (j Job) startedTogether() int {
	if j.place != nil && j.place.Each && j.fixedNodes() {
		return j.place.Nodes
	}
	return 0
}

// started returns how many nodes start for the job, spares included.
func (j Job) started() int {
	return cmp.Or(j.startedTogether(), j.Resources.MaxNodes+j.Resources.Spares)
}

// fixedNodes reports whether all nodes of the job start together. Otherwise nodes can join later,
// for instance pods with which Kubernetes replaces others.
func (j Job) fixedNodes() bool {
	return j.Network.Rendezvous == "" && (j.place == nil || j.place.Port == 0)
}

// allNodesKnown returns how many nodes the job has, if Kubernetes restarts its pods one by one. An
// earlier node 0 may then have led the job already. It returns 0 for other jobs, and for a job that
// waits for all nodes anyway.
func (j Job) allNodesKnown() int {
	r, all := j.Resources, j.Resources.MaxNodes+j.Resources.Spares
	if !pod.Inside() || j.fixedNodes() || r.MinNodes == all || r.MinNodes < r.MaxNodes && j.Resources.LastCall > j.Network.Lease {
		return 0
	}
	return all
}

// machine returns what the job wants of this machine as a node.
func (j Job) machine() machine.Wanted {
	w := machine.Wanted{Name: j.Network.Name, Address: j.Network.Address, Interface: j.Network.Interface, OwnGPUs: j.Resources.OwnGPUs, Labels: j.labels()}
	if j.place != nil {
		w.GivenGPUs = j.place.GPUs
	}
	return w
}

// thisNode returns this machine as a node. If the job wants GPUs, the node has GPUs, and thisNode
// also returns all devices that the driver shows.
func (j Job) thisNode(ctx context.Context) (placement.Node, []gpu.Device, error) {
	if j.Resources.GPU {
		return j.machine().WithGPUs(ctx)
	}
	node, err := j.machine().Bare()
	return node, nil, err
}

// labels returns the labels of this node by which the job is placed; nil if there are none.
func (j Job) labels() map[string]string {
	labels := map[string]string{}
	if j.place != nil && j.place.Topology != "" {
		labels[placement.TopologyLabel] = j.place.Topology
	}
	if j.Resources.Slots > 0 {
		labels[placement.SlotsLabel] = strconv.Itoa(j.Resources.Slots)
	}
	if j.Output.Torch != nil && j.Resources.MaxNodes > 1 { // under torchrun, nodes may have different roles
		labels[placement.RoleLabel] = j.Ranks.Role
	}
	if r := j.Resources; r.MaxNodes+r.Spares > 1 {
		if machine := address.MachineID(); machine != "" {
			labels[placement.MachineLabel] = machine
		}
		switch {
		case j.Network.Name != "":
		case j.Output.Torch != nil:
			labels[wire.RenamesLabel] = wire.RenamesAlways
		default: // a second node with this machine's name, on this machine, is a mistake
			labels[wire.RenamesLabel] = wire.RenamesElsewhere
		}
	}
	if len(labels) == 0 {
		return nil
	}
	return labels
}

// facts returns the values that must be the same on every node, by the names of their flags.
func (j Job) facts() map[string]string {
	facts := map[string]string{
		"command":             short(fmt.Sprintf("%q", j.Command)),
		"--nodes":             fmt.Sprintf("%d:%d", j.Resources.MinNodes, j.Resources.MaxNodes),
		"ranks per node":      short(fmt.Sprint(j.Resources.PerNode)),
		"GPU ranks":           fmt.Sprint(j.Resources.GPU),
		"--gpus-per-rank":     fmt.Sprintf("1/%d", max(1, j.Resources.PerGPU)),
		"--strategy":          string(j.Resources.Strategy),
		"--order":             short(fmt.Sprint(j.Resources.Order)),
		"--restart":           fmt.Sprintf("%s, --tolerate-lost-ranks %d", j.Restarts.Policy, j.Restarts.TolerateLostRanks),
		"--max-restarts":      j.Restarts.budget(),
		"--replica-groups":    fmt.Sprintf("%d, --min-groups %d", j.Restarts.ReplicaGroups, j.Restarts.MinGroups),
		"--exclude-after":     fmt.Sprintf("%d/%v", j.Health.ExcludeAfter, j.Health.ExcludeFor),
		"--grow-after":        max(0, j.Resources.GrowAfter).String(),
		"--exit-codes":        fmt.Sprint(j.Restarts.ExitCodes),
		"--grace":             max(0, j.Stopping.Grace).String(),
		"--master-port":       fmt.Sprint(j.Ranks.MasterPort),
		"--store":             j.Ranks.Store,
		"--env-preset":        j.Ranks.Preset,
		"--gpu-visibility":    string(j.Ranks.Visibility),
		"--bind":              j.Ranks.Bind,
		"--strict":            fmt.Sprint(j.Ranks.Strict),
		"--preload":           short(j.Ranks.Preload),
		"--preload-strict":    fmt.Sprint(j.Ranks.PreloadStrict),
		"--preflight":         j.Health.Preflight,
		"--hang-timeout":      j.Health.HangTimeout.String(),
		"--rank-monitor":      short(j.Health.RankMonitor),
		"--inprocess-restart": j.Health.InProcessRestart.String(),
		"--bundle":            j.Health.Bundle,
		"--checkpoint-dir":    j.CheckpointDir,
		"--set-aside-partial": fmt.Sprint(j.SetAsidePartial),
		"--lease":             j.Network.Lease.String(),
		"--keep-env":          fmt.Sprint(j.Ranks.KeepEnv),
		"--workspace":         short(j.Workspace),
		"--role":              j.Ranks.Role,
	}
	if j.Output.Torch != nil {
		delete(facts, "command") // under torchrun, each node may have arguments of its own
		delete(facts, "--role")  // and a role of its own
	}
	for _, kv := range j.Env {
		name, value, _ := strings.Cut(kv, "=")
		sum := sha256.Sum256([]byte(value)) // as a hash, since an error may print facts, and a value may be a secret
		facts["--env "+name] = fmt.Sprintf("a value with hash %x", sum[:4])
	}
	return facts
}

// maxFact bounds a fact, in bytes: a command may have megabytes, but all facts go into one message.
const maxFact = 1 << 10

// short shortens a text to maxFact. It makes different texts into different texts.
func short(text string) string {
	if len(text) <= maxFact {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return fmt.Sprintf("%s... (%d bytes with hash %x)", strings.ToValidUTF8(text[:maxFact/2], ""), len(text), sum[:8])
}

// prefixed reports whether each line gets a prefix in a job with this world size.
func (o Output) prefixed(worldSize int) bool {
	if o.Prefix != nil {
		return *o.Prefix
	}
	return worldSize > 1
}

// policy translates the field Policy.
func (r Restarts) policy() job.Restart {
	if r.ReplicaGroups > 0 {
		return job.RestartGroup
	}
	return job.Restart(r.Policy)
}

// budget returns the text of --max-restarts for these values.
func (r Restarts) budget() string {
	if r.RefillAfter == 0 {
		return strconv.Itoa(r.Max)
	}
	return fmt.Sprintf("%d/%v", r.Max, r.RefillAfter)
}

// outputOf returns a function that says how to keep a rank's output, and how to show it. A nil
// console shows nothing.
func (j Job) outputOf(console *console.Console, warn func(error)) func(agent.Speaker) logs.RankOptions {
	return func(s agent.Speaker) logs.RankOptions {
		o := logs.RankOptions{Node: s.Node, Rank: s.Rank, Attempt: s.Attempt, Limit: j.Output.LogLimit, Warn: warn, Alone: s.WorldSize == 1}
		if len(j.Output.Ranks) == 0 || slices.ContainsFunc(j.Output.Ranks, func(shown report.Span) bool { return shown.From <= s.Rank && s.Rank <= shown.To }) {
			o.Console = console
		}
		switch {
		case j.Output.Torch != nil:
			(*torchoutput.Output)(j.Output.Torch).Apply(s, j.Ranks.Role, &o)
		case j.Output.prefixed(s.WorldSize):
			o.Prefix = fmt.Sprintf("[r%d %s] ", s.Rank, s.Node)
		}
		return o
	}
}

// dirName returns the name of the job's log directory. Under torchrun it adds random letters,
// because IDs are not unique there: all jobs of a user may have the ID "none".
func (j Job) dirName(id string) string {
	if j.Output.Torch == nil {
		return id
	}
	return id + "_" + strings.ToLower(rand.Text()[:8])
}

// foldAbove is the largest number of ranks whose lines are not folded if Fold is "auto".
const foldAbove = 8

// console returns a console that shows the output on Stdout and Stderr.
func (o Output) console() *console.Console {
	c := console.New(o.Stdout, o.Stderr)
	switch {
	case o.Torch != nil:
	case o.Fold == "on":
		c.Fold(1)
	case o.Fold != "off" && c.IsTerminal():
		c.Fold(foldAbove)
	}
	return c
}
