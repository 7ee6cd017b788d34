package nccl

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// amazon is the PCI vendor that has no RDMA devices except EFA devices (drivers/infiniband/hw/efa
// in the kernel).
const amazon = "0x1d0f"

// NIC is a network device on the PCI bus: an RDMA device, or an Ethernet interface without RDMA.
type NIC struct {
	// Name is the name of the RDMA device, such as mlx5_0, or of the interface, such as eth0.
	Name string
	// Fabric is TCP for an interface.
	Fabric Fabric
	Place
	// Gbps is the rate of its link in Gbit/s; 0 if unknown.
	Gbps int
	// Device is the device file below /dev/infiniband through which a process uses the NIC, such as
	// uverbs0; empty for an interface.
	Device string
	// Why says why no process can use the NIC; empty if processes can use it.
	Why string
}

var (
	errNoPort = errors.New("no active port")
	errNoFile = errors.New("no device file: is the module ib_uverbs loaded?")
)

// NICs lists a node's NICs, sorted by fabric and name. sys is the node's /sys. A visible device may
// be unusable: a container sees all of /sys/class/infiniband, but only its own files in
// /dev/infiniband. So open must try to open the file with the given name in /dev/infiniband and
// close it again. It returns why it cannot.
func NICs(sys fs.FS, open func(name string) error) []NIC {
	files := deviceFiles(sys)
	var all []NIC
	rdma := map[string]bool{}
	for _, name := range names(sys, infiniband) {
		n := rdmaDevice(sys, name)
		n.Device = files[name]
		switch {
		case n.Why != "":
		case n.Device == "":
			n.Why = errNoFile.Error()
		default:
			if err := open(n.Device); err != nil {
				n.Why = err.Error()
			}
		}
		rdma[n.Path] = true
		all = append(all, n)
	}
	for _, name := range names(sys, "class/net") {
		if n, ok := ethernet(sys, name); ok && !rdma[n.Path] {
			all = append(all, n)
		}
	}
	slices.SortStableFunc(all, func(a, b NIC) int { return slices.Index(fabrics, a.Fabric) - slices.Index(fabrics, b.Fabric) })
	return all
}

const infiniband = "class/infiniband"

// names lists a directory. It takes a missing or unreadable directory for an empty one, since NCCL
// could not use it either.
func names(sys fs.FS, dir string) []string {
	entries, _ := fs.ReadDir(sys, dir)
	out := make([]string, len(entries))
	for i, e := range entries {
		out[i] = e.Name()
	}
	return out
}

// deviceFiles returns the name of the device file of each RDMA device
// (Documentation/ABI/stable/sysfs-class-infiniband).
func deviceFiles(sys fs.FS) map[string]string {
	files := map[string]string{}
	for _, name := range names(sys, "class/infiniband_verbs") {
		if device := attribute(sys, path.Join("class/infiniband_verbs", name), "ibdev"); device != "" {
			files[device] = name
		}
	}
	return files
}

// rdmaDevice reads an RDMA device by its active port, or else by its first port. It identifies EFA
// by the vendor, because the efa driver's ports are always active and have an unspecified link
// layer (efa_query_port).
func rdmaDevice(sys fs.FS, name string) NIC {
	dir := path.Join(infiniband, name)
	n := NIC{Name: name, Place: placeOf(sys, dir), Why: errNoPort.Error()}
	vendor := attribute(sys, dir, "device/vendor")
	for _, p := range names(sys, path.Join(dir, "ports")) {
		port := path.Join(dir, "ports", p)
		active := attribute(sys, port, "state") == "4: ACTIVE"
		if n.Fabric != "" && !active {
			continue
		}
		switch link := attribute(sys, port, "link_layer"); {
		case vendor == amazon:
			n.Fabric = EFA
		case link == "InfiniBand":
			n.Fabric = InfiniBand
		default:
			n.Fabric = RoCE
		}
		rate, _, _ := strings.Cut(attribute(sys, port, "rate"), " ") // "400 Gb/sec (4X NDR)", "2.5 Gb/sec (1X SDR)"
		gbps, _ := strconv.ParseFloat(rate, 64)
		n.Gbps = int(gbps)
		if active {
			n.Why = ""
			break
		}
	}
	return n
}

// ethernet reads a network interface. It returns false for an interface that is not a device on the
// PCI bus.
func ethernet(sys fs.FS, name string) (NIC, bool) {
	dir := path.Join("class/net", name)
	n := NIC{Name: name, Fabric: TCP, Place: placeOf(sys, dir)}
	mbps, _ := strconv.Atoi(attribute(sys, dir, "speed"))
	n.Gbps = max(mbps, 0) / 1000
	if state := attribute(sys, dir, "operstate"); state != "up" {
		n.Why = "it is " + state
	}
	return n, n.Path != ""
}

// attribute returns an attribute; empty if the device does not have it. For example, a software
// device has no PCI vendor.
func attribute(sys fs.FS, dir, name string) string {
	text, err := fs.ReadFile(sys, path.Join(dir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
