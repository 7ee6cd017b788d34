package bind

import (
	"fmt"
	"slices"

	"github.com/golaunch/golaunch/internal/host/topology"
)

type plan struct {
	topology *topology.Topology
	policy   Policy
	ranks    []Rank
	domains  []domain
	// home is the index of each rank's domain, and lodgers has the ranks of each domain.
	home     []int
	lodgers  [][]int
	warnings []Warning
}

// domain is the usable part of a NUMA node or a socket.
type domain struct {
	cpus topology.Set
	name string
	// memory is the NUMA node that has all of the domain's CPUs, if that node has memory.
	memory int
}

func newPlan(t topology.Topology, ranks []Rank, p Policy) *plan {
	pl := &plan{topology: &t, policy: p, ranks: ranks}
	if p == Socket {
		for i, s := range t.Groups[topology.Socket] {
			pl.add(s, "socket", i)
		}
	} else {
		for _, n := range t.Nodes {
			pl.add(n.CPUs, "NUMA node", n.ID)
		}
	}
	if len(pl.domains) == 0 {
		pl.add(t.CPUs, "machine", 0) // the kernel allows only CPUs that sysfs does not list
	}
	pl.settle()
	return pl
}

func (pl *plan) add(cpus topology.Set, name string, number int) {
	if cpus = cpus.And(pl.topology.CPUs); !cpus.Empty() {
		pl.domains = append(pl.domains, domain{cpus, fmt.Sprint(name, " ", number), pl.memory(cpus)})
	}
}

// memory is the node to prefer. For CPUs of several nodes it is unknown, since the kernel does
// better: it uses the memory of the node on which a thread runs.
func (pl *plan) memory(cpus topology.Set) int {
	for i := range pl.topology.Nodes {
		n := &pl.topology.Nodes[i]
		if beyond := cpus.Without(n.CPUs); beyond.Empty() && n.Memory {
			return n.ID
		}
	}
	return topology.Unknown
}

func (pl *plan) warn(code, format string, args ...any) {
	pl.warnings = append(pl.warnings, Warning{Code: code, Text: fmt.Sprintf(format, args...)})
}

// settle finds each rank's domain: the domain near its GPU. It distributes ranks without such a
// domain evenly, and keeps neighbours together.
func (pl *plan) settle() {
	pl.home, pl.lodgers = make([]int, len(pl.ranks)), make([][]int, len(pl.domains))
	var homeless []int
	for i, r := range pl.ranks {
		if pl.home[i] = pl.near(r); pl.home[i] < 0 {
			homeless = append(homeless, i)
		}
	}
	for i, rank := range homeless {
		pl.home[rank] = i * len(pl.domains) / len(homeless)
	}
	for rank, d := range pl.home {
		pl.lodgers[d] = append(pl.lodgers[d], rank)
	}
}

// near is the index of the domain near a rank's GPU, or -1.
func (pl *plan) near(r Rank) int {
	if r.GPU == "" {
		return -1
	}
	i := pl.topology.Nearest(r.Node)
	if i < 0 {
		if len(pl.domains) > 1 {
			pl.warn(CodeGPU, "the NUMA node near GPU %s is unknown", r.GPU)
		}
		return -1
	}
	n := &pl.topology.Nodes[i]
	if n.ID != r.Node && pl.topology.Has(r.Node) {
		pl.warn(CodeFar, "GPU %s is near NUMA node %d, of whose CPUs golaunch may use none: its rank is bound to those of node %d",
			r.GPU, r.Node, n.ID)
	}
	usable := n.CPUs.And(pl.topology.CPUs)
	cpu := usable.First()
	return slices.IndexFunc(pl.domains, func(d domain) bool { return d.cpus.Has(cpu) })
}

// even reports whether every domain has ranks, and no domain has many more ranks than another.
func (pl *plan) even() bool {
	fewest, most := len(pl.ranks), 0
	for _, l := range pl.lodgers {
		fewest, most = min(fewest, len(l)), max(most, len(l))
	}
	return len(pl.domains) > 1 && fewest > 0 && most <= fewest+1 && len(pl.warnings) == 0
}

// wholes binds each rank to its whole domain.
func (pl *plan) wholes() []Binding {
	out := make([]Binding, len(pl.ranks))
	for i, r := range pl.ranks {
		d := &pl.domains[pl.home[i]]
		out[i] = Binding{CPUs: d.cpus, Memory: d.memory, Why: r.why("", d)}
	}
	return out
}

// why says on which domain a rank runs, and on how much of it.
func (r Rank) why(part string, d *domain) string {
	text := part + d.name
	if r.GPU != "" && r.Node != topology.Unknown {
		text += ", near GPU " + r.GPU
	}
	return text
}

// shares binds the ranks of each domain to parts of it.
func (pl *plan) shares() []Binding {
	level := topology.Core
	if pl.policy == Cache {
		level = topology.Cache
	}
	if level == topology.Cache && pl.topology.Groups[level] == nil {
		pl.warn(CodeCache, "this machine does not tell of its level 3 caches: ranks are bound to NUMA nodes")
		return pl.wholes()
	}
	out := make([]Binding, len(pl.ranks))
	for i := range pl.domains {
		pl.deal(&pl.domains[i], pl.lodgers[i], level, out)
	}
	return out
}

// deal divides the groups of a domain among its ranks and keeps neighbours together. The ranks'
// numbers of groups differ by at most one. Ranks share groups if there are fewer groups than ranks.
func (pl *plan) deal(d *domain, ranks []int, level topology.Level, out []Binding) {
	if len(ranks) == 0 {
		return
	}
	groups := pl.within(d, level)
	cores := groups
	if level != topology.Core {
		cores = pl.within(d, topology.Core)
	}
	if len(ranks) > len(cores) {
		pl.warn(CodeShared, "%s has fewer cores (%d) than ranks (%d), which share them", d.name, len(cores), len(ranks))
	}
	for i, rank := range ranks {
		low := i * len(groups) / len(ranks)
		high := max((i+1)*len(groups)/len(ranks), low+1)
		b := Binding{Memory: d.memory, Why: pl.ranks[rank].why(fmt.Sprintf("%d of %d %ss of ", high-low, len(groups), level), d)}
		for _, g := range groups[low:high] {
			b.CPUs = b.CPUs.Or(g)
		}
		if b.Cores = overlapping(cores, b.CPUs); len(ranks) > len(groups) {
			b.Cores = max(1, b.Cores*len(groups)/len(ranks))
		}
		out[rank] = b
	}
}

// within returns the usable parts of a level's groups in a domain. Each CPU in no group forms a
// group.
func (pl *plan) within(d *domain, level topology.Level) []topology.Set {
	parts := make([]topology.Set, 0, len(pl.topology.Groups[level]))
	rest := d.cpus
	for _, g := range pl.topology.Groups[level] {
		if g.Meets(&rest) {
			parts = append(parts, g.And(rest))
			rest = rest.Without(g)
		}
	}
	for _, cpu := range rest.List() {
		parts = append(parts, topology.SetOf(cpu))
	}
	return parts
}

// overlapping counts the groups that have some of the CPUs.
func overlapping(groups []topology.Set, cpus topology.Set) (n int) {
	for i := range groups {
		if groups[i].Meets(&cpus) {
			n++
		}
	}
	return n
}
