package machine

import (
	"net/netip"
	"os"

	"github.com/golaunch/golaunch/nccl"
	"github.com/golaunch/golaunch/placement"
)

// Network returns what golaunch knows about the network of this node, at addr, and how it knows.
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

// LabelNetwork labels the node with what other nodes need to know of its network.
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
