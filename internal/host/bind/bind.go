// Package bind decides on which CPUs each rank of a node runs, and near which memory.
//
// It is arithmetic on values, as package placement is: [Plan] takes the machine's topology and the ranks, and returns a [Binding] for
// each with its reason, and warnings about what could not be as it should. Nothing here touches the machine.
package bind

import "github.com/golaunch/golaunch/internal/host/topology"

// Policy says what a rank is bound to.
type Policy string

const (
	// Auto is the narrowest of NUMA and Socket with which ranks with GPUs leave no CPU unused and share them evenly: whoever would
	// lose by it is not bound. A golaunch that was started with a memory policy, as by numactl, is left alone.
	Auto Policy = "auto"
	// None, which is also the empty Policy, binds nothing: a rank runs where golaunch itself may.
	None Policy = "none"
	// NUMA gives a rank all CPUs of the NUMA node near its GPU; torchrun --numa-binding node.
	NUMA Policy = "numa"
	// Socket gives it all CPUs of that node's socket; torchrun --numa-binding socket.
	Socket Policy = "socket"
	// Cache shares the level 3 caches of that node out among its ranks, with all their cores; torchrun --numa-binding core-complex
	// gives each rank one cache alone.
	Cache Policy = "l3"
	// Core shares the cores of that node out among its ranks, each with all its hardware threads; torchrun --numa-binding exclusive.
	Core Policy = "core"
)

// Policies are all of them, in the order in which help lists them.
var Policies = []Policy{Auto, None, NUMA, Socket, Cache, Core}

// Levels are what [Plan] must know of the machine beside its NUMA nodes.
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

// Exclusive says that ranks get CPUs of their own.
func (p Policy) Exclusive() bool { return p == Core || p == Cache }

// Rank is what a binding depends on.
type Rank struct {
	// GPU is the PCI address of the rank's GPU, "0000:3b:00.0"; empty for a rank without one.
	GPU string
	// Node is the ID of the NUMA node near that GPU, or topo.Unknown.
	Node int
}

// Binding is where a rank runs.
type Binding struct {
	// CPUs are those it may run on; all that golaunch may use when empty.
	CPUs topology.Set
	// Memory is the NUMA node whose memory it is to prefer; topo.Unknown leaves it to the kernel, which takes the nearest.
	Memory int
	// Cores is how many it has for itself; 0 when it shares them, or is not bound.
	Cores int
	// Why is the reason in words.
	Why string
}

// Warning is something that is not as it should be, with a stable code.
type Warning = topology.Warning

// Codes of warnings about a plan, beside those of package topo.
const (
	// CodeGPU says that nobody knows which NUMA node a GPU is near: its rank is treated as one without a GPU.
	CodeGPU = "gpu-unknown"
	// CodeFar says that no CPU near a GPU may be used: its rank is bound to the nearest others.
	CodeFar = "gpu-far"
	// CodeShared says that there are fewer cores than ranks: they share.
	CodeShared = "shared-cores"
	// CodeCache says that the machine does not tell of its level 3 caches: whole NUMA nodes are shared out instead.
	CodeCache = "no-l3"
)

// Plan gives each rank its binding; the same input gives the same plan.
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

// auto never warns: what it cannot improve it leaves as it is.
func auto(t topology.Topology, ranks []Rank) []Binding {
	for _, r := range ranks {
		if r.GPU == "" || r.Node == topology.Unknown {
			return unbound(ranks, "not bound: not every rank has a GPU of which it is known which NUMA node is near")
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
