// Package topology says which NUMA node, socket, cache and core each CPU of this machine belongs
// to, and which NUMA node a PCI device is near. It reads sysfs from any file system, so a captured
// tree works as well as the machine.
//
// A missing or senseless file never ends the reading: a [Warning] says what remains unknown.
package topology

import (
	"cmp"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
)

// Level is a kind of group of CPUs below or beside NUMA nodes.
type Level string

// Levels, from the widest to the narrowest: a socket, the CPUs that share a level 3 cache (AMD's
// core complex), and the hardware threads of a core.
const (
	Socket Level = "socket"
	Cache  Level = "L3 cache"
	Core   Level = "core"
)

// lists are the files below /sys/devices/system/cpu/cpu* with the CPUs of a group. Kernels before
// 5.3 have the second name. Level 3 caches are index3 if level 1 is split into data and
// instructions.
var lists = map[Level][]string{
	Socket: {"topology/package_cpus_list", "topology/core_siblings_list"},
	Cache:  {"cache/index3/shared_cpu_list"},
	Core:   {"topology/core_cpus_list", "topology/thread_siblings_list"},
}

// Codes of warnings about unknown facts.
const (
	// CodeTopology is for files of sysfs that are missing or make no sense.
	CodeTopology = "topology"
	// CodeAffinity: the kernel did not tell which CPUs this process may use.
	CodeAffinity = "affinity"
)

// Warning is a problem that ends nothing. Codes are stable.
type Warning struct{ Code, Text string }

func (w Warning) Error() string { return fmt.Sprintf("%s (bind/%s)", w.Text, w.Code) }

// Use has the CPUs and memory that a process may use: see [Self].
type Use struct {
	// CPUs are the CPUs that the process may run on. Memory are the NUMA nodes that may be in a
	// memory policy; none if the kernel allows no policy.
	CPUs, Memory Set
	// Policed says that the process already has a memory policy, such as numactl's.
	Policed bool
}

// Node is a NUMA node that has CPUs.
type Node struct {
	ID int
	// CPUs are the node's online CPUs. Memory says that the process may use memory of the node.
	CPUs   Set
	Memory bool
	// distance has the distance to other nodes by ID, also to nodes without CPUs. The distance to
	// the node itself is 10.
	distance map[int]int
}

// Topology is how CPUs are grouped.
type Topology struct {
	Use
	// Nodes are sorted by ID. A machine without NUMA has one node, 0.
	Nodes []Node
	// Groups has, for each requested level, the online CPUs of each group, sorted by first CPU. A
	// CPU with an unknown group forms its own group. If caches are unknown, Cache is missing.
	Groups map[Level][]Set
}

// Read reads the topology from sys, which is /sys, at the given levels.
func Read(sys fs.FS, use Use, levels ...Level) (Topology, []Warning) {
	r := reader{sys: sys}
	t := Topology{Use: use, Nodes: r.nodes(use), Groups: map[Level][]Set{}}
	var online Set
	for _, n := range t.Nodes {
		online = online.Or(n.CPUs)
	}
	for _, l := range levels {
		if groups := r.groups(l, online); groups != nil {
			t.Groups[l] = groups
		}
	}
	return t, r.warnings
}

type reader struct {
	sys      fs.FS
	warnings []Warning
}

// text is the content of a file, which the kernel bounds.
func text(sys fs.FS, name string) (string, error) {
	data, err := fs.ReadFile(sys, name)
	return strings.TrimSpace(string(data)), err
}

func set(sys fs.FS, name string) (Set, error) {
	list, err := text(sys, name)
	if err != nil {
		return Set{}, err
	}
	return ParseSet(list)
}

func (r *reader) warn(format string, args ...any) {
	r.warnings = append(r.warnings, Warning{CodeTopology, fmt.Sprintf(format, args...)})
}

const nodeDir = "devices/system/node/"

// nodes are the nodes with CPUs, or one node for the whole machine.
func (r *reader) nodes(use Use) []Node {
	whole := []Node{{CPUs: use.CPUs, Memory: use.Memory.Has(0)}}
	if _, err := fs.Stat(r.sys, "devices/system/node"); err != nil {
		return whole // a kernel without NUMA
	}
	ids, err := set(r.sys, nodeDir+"has_cpu")
	if err != nil || ids.Empty() {
		r.warn("the NUMA nodes are unknown (/sys/%shas_cpu: %v): the machine counts as one", nodeDir, orEmpty(err))
		return whole
	}
	online, _ := set(r.sys, nodeDir+"online")
	filled, _ := set(r.sys, nodeDir+"has_memory")
	var nodes []Node
	for _, id := range ids.List() {
		cpus, err := set(r.sys, fmt.Sprintf("%snode%d/cpulist", nodeDir, id))
		if err != nil || cpus.Empty() {
			r.warn("the CPUs of NUMA node %d are unknown (/sys/%snode%d/cpulist: %v)", id, nodeDir, id, orEmpty(err))
			continue
		}
		nodes = append(nodes, Node{
			ID: id, CPUs: cpus, Memory: filled.Has(id) && use.Memory.Has(id), distance: r.distance(id, online.List()),
		})
	}
	if nodes == nil {
		return whole
	}
	return disjoint(nodes)
}

// disjoint keeps each CPU only in the first node that has the CPU, because golaunch relies on
// disjoint nodes.
func disjoint(nodes []Node) []Node {
	var seen Set
	for i, n := range nodes {
		nodes[i].CPUs = n.CPUs.Without(seen)
		seen = seen.Or(n.CPUs)
	}
	return nodes
}

func orEmpty(err error) string {
	if err == nil {
		return "it is empty"
	}
	return err.Error()
}

// distance reads a row of the matrix, which has a number for each online node. A senseless row
// gives no distances.
func (r *reader) distance(id int, online []int) map[int]int {
	row, _ := text(r.sys, fmt.Sprintf("%snode%d/distance", nodeDir, id))
	words := strings.Fields(row)
	if len(words) != len(online) {
		return nil
	}
	far := make(map[int]int, len(words))
	for i, word := range words {
		if d, err := strconv.Atoi(word); err == nil {
			far[online[i]] = d
		}
	}
	return far
}

// groups divides CPUs by a level. It reads one file per group.
func (r *reader) groups(l Level, cpus Set) []Set {
	var groups []Set
	var unknown Set
	for rest := cpus; !rest.Empty(); {
		cpu := rest.First()
		group, ok := r.group(l, cpu)
		if group = group.And(rest); !ok || !group.Has(cpu) {
			unknown.Add(cpu)
			group = SetOf(cpu)
		}
		groups = append(groups, group)
		rest = rest.Without(group)
	}
	switch {
	case unknown.Empty():
		return groups
	case l == Cache:
		return nil // a virtual machine, or an ARM without tables; the caller warns
	}
	r.warn("the %ss of CPUs %v are unknown (/sys/devices/system/cpu/cpu%d/%s): each counts as one",
		l, unknown, unknown.First(), lists[l][0])
	return groups
}

func (r *reader) group(l Level, cpu int) (Set, bool) {
	for _, name := range lists[l] {
		if s, err := set(r.sys, "devices/system/cpu/cpu"+strconv.Itoa(cpu)+"/"+name); err == nil {
			return s, true
		}
	}
	return Set{}, false
}

// Nearest is the index in Nodes of the usable node with that ID, or else of the usable node at the
// least distance from that ID. It is -1 if there is no such node, or the ID is unknown. A GPU's
// memory may be a NUMA node without CPUs, as on GB200.
func (t *Topology) Nearest(id int) int {
	type candidate struct{ index, distance int }
	var found []candidate
	for i, n := range t.Nodes {
		far, known := n.distance[id]
		switch {
		case !n.CPUs.Meets(&t.CPUs):
		case n.ID == id:
			return i
		case known:
			found = append(found, candidate{i, far})
		}
	}
	if len(found) == 0 {
		return -1
	}
	return slices.MinFunc(found, func(a, b candidate) int { return cmp.Compare(a.distance, b.distance) }).index
}

// Has reports whether the NUMA node with that ID has CPUs online, usable or not.
func (t *Topology) Has(id int) bool {
	return slices.ContainsFunc(t.Nodes, func(n Node) bool { return n.ID == id })
}
