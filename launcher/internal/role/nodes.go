package role

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/host/health"
	"github.com/golaunch/golaunch/launcher/internal/door"
	"github.com/golaunch/golaunch/placement"
)

// Nodes says what the coordinator expects of the nodes that join.
type Nodes struct {
	// Wanted is how many nodes the job may have.
	Wanted int
	// SlurmGPUs is how many GPUs Slurm gave the job; 0 if unknown. The job's nodes should offer all
	// of them.
	SlurmGPUs int
	// NobodyHint says why no other node may join; empty for most jobs. The roster prints it if no
	// node joins.
	NobodyHint string
	// RefuseUnfit ends the job if one of its nodes is unfit.
	RefuseUnfit bool
}

// roster has what the nodes of a job report about themselves. Only the coordinator's goroutine uses
// it.
type roster struct {
	Nodes
	// labels has the labels of each node. gpus is how many GPUs all nodes offer.
	labels map[string]map[string]string
	gpus   int
	// pending are the nodes whose findings the roster has not printed yet, in the order in which
	// they joined.
	pending []string
	// hint is the timer that prints NobodyHint; nil if NobodyHint is empty.
	hint *time.Timer
	// said has the differences between nodes that the roster has printed.
	said map[string]bool
	warn func(error)
	// refuse ends the job because of an unfit node. It is nil if unfit nodes do not end the job.
	refuse func(why string)
}

func (n Nodes) roster(warn func(error)) *roster {
	r := &roster{Nodes: n, labels: map[string]map[string]string{}, said: map[string]bool{}, warn: warn}
	if n.NobodyHint != "" {
		r.hint = time.AfterFunc(door.Quiet, func() { warn(errors.New(n.NobodyHint)) })
	}
	return r
}

// joined records what a node reports. It ignores a node that joins again with nothing new.
func (r *roster) joined(n placement.Node) {
	labels, known := r.labels[n.Name]
	if known && maps.Equal(labels, n.Labels) {
		return
	}
	if !known {
		r.gpus += len(n.GPUs)
	}
	r.labels[n.Name] = n.Labels
	if r.hint != nil && len(r.labels) > 1 {
		r.hint.Stop()
	}
	r.pending = append(r.pending, n.Name)
	if codes := n.Labels[placement.UnfitLabel]; codes != "" && r.refuse != nil {
		why := n.Name + " is unfit: " + codes
		if findings, _ := health.FromLabels(n.Labels); len(findings) > 0 { // if only a newer golaunch knows the codes, there are no findings
			findings[0].Node = n.Name
			why = findings[0].String()
		}
		r.refuse(why)
	}
	if len(r.labels) >= r.Wanted {
		r.print()
	}
}

// decided prints the findings when the job no longer waits for nodes.
func (r *roster) decided(ev job.Event) {
	switch ev.(type) {
	case job.Submitted, job.Queued, job.Joined:
	default:
		r.print()
	}
}

func (r *roster) end() {
	if r.hint != nil {
		r.hint.Stop()
	}
	r.print()
}

// print warns of what it has not printed yet: the findings of pending nodes, and differences
// between all nodes.
func (r *roster) print() {
	if len(r.pending) == 0 {
		return
	}
	findings, versions := map[string][]health.Finding{}, map[string]health.Versions{}
	for name, labels := range r.labels {
		findings[name], versions[name] = health.FromLabels(labels)
	}
	all := health.Gather(r.pending, findings)
	for _, f := range health.Skew(versions) {
		if !r.said[f.Text] {
			r.said[f.Text] = true
			all = append(all, f)
		}
	}
	r.pending = nil
	if r.SlurmGPUs > r.gpus {
		r.warn(fmt.Errorf("Slurm has given this job %d GPUs, and golaunch, which is one task on each node, %d of them: request GPUs with "+
			"--gpus-per-node, not for each task", r.SlurmGPUs, r.gpus))
		r.SlurmGPUs = 0
	}
	for _, f := range all {
		r.warn(errors.New(f.String()))
	}
}
