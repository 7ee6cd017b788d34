package topology

import (
	"io/fs"
	"path"
	"strconv"
)

// Unknown stands for a NUMA node of which nobody knows.
const Unknown = -1

// NodeOf is the ID of the NUMA node that a PCI device, "0000:3b:00.0", is near; Unknown where the machine does not tell. Firmware often
// leaves it open (numa_node is -1, Documentation/ABI/testing/sysfs-bus-pci); the device's CPUs tell when they are of one node.
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
