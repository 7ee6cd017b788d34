// Package bind decides on which CPUs each rank of a node runs, and which NUMA node's memory it
// prefers.
//
// Like package placement it computes on values: [Plan] takes the machine's topology and the ranks,
// and returns a [Binding] with a reason for each, and warnings. It changes nothing on the machine.
package bind

import "github.com/golaunch/golaunch/internal/host/topology"

// Policy says to which CPUs a rank is bound.
type Policy string

const (
	// Auto is NUMA or Socket: the narrower of the two that leaves no CPU unused and gives ranks
	// with GPUs equal shares. If neither does, it binds nothing. It also binds nothing if golaunch
	// was started with a memory policy, as by numactl.
	Auto Policy = "auto"
	// None, like the empty Policy, binds nothing: a rank may use all CPUs that golaunch may use.
	None Policy = "none"
	// NUMA gives a rank all CPUs of the NUMA node near its GPU, as torchrun --numa-binding node
	// does.
	NUMA Policy = "numa"
	// Socket gives a rank all CPUs of that node's socket, as torchrun --numa-binding socket does.
	Socket Policy = "socket"
	// Cache divides the level 3 caches of that node among its ranks, with all their cores. torchrun
	// --numa-binding core-complex gives each rank a single cache.
	Cache Policy = "l3"
	// Core divides the cores of that node among its ranks, each core with all its hardware threads,
	// as torchrun --numa-binding exclusive does.
	Core Policy = "core"
)

// Policies are all policies in the order of the help text.
var Policies = []Policy{Auto, None, NUMA, Socket, Cache, Core}

// Levels are the levels of the topology that [Plan] needs beside NUMA nodes.
func (p Policy) Levels() []topology.Level {
	switch p {
	case Auto, Socket:
		return []topology.Level{topology.Socket}
	case Cache:
		return []topology.Level{topology.Cache, topology.Core}
	case Core:
		return []topology.Level{topology.Core}
	}
	return nil
}

// Exclusive reports whether ranks get CPUs of their own.
func (p Policy) Exclusive() bool { return p == Core || p == Cache }

// Rank has the facts about a rank on which its binding depends.
type Rank struct {
	// GPU is the PCI address of the rank's GPU, "0000:3b:00.0"; empty without one.
	GPU string
	// Node is the ID of the NUMA node near that GPU, or topology.Unknown.
	Node int
}

// Binding is where a rank runs.
type Binding struct {
	// CPUs are the CPUs that the rank may run on; empty means all that golaunch may use.
	CPUs topology.Set
	// Memory is the NUMA node whose memory the rank prefers. topology.Unknown leaves the choice to
	// the kernel, which takes the nearest node.
	Memory int
	// Cores is how many cores the rank has for itself; 0 if it shares them or is not bound.
	Cores int
	Why   string
}

// Warning is a problem with a stable code.
type Warning = topology.Warning

// Codes of warnings about a plan. Package topology has further codes.
const (
	// CodeGPU: the NUMA node near a GPU is unknown, so the GPU's rank is treated as a rank without
	// a GPU.
	CodeGPU = "gpu-unknown"
	// CodeFar: no CPU near a GPU may be used, so the GPU's rank is bound to the nearest usable
	// CPUs.
	CodeFar = "gpu-far"
	// CodeShared: there are fewer cores than ranks, so ranks share cores.
	CodeShared = "shared-cores"
	// CodeCache: the level 3 caches are unknown, so whole NUMA nodes are divided instead.
	CodeCache = "no-l3"
)

// Shared returns the binding for the given number of ranks that share b: Cores is each rank's part
// of the cores.
func (b Binding) Shared(ranks int) Binding {
	if b.Cores > 0 && ranks > 1 {
		b.Cores = max(1, b.Cores/ranks)
	}
	return b
}

// Plan gives each rank its binding. The same input gives the same plan.
func Plan(t topology.Topology, ranks []Rank, p Policy) ([]Binding, []Warning) {
	switch {
	case p == None || p == "":
		return unbound(ranks, "not bound: --bind none"), nil
	case t.CPUs.Empty():
		return unbound(ranks, "not bound: the CPUs of this process are unknown"), nil
	case p == Auto:
		return auto(t, ranks), nil
	}
	pl := newPlan(t, ranks, p)
	if p.Exclusive() {
		return pl.shares(), pl.warnings
	}
	return pl.wholes(), pl.warnings
}

// auto never warns. If it cannot improve the binding, it changes nothing.
func auto(t topology.Topology, ranks []Rank) []Binding {
	for _, r := range ranks {
		if r.GPU == "" || r.Node == topology.Unknown {
			return unbound(ranks, "not bound: a rank has no GPU, or one whose NUMA node is unknown")
		}
	}
	if t.Policed {
		return unbound(ranks, "not bound: golaunch was started with a memory policy")
	}
	for _, p := range []Policy{NUMA, Socket} {
		if pl := newPlan(t, ranks, p); pl.even() {
			return pl.wholes()
		}
	}
	return unbound(ranks, "not bound: if they were, the ranks would leave CPUs unused, or share them unevenly")
}

func unbound(ranks []Rank, why string) []Binding {
	out := make([]Binding, len(ranks))
	for i := range out {
		out[i] = Binding{Memory: topology.Unknown, Why: why}
	}
	return out
}
