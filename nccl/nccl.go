// Package nccl chooses the environment variables with which NCCL, libfabric and gloo use a node's
// network well.
//
// [Detect] reads the node's devices from sysfs. [Agree] finds the common properties of all nodes of
// a job. [Vars] turns both, or a preset that the user chose, into variables with reasons. Variables
// that must be the same on every node depend only on the agreement. A variable with an unknown
// value is omitted, never guessed.
package nccl

// Fabric is the kind of network that NCCL uses between nodes.
type Fabric string

const (
	// EFA is AWS's Elastic Fabric Adapter, which NCCL reaches through libfabric and the plugin
	// aws-ofi-nccl.
	EFA Fabric = "efa"
	// InfiniBand is native InfiniBand, which NCCL reaches through verbs.
	InfiniBand Fabric = "ib"
	// RoCE is RDMA over Ethernet, which NCCL reaches through verbs.
	RoCE Fabric = "roce"
	// TCP is plain sockets.
	TCP Fabric = "tcp"
)

// fabrics are in order of preference.
var fabrics = []Fabric{EFA, InfiniBand, RoCE, TCP}

// Facts are the known facts about a node's network.
type Facts struct {
	// Fabric is TCP when empty.
	Fabric Fabric
	// Devices are the usable RDMA devices of the fabric. Others are the usable devices of other
	// fabrics. Both are sorted.
	Devices, Others []string
	// Interface is the interface with the node's address; empty if there is none.
	Interface string
	// Versions are the versions of EFA's software.
	Versions Versions
}
