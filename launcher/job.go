// Package launcher runs distributed jobs from Go programs: describe a [Job], see where its ranks would run with [Plan], and [Run] it.
// [Connect] reaches a cluster that jobs share, which a [Coordinator] and [Agent]s make.
//
//	result, err := launcher.Run(ctx, launcher.Job{
//		Command:   []string{"python3", "train.py"},
//		Resources: launcher.Resources{PerNode: []int{4}},
//	})
//
// When Run returns, no process of the job is left on any node; cancelling ctx stops it in order first.
package launcher

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/replica"
	"github.com/golaunch/golaunch/launcher/internal/pod"
	"github.com/golaunch/golaunch/launcher/internal/schedenv"
	"github.com/golaunch/golaunch/launcher/internal/usage"
	"github.com/golaunch/golaunch/launcher/report"
)

// Job is one command, what it runs on and what is done when it fails. Only Command has no default: the zero value of every other field is
// one that will do. A field that makes no sense is an ErrUsage of Run and Plan.
type Job struct {
	// ID names the job in logs and in the ranks' TORCHELASTIC_RUN_ID; made up when empty. Letters, digits, '.', '_' and '-', 64 at most.
	ID string
	// Command is the program and its arguments; no shell reads it.
	Command []string
	// Dir is the working directory of the ranks; the caller's own when empty.
	Dir string
	// Env has NAME=value for every rank, above everything else, also above what golaunch sets. NAME alone takes the caller's value.
	Env []string

	Resources Resources // nodes, ranks and GPUs, and how long to wait for them
	Ranks     Ranks     // what a rank finds around it: variables, GPUs, CPUs, the store
	Restarts  Restarts  // what follows when a rank fails
	Stopping  Stopping  // what stops the job, and what its ranks hear of it
	Health    Health    // what is done about nodes and ranks that are not well
	Output    Output    // where words and logs go
	Network   Network   // where the nodes are, and how they meet
	Cluster   Cluster   // a cluster that gets the job instead

	// place is what a scheduler says, hasID that the ID was given, and ruleText is what the file of
	// FailureRules has.
	place    *schedenv.Place
	hasID    bool
	ruleText string
}

var (
	// ErrUsage marks errors of a Job, or a request, that can never do: the caller must change it.
	ErrUsage = usage.Kind()
	// ErrNotThere marks errors about a job or node that the cluster does not have.
	ErrNotThere = errors.New("it is not there")
	// ErrNoCoordinator says that no coordinator was named, and none runs on this machine.
	ErrNoCoordinator = errors.New("no coordinator runs on this machine; start one (golaunch coordinator), or name one (--coordinator HOST:PORT)")
)

// submission is the job as a coordinator sees it.
func (j Job) submission() replica.Submission {
	var exitCodes map[report.Ending]int
	for ending, code := range j.Restarts.ExitCodes {
		if exitCodes == nil {
			exitCodes = map[report.Ending]int{}
		}
		exitCodes[report.Ending(ending)] = code
	}
	return replica.Submission{
		Title:            strings.Join(j.Command, " "),
		PlacementTimeout: j.Resources.PlacementTimeout, BackoffMin: j.Restarts.BackoffMin, BackoffMax: j.Restarts.BackoffMax,
		Spec: cluster.Spec{Job: job.Spec{
			ID: j.ID, Request: j.Resources.request(), Grace: max(0, j.Stopping.Grace),
			Restart: job.Restart(j.Restarts.Policy), MaxRestarts: j.Restarts.Max, RefillAfter: j.Restarts.RefillAfter,
			ExcludeAfter: j.Health.ExcludeAfter, ExcludeFor: j.Health.ExcludeFor, Rules: j.ruleText, ExitCodes: exitCodes,
			GrowAfter: max(0, j.Resources.GrowAfter), DrainTime: j.Stopping.DrainTime,
			FixedPool: j.closed(), Pool: j.pool(),
		}},
	}
}

// pool is the number of nodes that will come at all; 0 when the job waits for whoever comes.
func (j Job) pool() int {
	switch {
	case j.Resources.Simulate:
		return j.Resources.MaxNodes + j.Resources.Spares
	case len(j.Network.Hosts) > 0:
		return len(j.Network.Hosts)
	case j.closed() && j.place != nil:
		return j.place.Nodes
	}
	return 0
}

// startedTogether is how many nodes a scheduler has started at once, with this command each; 0 when it was not so.
func (j Job) startedTogether() int {
	if j.place != nil && j.place.Each && j.closed() {
		return j.place.Nodes
	}
	return 0
}

// started is how many nodes are started for the job, spares included.
func (j Job) started() int {
	return cmp.Or(j.startedTogether(), j.Resources.MaxNodes+j.Resources.Spares)
}

// closed says that no other nodes can come than those that are there from the start. Pods are replaced.
func (j Job) closed() bool {
	return j.Network.Rendezvous == "" && (j.place == nil || j.place.Port == 0)
}

// allNodesKnown is how many nodes a job has that a scheduler starts again one by one, as it does pods: node 0 may be there for the second time. It
// is 0 for others, and for a job that waits for all of them anyway.
func (j Job) allNodesKnown() int {
	r, all := j.Resources, j.Resources.MaxNodes+j.Resources.Spares
	if !pod.Inside() || j.closed() || r.MinNodes == all || r.MinNodes < r.MaxNodes && j.Resources.LastCall > j.Network.Lease {
		return 0
	}
	return all
}

// facts is what must be the same on every node, by the flag's name.
func (j Job) facts() map[string]string {
	facts := map[string]string{
		"command":          short(fmt.Sprintf("%q", j.Command)),
		"--nodes":          fmt.Sprintf("%d:%d", j.Resources.MinNodes, j.Resources.MaxNodes),
		"ranks per node":   short(fmt.Sprint(j.Resources.PerNode)),
		"GPU ranks":        fmt.Sprint(j.Resources.GPU),
		"--strategy":       string(j.Resources.Strategy),
		"--order":          short(fmt.Sprint(j.Resources.Order)),
		"--restart":        j.Restarts.Policy,
		"--max-restarts":   j.Restarts.budget(),
		"--exclude-after":  fmt.Sprintf("%d/%v", j.Health.ExcludeAfter, j.Health.ExcludeFor),
		"--grow-after":     max(0, j.Resources.GrowAfter).String(),
		"--exit-codes":     fmt.Sprint(j.Restarts.ExitCodes),
		"--grace":          max(0, j.Stopping.Grace).String(),
		"--master-port":    fmt.Sprint(j.Ranks.MasterPort),
		"--store":          j.Ranks.Store,
		"--env-preset":     j.Ranks.Preset,
		"--gpu-visibility": string(j.Ranks.Visibility),
		"--bind":           j.Ranks.Bind,
		"--strict":         fmt.Sprint(j.Ranks.Strict),
		"--preload":        short(j.Ranks.Preload),
		"--preload-strict": fmt.Sprint(j.Ranks.PreloadStrict),
		"--preflight":      j.Health.Preflight,
		"--hang-timeout":   j.Health.HangTimeout.String(),
		"--bundle":         j.Health.Bundle,
		"--lease":          j.Network.Lease.String(),
		"--keep-env":       fmt.Sprint(j.Ranks.KeepEnv),
		"--role":           j.Ranks.Role,
	}
	if j.Output.Torch != nil {
		delete(facts, "command") // under torchrun each node may give the script arguments of its own
		delete(facts, "--role")  // and its ranks a role
	}
	for _, kv := range j.Env {
		name, value, _ := strings.Cut(kv, "=")
		sum := sha256.Sum256([]byte(value)) // a refusal prints facts, and a value may be a secret
		facts["--env "+name] = fmt.Sprintf("a value with hash %x", sum[:4])
	}
	return facts
}

// maxFact bounds a fact, in bytes: a command may have megabytes, and all facts go into one message.
const maxFact = 1 << 10

// short is a text that differs where long ones do.
func short(text string) string {
	if len(text) <= maxFact {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return fmt.Sprintf("%s... (%d bytes with hash %x)", strings.ToValidUTF8(text[:maxFact/2], ""), len(text), sum[:8])
}

func (j Job) shown(rank int) bool {
	return len(j.Output.Ranks) == 0 || slices.ContainsFunc(j.Output.Ranks, func(s Span) bool { return s.From <= rank && rank <= s.To })
}

// prefixed says whether lines of a job with that many ranks say whose they are.
func (o Output) prefixed(worldSize int) bool {
	if o.Prefix != nil {
		return *o.Prefix
	}
	return worldSize > 1
}

// budget is Max and RefillAfter as --max-restarts has them.
func (r Restarts) budget() string {
	if r.RefillAfter == 0 {
		return strconv.Itoa(r.Max)
	}
	return fmt.Sprintf("%d/%v", r.Max, r.RefillAfter)
}
