package launcher

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/golaunch/golaunch/agent"
	"github.com/golaunch/golaunch/internal/host/bind"
	"github.com/golaunch/golaunch/internal/host/gpu"
	"github.com/golaunch/golaunch/internal/wire/workspace"
	"github.com/golaunch/golaunch/launcher/internal/address"
	"github.com/golaunch/golaunch/launcher/internal/machine"
	"github.com/golaunch/golaunch/launcher/internal/slurm"
	"github.com/golaunch/golaunch/launcher/internal/usage"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/nccl"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rankenv"
)

// Plan says where the ranks of a job would run. Without nodes, it plans for this machine if the job
// wants one node with GPUs and this machine has GPUs. Otherwise it plans for nodes that have
// exactly what the job wants. The error is a *placement.InfeasibleError if the nodes cannot hold
// the job, and ErrUsage for a job that can never run.
func Plan(ctx context.Context, j Job, nodes ...placement.Node) (placement.Plan, error) {
	j, err := j.complete()
	if err != nil {
		return placement.Plan{}, err
	}
	if len(nodes) == 0 {
		if nodes, err = j.plannedNodes(ctx); err != nil {
			return placement.Plan{}, err
		}
	}
	return placement.Solve(j.Resources.request(), nodes)
}

func (j Job) plannedNodes(ctx context.Context) ([]placement.Node, error) {
	if j.Resources.MaxNodes == 1 && j.Resources.GPU && !j.Resources.Simulate {
		if devices, _, err := gpu.List(ctx); err == nil && len(devices) > 0 {
			node, _, err := j.thisNode(ctx)
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

// Explain returns the environment of one rank of a plan, with each variable's source and reason.
// Some values are unknown before the start: a MASTER_PORT or a job ID that golaunch chooses, the
// error file, NCCL_RAS_ADDR, and another machine's CPUs and network.
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
	facts := j.rankFacts(plan, g, b)
	if g.Node.Addr.IsLoopback() { // another machine's CPUs are unknown here
		j.bind(&facts, g.Bundles, b.LocalRank)
	}
	return j.rankEnv(facts, g.Node.Addr)
}

// rankEnv returns the environment of a rank, with the presets for a node whose address is at.
func (j Job) rankEnv(facts rankenv.Facts, at netip.Addr) (rankenv.Env, error) {
	base, err := j.environment(os.Environ())
	if err != nil {
		return rankenv.Env{}, err
	}
	facts.MPS = gpu.MPS(base.Lookup(gpu.MPSDirectory))
	presets, err := j.presets(at)
	if err != nil {
		return rankenv.Env{}, err
	}
	return base.With(presets("")).Explain(facts), nil
}

// rankFacts returns the facts about a rank that follow from a plan.
func (j Job) rankFacts(plan placement.Plan, g placement.Group, b placement.Bundle) rankenv.Facts {
	facts := rankenv.Facts{
		JobID: j.ID, NodeName: g.Node.Name, NodeRank: g.NodeRank, Nodes: len(plan.Groups),
		Rank: b.Rank, LocalRank: b.LocalRank, WorldSize: plan.WorldSize(), LocalWorldSize: len(g.Bundles),
		MasterAddr: plan.Master().String(), MasterPort: j.Ranks.MasterPort, MaxRestarts: j.Restarts.Max, StoreHosted: j.Ranks.Store != storeRank0,
		GPU: b.GPU, PerGPU: j.Resources.PerGPU, Visibility: j.Ranks.Visibility, Role: j.Ranks.Role, Ports: j.Network.PortRange,
	}
	if b.GPU != nil {
		facts.GPUMemory = b.GPU.Memory
	}
	if j.Health.RankMonitor != "" {
		facts.RankMonitor, facts.FTLauncher = "SOCKET", "SOCKET"
	}
	if j.Health.InProcessRestart > 0 {
		facts.HyperPod = "SOCKET"
	}
	if facts.Proxied = j.Ranks.Store == storeProxy; facts.Proxied && g.NodeRank > 0 {
		facts.ProxyAddr = g.Node.Addr.String()
	}
	for _, other := range g.Bundles {
		if other.GPU != nil {
			facts.GPUs = append(facts.GPUs, *other.GPU)
		}
	}
	return j.inGroup(facts, plan)
}

// inGroup changes the facts about a rank of a replica group, because the group looks to the rank
// like its whole job.
func (j Job) inGroup(f rankenv.Facts, plan placement.Plan) rankenv.Facts {
	n := j.Restarts.ReplicaGroups
	if n == 0 || plan.WorldSize()%n != 0 {
		return f
	}
	size := plan.WorldSize() / n
	f.ReplicaGroups, f.ReplicaGroup, f.WorldSize = n, f.Rank/size, size
	first := f.ReplicaGroup * size
	f.Lighthouse = "http://127.0.0.1:PORT"
	nodes, local, before := 0, 0, 0
	for _, g := range plan.Groups {
		in := 0
		for _, b := range g.Bundles {
			switch k := b.Rank / size; {
			case k == f.ReplicaGroup:
				in++
			case k < f.ReplicaGroup && g.NodeRank == f.NodeRank:
				before++
			}
		}
		if in == 0 {
			continue
		}
		if nodes == 0 {
			f.MasterAddr = g.Node.Addr.String()
		}
		if g.NodeRank == f.NodeRank {
			local, f.Nodes = in, nodes
		}
		nodes++
	}
	f.Rank -= first
	f.NodeRank, f.Nodes = f.Nodes, nodes
	f.LocalRank -= before
	f.LocalWorldSize = local
	if f.GPUs != nil {
		f.GPUs = f.GPUs[before : before+local]
	}
	return f
}

// bind adds a rank's CPUs to the facts.
func (j Job) bind(f *rankenv.Facts, node []placement.Bundle, localRank int) {
	sharing := max(1, j.Resources.PerGPU)
	var gpus []string
	for first := 0; first < len(node); first += sharing {
		address := ""
		if gpu := node[first].GPU; gpu != nil {
			address = gpu.PCI
		}
		gpus = append(gpus, address)
	}
	bindings, _ := agent.Bind(bind.Policy(j.Ranks.Bind), gpus) // the warnings are dropped here, and printed at a start
	b := bindings[localRank/sharing].Shared(sharing)
	f.CPUs, f.Bound, f.Cores = b.CPUs.String(), b.Why, b.Cores
}

// Surroundings has the environment that the first rank on this machine would get, and the network
// on which that environment depends.
type Surroundings struct {
	Node placement.Node
	// Network has the facts about this node's network, and Why the evidence for them.
	// Network.Versions is set even on a node without EFA.
	Network nccl.Facts
	Why     string
	NICs    []nccl.NIC
	Env     rankenv.Env
}

// Survey describes this machine as a node of the job, as if the other nodes were like it. It starts
// no coordinator, so it assumes that this is node 0, and that the node has the address that the job
// gives it, or else its first address.
func (j Job) Survey(ctx context.Context) (Surroundings, error) {
	j, err := j.complete()
	if err != nil {
		return Surroundings{}, err
	}
	var s Surroundings
	if s.Node, _, err = j.thisNode(ctx); err != nil {
		return s, err
	}
	if !s.Node.Addr.IsValid() {
		s.Node.Addr = address.Loopback(0)
		if len(s.Node.Others) > 0 {
			s.Node.Addr = s.Node.Others[0]
		}
	}
	if s.Network, s.Why, err = machine.Network(s.Node.Addr); err != nil {
		return s, err
	}
	root := os.DirFS("/")
	s.Network.Versions = nccl.ReadVersions(root)
	s.NICs = nccl.NICs(os.DirFS("/sys"), machine.OpenDevice)
	s.Env, err = j.firstRank(s.Node)
	return s, err
}

// firstRank returns the environment of the first rank if this machine is node 0.
func (j Job) firstRank(node placement.Node) (rankenv.Env, error) {
	nodes := []placement.Node{node}
	order := []string{node.Name}
	for i := 1; i < j.Resources.MaxNodes; i++ {
		other := j.declared(i)
		other.GPUs, other.Addr = node.GPUs, netip.AddrFrom4([4]byte{0, byte(i >> 16), byte(i >> 8), byte(i)})
		nodes, order = append(nodes, other), append(order, other.Name)
	}
	request := j.Resources.request()
	request.Order = placement.Order{By: placement.ByList, List: order}
	plan, err := placement.Solve(request, nodes)
	if err != nil {
		return rankenv.Env{}, err
	}
	g := plan.Groups[0]
	facts := j.rankFacts(plan, g, g.Bundles[0])
	j.bind(&facts, g.Bundles, 0)
	if facts.GPU != nil {
		if facts.RASAddr, err = agent.RASAddr(); err != nil {
			return rankenv.Env{}, err
		}
	}
	return j.rankEnv(facts, node.Addr)
}

// DescribeWorkspace describes the job's workspace as golaunch would pack it now; nil if the job has
// none.
func (j Job) DescribeWorkspace() (*report.Workspace, error) {
	j, err := j.complete()
	if err != nil || j.Workspace == "" {
		return nil, err
	}
	w, err := workspace.Describe(j.Workspace, j.WorkspaceLimit)
	if _, input := errors.AsType[*workspace.InputError](err); input {
		return nil, usage.Errorf("%v", err)
	}
	return &w, err
}

// SlurmScript returns a batch script for sbatch that runs argv, a golaunch command line, on the
// nodes and GPUs that the job wants. options are further options of sbatch. They follow the options
// that the job implies.
func (j Job) SlurmScript(argv, options []string) (string, error) {
	j.Network.Scheduler = noScheduler // because a job may be submitted from within another job
	j, err := j.complete()
	if err != nil {
		return "", err
	}
	r := j.Resources
	s := slurm.Script{
		Name: filepath.Base(j.Command[0]), MinNodes: r.MinNodes + r.Spares, MaxNodes: r.MaxNodes + r.Spares, NoKill: r.Spares > 0,
		Options: options, Command: argv,
	}
	if r.PerNode[0] != placement.AllGPUs {
		s.Ranks = slices.Max(r.PerNode)
		s.GPUs = r.request().Takes(s.Ranks)
	}
	return s.Text()
}
