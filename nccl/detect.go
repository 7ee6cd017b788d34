package nccl

import (
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Interface is a network interface with its addresses and their networks.
type Interface struct {
	Name  string
	Addrs []netip.Prefix
}

// Interfaces lists this machine's network interfaces.
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

// Detect returns the facts about the network of the node with the address addr, and the evidence
// for them. root is the node's file system. open is as in [NICs]. The first fabric with a usable
// device counts, in the order EFA, InfiniBand, RoCE. Without such a device the fabric is TCP.
func Detect(root fs.FS, addr netip.Addr, interfaces []Interface, open func(name string) error) (Facts, string) {
	f := Facts{Fabric: TCP, Interface: carrier(addr, interfaces)}
	sys, err := fs.Sub(root, "sys")
	if err != nil {
		return f, err.Error()
	}
	var useless []string
	for _, n := range NICs(sys, open) {
		switch {
		case n.Fabric == TCP:
		case n.Why != "":
			useless = append(useless, fmt.Sprintf("%s: %s", n.Name, n.Why))
		case f.Fabric == TCP || f.Fabric == n.Fabric:
			f.Fabric = n.Fabric
			f.Devices = append(f.Devices, n.Name)
		default:
			f.Others = append(f.Others, n.Name)
		}
	}
	slices.Sort(f.Others)
	if f.Fabric == EFA {
		f.Versions = ReadVersions(root)
	}
	return f, f.reason(addr, useless)
}

// carrier names the interface that has the address. The loopback interface has all of 127.0.0.0/8.
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

// shown bounds the devices that a reason names.
const shown = 4

func (f Facts) reason(addr netip.Addr, useless []string) string {
	what := "no RDMA device"
	switch {
	case len(f.Devices) > 0:
		what = "it can use " + few(f.Devices)
	case len(useless) > 0:
		what = "no RDMA device that it can use (" + few(useless) + ")"
	}
	where := fmt.Sprintf("%s has %s", f.Interface, addr)
	if f.Interface == "" {
		where = fmt.Sprintf("no interface has %s", addr)
	}
	return fmt.Sprintf("%s: %s; %s", f.Fabric, what, where)
}

func few(all []string) string {
	if more := len(all) - shown; more > 0 {
		return strings.Join(all[:shown], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(all, ", ")
}
