// Package nccl knows which environment variables make NCCL, libfabric and gloo use a node's network well.
//
// [Detect] reads from sysfs what the node has, [Agree] comes to what all nodes of a job have in common, and [Vars] turns both, or a
// preset that the user chose, into variables with a reason for each. What must be the same on every node depends on the agreement
// alone. A variable that cannot be known is left out, never guessed.
package nccl

// Fabric is what NCCL talks over between nodes.
type Fabric string

const (
	// EFA is AWS's Elastic Fabric Adapter, which NCCL reaches by libfabric and the plugin aws-ofi-nccl.
	EFA Fabric = "efa"
	// InfiniBand is a native InfiniBand network, which NCCL reaches by verbs.
	InfiniBand Fabric = "ib"
	// RoCE is RDMA over Ethernet, which NCCL reaches by verbs.
	RoCE Fabric = "roce"
	// TCP is plain sockets.
	TCP Fabric = "tcp"
)

// fabrics are in the order in which a node prefers them.
var fabrics = []Fabric{EFA, InfiniBand, RoCE, TCP}

// Facts is what is known about a node's network.
type Facts struct {
	// Fabric is TCP when empty.
	Fabric Fabric
	// Devices are the RDMA devices of the fabric that a process can use, and Others those of any other fabric, both sorted.
	Devices, Others []string
	// Interface carries the node's address; empty when none does.
	Interface string
	// Versions are those of EFA's software; none without EFA.
	Versions Versions
}
