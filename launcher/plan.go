package launcher

import (
	"context"
	"net/netip"
	"os"

	"github.com/golaunch/golaunch/agent"
	"github.com/golaunch/golaunch/internal/host/bind"
	"github.com/golaunch/golaunch/internal/host/gpu"
	"github.com/golaunch/golaunch/launcher/internal/address"
	"github.com/golaunch/golaunch/launcher/internal/usage"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rankenv"
)

// Plan says where the ranks of a job would run. Without nodes it plans for this machine if the job
// wants one node with GPUs and there are some here, and else for nodes that have just what the job
// wants. The error is a *placement.InfeasibleError if the nodes cannot hold the job, and ErrUsage
// for a job that can never run.
func Plan(ctx context.Context, j Job, nodes ...placement.Node) (placement.Plan, error) {
	j, err := j.complete()
	if err != nil {
		return placement.Plan{}, err
	}
	if len(nodes) == 0 {
		if nodes, err = j.imagined(ctx); err != nil {
			return placement.Plan{}, err
		}
	}
	return placement.Solve(j.Resources.request(), nodes)
}

func (j Job) imagined(ctx context.Context) ([]placement.Node, error) {
	if j.Resources.MaxNodes == 1 && j.Resources.GPU && !j.Resources.Simulate {
		if devices, _, err := gpu.List(ctx); err == nil && len(devices) > 0 {
			node, err := j.thisNode(ctx)
			node.Addr = address.Loopback(0)
			return []placement.Node{node}, err
		}
	}
	nodes := make([]placement.Node, j.Resources.MaxNodes+j.Resources.Spares)
	for i := range nodes {
		nodes[i] = j.declared(i)
	}
	return nodes, nil
}

// Explain is the environment of one rank of a plan, with each variable's source and reason. Unknown
// before the start are a free MASTER_PORT, a made-up job ID, the error file, NCCL_RAS_ADDR, and
// another machine's CPUs and network.
func (j Job) Explain(plan placement.Plan, rank int) (rankenv.Env, error) {
	j, err := j.complete()
	if err != nil {
		return rankenv.Env{}, err
	}
	for _, g := range plan.Groups {
		for _, b := range g.Bundles {
			if b.Rank == rank {
				return j.explain(plan, g, b)
			}
		}
	}
	return rankenv.Env{}, usage.Errorf("rank %d: the job has ranks 0 to %d", rank, plan.WorldSize()-1)
}

func (j Job) explain(plan placement.Plan, g placement.Group, b placement.Bundle) (rankenv.Env, error) {
	facts := j.about(plan, g, b)
	if g.Node.Addr.IsLoopback() { // another machine's CPUs are unknown here
		j.bind(&facts, g.Bundles)
	}
	return j.with(facts, g.Node.Addr)
}

// with is the environment of a rank, with the presets for a node at an address.
func (j Job) with(facts rankenv.Facts, at netip.Addr) (rankenv.Env, error) {
	base, err := j.environment(os.Environ())
	if err != nil {
		return rankenv.Env{}, err
	}
	presets, err := j.presets(at)
	if err != nil {
		return rankenv.Env{}, err
	}
	return base.With(presets("")).Explain(facts), nil
}

// about is what a plan says about a rank.
func (j Job) about(plan placement.Plan, g placement.Group, b placement.Bundle) rankenv.Facts {
	facts := rankenv.Facts{
		JobID: j.ID, NodeName: g.Node.Name, NodeRank: g.NodeRank, Nodes: len(plan.Groups),
		Rank: b.Rank, LocalRank: b.LocalRank, WorldSize: plan.WorldSize(), LocalWorldSize: len(g.Bundles),
		MasterAddr: plan.Master().String(), MasterPort: j.Ranks.MasterPort, MaxRestarts: j.Restarts.Max, StoreHosted: j.Ranks.Store != storeRank0,
		GPU: b.GPU, Visibility: j.Ranks.Visibility, Role: j.Ranks.Role, Ports: j.Network.PortRange,
	}
	if facts.Proxied = j.Ranks.Store == storeProxy; facts.Proxied && g.NodeRank > 0 {
		facts.ProxyAddr = g.Node.Addr.String()
	}
	for _, other := range g.Bundles {
		if other.GPU != nil {
			facts.GPUs = append(facts.GPUs, *other.GPU)
		}
	}
	return facts
}

// bind adds a rank's CPUs to the facts.
func (j Job) bind(f *rankenv.Facts, node []placement.Bundle) {
	gpus := make([]string, len(node))
	for i, b := range node {
		if b.GPU != nil {
			gpus[i] = b.GPU.PCI
		}
	}
	bindings, _ := agent.Bind(bind.Policy(j.Ranks.Bind), gpus) // the warnings are for the start
	b := bindings[f.LocalRank]
	f.CPUs, f.Bound, f.Cores = b.CPUs.String(), b.Why, b.Cores
}
