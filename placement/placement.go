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

// Strategy says how the bundles of a job spread over nodes. The rules are the same as in Ray's
// bundle_scheduling_policy.cc. The bundles of a job are alike, so the order in which Ray sorts them
// (GPUs first) makes no difference here.
//
// Pack, Spread and StrictSpread do not tie bundles to nodes. The number of bundles is the sum of
// PerNode. Each bundle goes to the node with the best score of Ray's LeastResourceScorer: the node
// that keeps the largest share of its free GPUs, CPUs and memory. Where Ray takes any of several
// equal nodes, Solve takes the first in Order. Nodes in Keep come before all others.
type Strategy string

const (
	// StrictPack puts each whole placement group of the job on a separate node: PerNode bundles on
	// each node. Of the nodes with room, Solve takes the first in Order; Ray takes the best.
	StrictPack Strategy = "STRICT_PACK"
	// Pack fills the best node, then the next best, to use few nodes.
	Pack Strategy = "PACK"
	// Spread puts bundles on distinct nodes while there are unused ones, then uses the best nodes
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
	// GPUs are in the order in which a rank sees them.
	GPUs []GPU
	// CPUs is the number of logical CPUs that ranks may use. 0 means unknown, and is not checked.
	// Less than 0 means none.
	CPUs int
	// Memory is in bytes. 0 means unknown, and is not checked. Less than 0 means none.
	Memory int64
	// Labels are free-form facts such as rack=r7.
	Labels map[string]string
}

// Request is the request of a job.
type Request struct {
	// MinNodes and MaxNodes, at least 1, bound the number of nodes. Solve uses as many as it can.
	// With strategies other than StrictPack they bound the number of ranks: the sum of PerNode over
	// that number of nodes, no matter where the ranks then run.
	MinNodes, MaxNodes int
	// PerNode is the number of ranks on a node. It has one entry for all nodes, or MaxNodes entries
	// in the order of node ranks ("4,8,2"). A job on n nodes then uses the first n entries. An
	// entry of 0 or less is an error, except that a single [AllGPUs] means as many ranks as all
	// GPUs of each node have room for, or as its [SlotsLabel] says.
	PerNode []int
	// GPU is true if each rank needs a GPU, or a share of one. Otherwise ranks are CPU processes.
	GPU bool
	// PerGPU is how many ranks of a node share a GPU: with 2, each rank has half of one. 0 and 1
	// give each rank a GPU of its own. The last GPU of a node may have fewer ranks. No other job
	// gets the rest of it. Ranks share GPUs only with StrictPack.
	PerGPU int
	// CPUs and Memory (in bytes) are one bundle's share. 0 asks for nothing.
	CPUs   int
	Memory int64
	// Strategy is StrictPack when empty.
	Strategy Strategy
	// Order sorts the groups; by address when it is the zero Order.
	Order Order
	// Keep has the node ranks that nodes had before, by node name. Such nodes are preferred and
	// keep their rank, and new nodes take the ranks of lost ones. If the job shrinks below a kept
	// rank, the kept nodes get new ranks without gaps, in their old order.
	Keep map[string]int
	// SharedAddr lets any nodes share an address; otherwise only nodes of the [SameMachine] may.
	SharedAddr bool
}

// AllGPUs as the only entry of Request.PerNode asks for every GPU of each node, all of which must
// be free. For nodes with a [SlotsLabel], and for CPU ranks, it asks for the number of ranks in the
// label. Pack and Spread then place ranks as StrictPack does; with StrictSpread, AllGPUs is an
// error.
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

// SlotsLabel is the label by which a node sets the number of ranks, from 1 to 65535, that it runs
// of a job that asks for AllGPUs.
const SlotsLabel = "slots"

// RoleLabel is the label of a node whose ranks have a role of their own (torch's ROLE_NAME).
const RoleLabel = "role"

// MachineLabel is the label that names a node's machine. Nodes with the same value may share an
// address.
const MachineLabel = "machine.id"

// SameMachine reports whether two nodes are on one machine, by their [MachineLabel].
func SameMachine(a, b Node) bool {
	machine := a.Labels[MachineLabel]
	return machine != "" && machine == b.Labels[MachineLabel]
}

// UnfitLabel is the label of a node that gets no ranks. The value of the label says why.
const UnfitLabel = "unfit"

// Order sorts placement groups into node ranks.
type Order struct {
	// By is ByIP (numeric: 10.0.0.9 before 10.0.0.10, IPv4 before IPv6, then by name; the default),
	// ByName (digits compare as numbers: n9 before n10), ByList or ByTopology.
	//
	// ByTopology compares [TopologyLabel] level by level from the top, and each level like a name.
	// So the nodes below a switch are neighbours at every level. The meaning of a level does not
	// matter: dots in a node's name only add levels, and a level such as "s[0-1]" is a name like
	// others. Nodes without the label come last; equal nodes are sorted by IP.
	By string `json:"by"`
	// List has the node names in the wanted order when By is ByList. Other nodes are not used.
	List []string `json:"list"`
}

// Bundle has the resources of one rank.
type Bundle struct {
	// Rank counts in the job and LocalRank on the node. Rank-LocalRank is the same for all ranks of
	// a node.
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

// Plan says where all ranks of a job run. Groups are in the order of node ranks, and the first node
// is the master. A plan shares GPUs and Labels with the nodes from which it was made.
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
