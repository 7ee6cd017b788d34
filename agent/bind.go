package agent

import (
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/host/bind"
	"github.com/golaunch/golaunch/internal/host/topology"
	"github.com/golaunch/golaunch/placement"
)

// Bind says where ranks run on this machine. gpus has the PCI address of each rank's GPU, or "" for
// a rank without a GPU.
func Bind(policy bind.Policy, gpus []string) ([]bind.Binding, []bind.Warning) {
	return bindOn(os.DirFS("/sys"), policy, gpus)
}

// bindOn reads nothing from sys if the policy does not bind these ranks.
func bindOn(sys fs.FS, policy bind.Policy, gpus []string) ([]bind.Binding, []bind.Warning) {
	if policy == "" || policy == bind.None || policy == bind.Auto && slices.Contains(gpus, "") {
		return bind.Plan(topology.Topology{}, make([]bind.Rank, len(gpus)), policy)
	}
	use, warnings := topology.Self()
	machine, more := topology.Read(sys, use, policy.Levels()...)
	plan, most := bind.Plan(machine, near(&machine, sys, gpus), policy)
	if policy == bind.Auto {
		return plan, nil // with auto, ranks that cannot be bound stay unbound without a warning
	}
	return plan, slices.Concat(warnings, more, most)
}

func near(machine *topology.Topology, sys fs.FS, gpus []string) []bind.Rank {
	ranks := make([]bind.Rank, len(gpus))
	for i, address := range gpus {
		if address != "" {
			ranks[i] = bind.Rank{GPU: address, Node: machine.NodeOf(sys, address)}
		}
	}
	return ranks
}

// bind returns where the job's ranks run here, by local rank, including ranks that do not start
// now. If some ranks cannot be bound as the job wants, bind warns once, or fails if the job is
// strict.
func (j *jobOnNode) bind(w job.World) ([]bind.Binding, error) {
	task, node := j.work.Task, j.node.session.Node
	sharing := max(1, task.PerGPU)
	planned, n := oncePer(w.GPUs), w.LocalSize
	if len(planned) > 0 {
		n = len(planned) // ranks that share a GPU share its CPUs
	}
	if j.node.session.Job == "" && task.Bind.Exclusive() && len(w.GPUs) > 0 {
		planned = node.GPUs // ranks of other jobs may have the other GPUs
	}
	sys := j.node.hooks.sys
	if sys == nil {
		sys = os.DirFS("/sys")
	}
	plan, warnings := bindOn(sys, task.Bind, addresses(node.GPUs, planned, n))
	for _, warning := range warnings {
		switch {
		case task.Strict:
			return nil, fmt.Errorf("%s: cannot bind ranks as --bind %s says: %w; without --strict they start all the same",
				node.Name, task.Bind, warning)
		case !j.warned[warning]:
			j.warned[warning] = true
			j.node.Warn(fmt.Errorf("%s: %w", node.Name, warning))
		}
	}
	bindings := make([]bind.Binding, w.LocalSize)
	for i := range bindings {
		at := i
		if len(planned) > 0 {
			at = find(planned, w.GPUs[i].Index)
		}
		if at < 0 {
			return nil, fmt.Errorf("%s has no GPU %d to run rank %d of the node on", node.Name, w.GPUs[i].Index, i)
		}
		bindings[i] = plan[at].Shared(sharing)
	}
	return bindings, nil
}

// oncePer returns each GPU once. In gpus, the entries of ranks that share a GPU are neighbours.
func oncePer(gpus []placement.GPU) []placement.GPU {
	return slices.CompactFunc(slices.Clone(gpus), func(a, b placement.GPU) bool { return a.Index == b.Index })
}

// addresses returns the PCI addresses of the planned GPUs, padded with empty ones up to n.
func addresses(gpus, planned []placement.GPU, n int) []string {
	out := make([]string, max(n, len(planned)))
	for i, g := range planned {
		if at := find(gpus, g.Index); at >= 0 {
			out[i] = gpus[at].PCI
		}
	}
	return out
}

func find(gpus []placement.GPU, index int) int {
	return slices.IndexFunc(gpus, func(g placement.GPU) bool { return g.Index == index })
}
