package topology

import (
	"io/fs"
	"path"
	"strconv"
)

// Unknown stands for an unknown NUMA node.
const Unknown = -1

// NodeOf is the ID of the NUMA node near a PCI device, "0000:3b:00.0", or Unknown. Firmware often
// does not name the node (numa_node is -1, Documentation/ABI/testing/sysfs-bus-pci). In that case
// the device's CPUs tell the node, if they are all in one node.
func (t *Topology) NodeOf(sys fs.FS, address string) int {
	dir := path.Join("bus/pci/devices", address)
	if node, err := text(sys, path.Join(dir, "numa_node")); err == nil {
		if id, err := strconv.Atoi(node); err == nil && id >= 0 && id < Limit {
			return id
		}
	}
	cpus, err := set(sys, path.Join(dir, "local_cpulist"))
	if err != nil || cpus.Empty() {
		return Unknown
	}
	for _, n := range t.Nodes {
		if beyond := cpus.Without(n.CPUs); beyond.Empty() {
			return n.ID
		}
	}
	return Unknown
}
