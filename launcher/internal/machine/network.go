package machine

import (
	"net/netip"
	"os"

	"github.com/golaunch/golaunch/nccl"
	"github.com/golaunch/golaunch/placement"
)

// Network returns the facts about the network of this node, whose address is addr, and the evidence
// for them.
func Network(addr netip.Addr) (nccl.Facts, string, error) {
	interfaces, err := nccl.Interfaces()
	if err != nil {
		return nccl.Facts{}, "", err
	}
	facts, why := nccl.Detect(os.DirFS("/"), addr, interfaces, OpenDevice)
	return facts, why, nil
}

// OpenDevice fails if this process could not use an RDMA device.
func OpenDevice(name string) error {
	f, err := os.OpenFile("/dev/infiniband/"+name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// LabelNetwork gives the node a label with the facts about its network that other nodes need.
func LabelNetwork(node *placement.Node) error {
	facts, _, err := Network(node.Addr)
	if err != nil {
		return err
	}
	if node.Labels == nil {
		node.Labels = map[string]string{}
	}
	node.Labels[nccl.Label] = facts.Own().String()
	return nil
}
