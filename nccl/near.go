package nccl

import (
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/golaunch/golaunch/internal/host/lazyregexp"
)

// Place is the place of a PCI device: its directory in /sys and its NUMA node. The directory is,
// for example, "devices/pci0000:00/0000:00:01.0/0000:01:00.0", or empty for a device on no PCI bus.
// The NUMA node is negative if unknown.
type Place struct {
	Path string
	NUMA int
}

// PCI returns the device's address, such as "0000:01:00.0".
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

// placeOf follows a link in /sys to a device, or to an object that a driver has made below a
// device. The last PCI address in the path is that of the device.
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

// Distance names the connection between two PCI devices, with the names of nvidia-smi topo -m. A
// smaller value is nearer.
type Distance int

// The distances.
const (
	// PIX is one PCIe switch, PXB several, PHB a host bridge, NODE a shared NUMA node, and SYS the
	// link between NUMA nodes.
	PIX Distance = iota
	PXB
	PHB
	NODE
	SYS
)

func (d Distance) String() string { return [...]string{"PIX", "PXB", "PHB", "NODE", "SYS"}[d] }

// Near measures the distance of two devices by their directories. The directories of devices below
// one PCIe switch share the switch's upstream port, and each has a downstream port of its own.
// Virtual machines often hide the switches. Then devices whose distance seems to be PHB may
// actually be nearer.
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

// Nearest returns the usable NICs of a fabric at the least distance from a device.
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
