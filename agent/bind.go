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

// Bind says where ranks of this machine run that have these GPUs, by their PCI addresses; empty for one without.
func Bind(policy bind.Policy, gpus []string) ([]bind.Binding, []bind.Warning) {
	return bindOn(os.DirFS("/sys"), policy, gpus)
}

// bindOn reads nothing for a policy that cannot bind these.
func bindOn(sys fs.FS, policy bind.Policy, gpus []string) ([]bind.Binding, []bind.Warning) {
	if policy == "" || policy == bind.None || policy == bind.Auto && slices.Contains(gpus, "") {
		return bind.Plan(topology.Topology{}, make([]bind.Rank, len(gpus)), policy)
	}
	use, warnings := topology.Self()
	machine, more := topology.Read(sys, use, policy.Levels()...)
	plan, most := bind.Plan(machine, near(&machine, sys, gpus), policy)
	if policy == bind.Auto {
		return plan, nil // which leaves alone what it does not know
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

// bind finds out where the job's ranks run here, by local rank: also those that are not to start now, which may live. What is not as
// it should be is told once, or is the error where the job is strict.
func (s *share) bind(w job.World) ([]bind.Binding, error) {
	task, node := s.work.Task, s.agent.session.Node
	seats := w.GPUs
	if s.agent.session.Job == "" && task.Bind.Exclusive() && len(w.GPUs) > 0 {
		seats = node.GPUs // ranks of other jobs may have the others
	}
	sys := s.agent.sys
	if sys == nil {
		sys = os.DirFS("/sys")
	}
	plan, warnings := bindOn(sys, task.Bind, addresses(node.GPUs, seats, w.LocalSize))
	for _, warning := range warnings {
		switch {
		case task.Strict:
			return nil, fmt.Errorf("%s: cannot bind ranks as --bind %s says: %w; without --strict they start all the same",
				node.Name, task.Bind, warning)
		case !s.warned[warning]:
			s.warned[warning] = true
			s.agent.Warn(fmt.Errorf("%s: %w", node.Name, warning))
		}
	}
	own := make([]bind.Binding, w.LocalSize)
	for i := range own {
		seat := i
		if len(w.GPUs) > 0 {
			seat = find(seats, w.GPUs[i].Index)
		}
		if seat < 0 {
			return nil, fmt.Errorf("%s has no GPU %d to run rank %d of the node on", node.Name, w.GPUs[i].Index, i)
		}
		own[i] = plan[seat]
	}
	return own, nil
}

// addresses are the PCI addresses of seats, and as many empty ones as make up n.
func addresses(gpus, seats []placement.GPU, n int) []string {
	out := make([]string, max(n, len(seats)))
	for i, g := range seats {
		if at := find(gpus, g.Index); at >= 0 {
			out[i] = gpus[at].PCI
		}
	}
	return out
}

func find(gpus []placement.GPU, index int) int {
	return slices.IndexFunc(gpus, func(g placement.GPU) bool { return g.Index == index })
}
