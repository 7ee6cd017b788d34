// Package topotest builds the /sys of machines, for tests.
package topotest

import (
	"fmt"
	"strconv"
	"strings"
	"testing/fstest"

	"github.com/golaunch/golaunch/internal/host/topology"
)

// Machine is a short description of a machine. Its cores are numbered consecutively, node by node.
// The second hardware thread of a core has the core's number plus the number of cores, as on most
// x86 machines under Linux.
type Machine struct {
	Nodes, CoresPerNode, Threads, NodesPerSocket int
	// CoresPerCache is 0 for a machine that does not describe its caches.
	CoresPerCache int
	// MemoryNodes are NUMA nodes without CPUs, behind the others; the i-th is nearest to node i
	// modulo Nodes.
	MemoryNodes int
	// GPUs are the NUMA nodes of the GPUs, which have the addresses that [GPU] returns.
	GPUs []int
	// Offline CPUs have a number and nothing else.
	Offline topology.Set
}

// Some real machines.
var (
	// P5 is AWS's instance with 8 H100, and P4d AWS's instance with 8 A100.
	P5  = Machine{Nodes: 2, CoresPerNode: 48, Threads: 2, NodesPerSocket: 1, CoresPerCache: 6, GPUs: []int{0, 0, 0, 0, 1, 1, 1, 1}}
	P4d = Machine{Nodes: 2, CoresPerNode: 24, Threads: 2, NodesPerSocket: 1, CoresPerCache: 24, GPUs: []int{0, 0, 0, 0, 1, 1, 1, 1}}
	// GB200 is a compute tray: two Grace CPUs, and four Blackwell GPUs whose memory makes NUMA
	// nodes of its own.
	GB200 = Machine{Nodes: 2, CoresPerNode: 72, Threads: 1, NodesPerSocket: 1, MemoryNodes: 32, GPUs: []int{0, 0, 1, 1}}
	// DGXA100 has two EPYC 7742 with four NUMA nodes each (NPS4). Every second NUMA node has two
	// GPUs.
	DGXA100 = Machine{
		Nodes: 8, CoresPerNode: 16, Threads: 2, NodesPerSocket: 4, CoresPerCache: 4, GPUs: []int{3, 3, 1, 1, 7, 7, 5, 5},
	}
	// Laptop has one node and no GPU.
	Laptop = Machine{Nodes: 1, CoresPerNode: 4, Threads: 2, NodesPerSocket: 1, CoresPerCache: 4}
)

// GPU is the PCI address of a machine's i-th GPU.
func GPU(i int) string { return fmt.Sprintf("0000:%02x:00.0", 0x10+i) }

// CPUs returns all online CPUs of the machine.
func (m Machine) CPUs() (all topology.Set) {
	for n := range m.Nodes {
		all = all.Or(m.NodeCPUs(n))
	}
	return all
}

// NodeCPUs returns the CPUs of a node.
func (m Machine) NodeCPUs(node int) topology.Set {
	return m.cores(node*m.CoresPerNode, m.CoresPerNode).Without(m.Offline)
}

// Use returns the whole machine, without any user's settings.
func (m Machine) Use() topology.Use {
	u := topology.Use{CPUs: m.CPUs()}
	for n := range m.Nodes + m.MemoryNodes {
		u.Memory.Add(n)
	}
	return u
}

// cores are the hardware threads of n cores.
func (m Machine) cores(first, n int) (s topology.Set) {
	for c := first; c < first+n; c++ {
		for thread := range m.Threads {
			s.Add(c + thread*m.Nodes*m.CoresPerNode)
		}
	}
	return s
}

// Sys is the machine's /sys.
func (m Machine) Sys() fstest.MapFS {
	sys := fstest.MapFS{}
	m.nodes(sys)
	for core := range m.Nodes * m.CoresPerNode {
		socket := m.NodesPerSocket * m.CoresPerNode
		lists := map[string]topology.Set{
			"topology/core_cpus_list":    m.cores(core, 1),
			"topology/package_cpus_list": m.cores(core/socket*socket, socket),
		}
		if c := m.CoresPerCache; c > 0 {
			lists["cache/index3/shared_cpu_list"] = m.cores(core/c*c, c)
		}
		online := m.cores(core, 1).Without(m.Offline)
		for _, cpu := range online.List() {
			for name, cpus := range lists {
				Put(sys, fmt.Sprintf("devices/system/cpu/cpu%d/%s", cpu, name), cpus.Without(m.Offline).String())
			}
		}
	}
	for i, node := range m.GPUs {
		Put(sys, "bus/pci/devices/"+GPU(i)+"/numa_node", strconv.Itoa(node))
		Put(sys, "bus/pci/devices/"+GPU(i)+"/local_cpulist", m.NodeCPUs(node).String())
	}
	return sys
}

func (m Machine) nodes(sys fstest.MapFS) {
	const dir = "devices/system/node/"
	all := m.Nodes + m.MemoryNodes
	Put(sys, dir+"has_cpu", fmt.Sprintf("0-%d", m.Nodes-1))
	Put(sys, dir+"has_memory", fmt.Sprintf("0-%d", all-1))
	Put(sys, dir+"online", fmt.Sprintf("0-%d", all-1))
	for n := range all {
		row := make([]string, all)
		for o := range all {
			row[o] = strconv.Itoa(m.distance(n, o))
		}
		Put(sys, fmt.Sprintf("%snode%d/distance", dir, n), strings.Join(row, " "))
		cpus := ""
		if n < m.Nodes {
			cpus = m.NodeCPUs(n).String()
		}
		Put(sys, fmt.Sprintf("%snode%d/cpulist", dir, n), cpus)
	}
}

func (m Machine) distance(a, b int) int {
	switch {
	case a == b:
		return 10
	case a%m.Nodes/m.NodesPerSocket == b%m.Nodes/m.NodesPerSocket:
		return 12
	}
	return 32
}

// Put writes a file as sysfs does, with a newline.
func Put(sys fstest.MapFS, name, text string) { sys[name] = &fstest.MapFile{Data: []byte(text + "\n")} }
