package nccl

import (
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"path"
	"slices"
	"strings"
)

// amazon is the PCI vendor whose only RDMA devices are EFA's (drivers/infiniband/hw/efa in the kernel).
const amazon = "0x1d0f"

// Interface is a network interface with its addresses and the networks that they are in.
type Interface struct {
	Name  string
	Addrs []netip.Prefix
}

// Interfaces lists this machine's.
func Interfaces() ([]Interface, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list the network interfaces: %w", err)
	}
	out := make([]Interface, 0, len(all))
	for _, i := range all {
		addrs, err := i.Addrs()
		if err != nil {
			return nil, fmt.Errorf("list the addresses of %s: %w", i.Name, err)
		}
		found := Interface{Name: i.Name}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				found.Addrs = append(found.Addrs, p)
			}
		}
		out = append(out, found)
	}
	return out, nil
}

// Detect finds the fabric of the node whose address is addr, and says how it knows. sys is the node's /sys. The first fabric that
// has an active port wins, in the order EFA, InfiniBand, RoCE; without any it is TCP.
func Detect(sys fs.FS, addr netip.Addr, interfaces []Interface) (Facts, string) {
	devices, inactive := active(sys)
	f := Facts{Fabric: TCP, Interface: carrier(addr, interfaces)}
	for _, fabric := range []Fabric{EFA, InfiniBand, RoCE} {
		switch found := devices[fabric]; {
		case len(found) == 0:
		case f.Fabric == TCP:
			f.Fabric, f.Devices = fabric, found
		default:
			f.Others = append(f.Others, found...)
		}
	}
	slices.Sort(f.Others)
	return f, f.reason(addr, inactive)
}

// active lists the RDMA devices that have an active port, by fabric, and those that have none.
func active(sys fs.FS) (devices map[Fabric][]string, inactive []string) {
	const class = "class/infiniband"
	devices = map[Fabric][]string{}
	// Without RDMA the folder does not exist; where it cannot be read, NCCL cannot use what is in it.
	entries, _ := fs.ReadDir(sys, class)
	for _, e := range entries {
		if fabric := fabricOf(sys, path.Join(class, e.Name())); fabric != "" {
			devices[fabric] = append(devices[fabric], e.Name())
		} else {
			inactive = append(inactive, e.Name())
		}
	}
	return devices, inactive
}

// fabricOf is empty for a device without an active port. The efa driver leaves its ports always active and their link layer
// unspecified (efa_query_port), so the vendor tells it apart.
func fabricOf(sys fs.FS, device string) Fabric {
	ports, _ := fs.ReadDir(sys, path.Join(device, "ports"))
	for _, p := range ports {
		port := path.Join(device, "ports", p.Name())
		link := attribute(sys, port, "link_layer")
		switch {
		case attribute(sys, port, "state") != "4: ACTIVE":
		case attribute(sys, device, "device/vendor") == amazon:
			return EFA
		case link == "InfiniBand":
			return InfiniBand
		case link == "Ethernet":
			return RoCE
		}
	}
	return ""
}

// attribute is empty when the device does not have it, as a software device has no PCI vendor.
func attribute(sys fs.FS, dir, name string) string {
	text, err := fs.ReadFile(sys, path.Join(dir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// carrier names the interface that has the address. All of 127.0.0.0/8 is on the loopback interface, whichever of it that has.
func carrier(addr netip.Addr, interfaces []Interface) string {
	addr = addr.Unmap().WithZone("")
	for _, i := range interfaces {
		for _, p := range i.Addrs {
			if p.Addr() == addr || addr.IsLoopback() && p.Contains(addr) {
				return i.Name
			}
		}
	}
	return ""
}

func (f Facts) reason(addr netip.Addr, inactive []string) string {
	what := "no RDMA device"
	switch {
	case len(f.Devices) > 0:
		what = "active ports on " + strings.Join(f.Devices, ", ")
	case len(inactive) > 0:
		what = "no active port on " + strings.Join(inactive, ", ")
	}
	where := fmt.Sprintf("%s has %s", f.Interface, addr)
	if f.Interface == "" {
		where = fmt.Sprintf("no interface has %s", addr)
	}
	return fmt.Sprintf("%s: %s; %s", f.Fabric, what, where)
}
