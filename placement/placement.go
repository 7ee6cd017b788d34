// Package placement decides which GPUs of which nodes run the ranks of a job.
//
// [Solve] takes a request and the known nodes and returns a [Plan], or an [InfeasibleError] that
// says for each node why it does not fit. It is arithmetic on values: it reads no clock, network or
// machine, and the same input gives the same plan.
//
// The words are Ray's: a bundle is the resources of one rank, a placement group is the bundles of a
// job on one node, and the four strategies mean what they mean in Ray
// (https://docs.ray.io/en/latest/ray-core/scheduling/placement-group.html).
package placement

import "net/netip"

// Strategy says how the bundles of a job spread over nodes. The rules are those of Ray's
// bundle_scheduling_policy.cc. All bundles of a job are alike here, so the order in which Ray sorts
// bundles (GPUs first) does not matter.
//
// Pack, Spread and StrictSpread do not tie bundles to nodes. The number of bundles is the sum of
// PerNode. Each bundle goes to the node with the best score of Ray's LeastResourceScorer: the node
// that keeps the largest share of its free GPUs, CPUs and memory. Where Ray takes any of several
// equal nodes, Solve takes the first in Order. Solve prefers nodes in Keep to all others.
type Strategy string

const (
	// StrictPack puts each whole placement group of the job on a separate node: PerNode bundles on
	// each node. Of the nodes with room, Solve takes the first in Order, while Ray takes the node
	// with the best score.
	StrictPack Strategy = "STRICT_PACK"
	// Pack fills the best node, then the next best node, and so on, to use few nodes.
	Pack Strategy = "PACK"
	// Spread puts each bundle on an unused node while there is one, and then uses the best nodes
	// again.
	Spread Strategy = "SPREAD"
	// StrictSpread puts every bundle on a separate node, or fails.
	StrictSpread Strategy = "STRICT_SPREAD"
)

// GPU is one device of a node.
type GPU struct {
	// Index is the device's place in PCI bus order (CUDA_DEVICE_ORDER=PCI_BUS_ID), from 0.
	Index int
	// UUID is the driver's name for the device, "GPU-..." or "MIG-..."; empty for a declared GPU.
	UUID string
	// PCI is the device's address as sysfs writes it, "0000:0f:00.0"; empty for a declared GPU and
	// on other nodes.
	PCI string
	// Memory is in bytes; 0 if unknown, for a declared GPU and on other nodes.
	Memory int64
	// HeldBy names the user of the device, for example "pid 4411"; empty when the device is free.
	HeldBy string
}

// Node has the facts about a machine that placement needs.
type Node struct {
	// Name is unique among the nodes of a cluster.
	Name string
	// Addr is the address at which other nodes reach this one.
	Addr netip.Addr
	// Others are further addresses from which processes of this node may reach other nodes.
	// Placement ignores them.
	Others []netip.Addr
	// GPUs are the GPUs of the node, in the order in which a rank sees them.
	GPUs []GPU
	// CPUs is the number of logical CPUs that ranks may use. 0 means unknown: Solve then does not
	// check it. A negative number means none.
	CPUs int
	// Memory is in bytes. 0 means unknown: Solve then does not check it. A negative number means
	// none.
	Memory int64
	// Labels are free-form facts such as rack=r7.
	Labels map[string]string
}

// Request is the request of a job.
type Request struct {
	// MinNodes and MaxNodes, at least 1, bound the number of nodes. Solve uses as many as it can.
	// With the strategies Pack, Spread and StrictSpread they bound only the number of ranks, which
	// is the sum of PerNode over that many nodes. The ranks may then run on any number of nodes.
	MinNodes, MaxNodes int
	// PerNode is the number of ranks on a node. It has one entry for all nodes, or MaxNodes entries
	// in the order of node ranks ("4,8,2"). A job on n nodes then uses the first n entries. An
	// entry of 0 or less is an error, except a single [AllGPUs]. That means as many ranks as all
	// GPUs of each node have room for, or as many as the node's [SlotsLabel] says.
	PerNode []int
	// GPU is true if each rank needs a GPU, or a share of one. Otherwise ranks use only CPUs.
	GPU bool
	// PerGPU is how many ranks of a node share a GPU: with 2, each rank has half of one. 0 and 1
	// give each rank a GPU of its own. The last GPU of a node may have fewer ranks; no other job
	// gets the rest of that GPU. Ranks share GPUs only with StrictPack.
	PerGPU int
	// CPUs and Memory (in bytes) are one bundle's share. 0 asks for nothing.
	CPUs   int
	Memory int64
	// Strategy is StrictPack when empty.
	Strategy Strategy
	// Order sorts the groups; by address when it is the zero Order.
	Order Order
	// Keep has the node ranks that nodes had before, by node name. Solve prefers these nodes, and
	// they keep their ranks. New nodes get the ranks of lost nodes. If the job now has fewer nodes
	// than one of these ranks needs, the kept nodes get new ranks without gaps, in their old order.
	Keep map[string]int
	// SharedAddr lets any nodes share an address; otherwise only nodes of the [SameMachine] may.
	SharedAddr bool
}

// AllGPUs as the only entry of Request.PerNode asks for every GPU of each node, all of which must
// be free. On a node with a [SlotsLabel], and for CPU ranks, it asks instead for the number of
// ranks in the label. With AllGPUs, Pack and Spread place ranks as StrictPack does, and
// StrictSpread is an error.
const AllGPUs = -1

// The values of Order.By.
const (
	ByIP       = "ip"
	ByName     = "name"
	ByList     = "list"
	ByTopology = "topology"
)

// TopologyLabel is the label by which ByTopology sorts. It has the names of the network's switches
// or blocks from the top down, then the name of the node, separated by dots: "s0.s4.n12". This is
// SLURM_TOPOLOGY_ADDR of srun(1), which is the node's name alone if Slurm has no topology.
const TopologyLabel = "topology"

// SlotsLabel is the label of a node with the number of ranks, from 1 to 65535, that the node runs
// of a job that asks for AllGPUs.
const SlotsLabel = "slots"

// RoleLabel is the label of a node with the role of its ranks (torch's ROLE_NAME).
const RoleLabel = "role"

// MachineLabel is the label that names a node's machine. Nodes with the same value may share an
// address.
const MachineLabel = "machine.id"

// SameMachine reports whether two nodes are on one machine, by their [MachineLabel].
func SameMachine(a, b Node) bool {
	machine := a.Labels[MachineLabel]
	return machine != "" && machine == b.Labels[MachineLabel]
}

// UnfitLabel is a label that keeps ranks off a node. Its value says why.
const UnfitLabel = "unfit"

// Order sorts placement groups into node ranks.
type Order struct {
	// By is ByIP (numeric: 10.0.0.9 before 10.0.0.10, IPv4 before IPv6, then by name; the default),
	// ByName (digits compare as numbers: n9 before n10), ByList or ByTopology.
	//
	// ByTopology compares [TopologyLabel] level by level from the top, and each level like a name.
	// So the nodes below a switch are neighbours at every level. It does not matter what a level
	// means. Dots in a node's name only add levels, and a level such as "s[0-1]" is a name like any
	// other. Nodes without the label come last; equal nodes are sorted by IP.
	By string `json:"by"`
	// List has the names of nodes in the wanted order when By is ByList. Solve then uses no other
	// nodes.
	List []string `json:"list"`
}

// Bundle has the resources of one rank.
type Bundle struct {
	// Rank is the rank's number in the job, and LocalRank its number on the node. Rank-LocalRank is
	// the same for all ranks of a node.
	Rank, LocalRank int
	// GPU is nil for a CPU rank.
	GPU *GPU `snapshot:"value"`
}

// Group is the placement group of a job on one node.
type Group struct {
	Node Node
	// NodeRank is torch's GROUP_RANK.
	NodeRank int
	Bundles  []Bundle
}

// Plan says where all ranks of a job run. Groups are in the order of node ranks. The master is on
// the first node. A plan shares the GPUs and Labels of the nodes that were given to Solve, and does
// not copy them.
type Plan struct {
	Groups []Group
}

// WorldSize is the number of ranks.
func (p Plan) WorldSize() int {
	n := 0
	for _, g := range p.Groups {
		n += len(g.Bundles)
	}
	return n
}

// Master returns the address of the node that has rank 0; the zero Addr for an empty plan.
func (p Plan) Master() netip.Addr {
	if len(p.Groups) == 0 {
		return netip.Addr{}
	}
	return p.Groups[0].Node.Addr
}
