package nccl

import (
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/golaunch/golaunch/internal/host/lazyregexp"
)

// Place is where a PCI device is: its folder in /sys, "devices/pci0000:00/0000:00:01.0/0000:01:00.0", empty for what is on no PCI
// bus, and its NUMA node, less than 0 when that is not known.
type Place struct {
	Path string
	NUMA int
}

// PCI is the device's address, "0000:01:00.0".
func (p Place) PCI() string {
	if p.Path == "" {
		return ""
	}
	return path.Base(p.Path)
}

// GPUPlace finds a GPU by its PCI address.
func GPUPlace(sys fs.FS, address string) Place {
	return placeOf(sys, path.Join("bus/pci/devices", address))
}

var pciAddress = lazyregexp.New(`^[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)

// placeOf follows a link to a device, or to what a driver made of one: the last PCI address on the way is its own.
func placeOf(sys fs.FS, link string) Place {
	target, err := fs.ReadLink(sys, link)
	if err != nil {
		return Place{NUMA: -1}
	}
	p := Place{Path: path.Join(path.Dir(link), target), NUMA: -1}
	for !pciAddress.Get().MatchString(path.Base(p.Path)) {
		if p.Path = path.Dir(p.Path); p.Path == "." || p.Path == "/" {
			return Place{NUMA: -1}
		}
	}
	if node, err := strconv.Atoi(attribute(sys, p.Path, "numa_node")); err == nil {
		p.NUMA = node
	}
	return p
}

// Distance says what lies between two PCI devices. The smaller the nearer; the names are those of nvidia-smi topo -m.
type Distance int

// The distances.
const (
	// PIX is one PCIe switch, PXB several, PHB a host bridge, NODE the NUMA node that both are on, and SYS what joins NUMA nodes.
	PIX Distance = iota
	PXB
	PHB
	NODE
	SYS
)

func (d Distance) String() string { return [...]string{"PIX", "PXB", "PHB", "NODE", "SYS"}[d] }

// Near measures the way between two devices by their folders. Devices below one switch have its upstream port in common, and each a
// downstream port of its own. Virtual machines often hide the switches: there, what is PHB may be nearer than it looks.
func Near(a, b Place) Distance {
	x, y := strings.Split(a.Path, "/"), strings.Split(b.Path, "/")
	common := 0
	for common < min(len(x), len(y)) && x[common] == y[common] {
		common++
	}
	const bridge = 2 // "devices", "pci0000:00"
	switch {
	case common > bridge && max(len(x), len(y)) <= common+2:
		return PIX
	case common > bridge:
		return PXB
	case common == bridge && a.Path != "":
		return PHB
	case a.NUMA >= 0 && a.NUMA == b.NUMA:
		return NODE
	}
	return SYS
}

// Nearest are the NICs of a fabric that a process can use and that no other of them is nearer to a device than.
func Nearest(to Place, nics []NIC, fabric Fabric) (near []string, distance Distance) {
	distance = SYS
	for _, n := range nics {
		if n.Fabric != fabric || n.Why != "" {
			continue
		}
		d := Near(to, n.Place)
		if d < distance {
			near, distance = nil, d
		}
		if d == distance {
			near = append(near, n.Name)
		}
	}
	return near, distance
}
