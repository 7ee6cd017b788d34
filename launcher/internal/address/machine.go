// Package address finds the addresses at which the nodes of a job reach each other.
package address

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/launcher/internal/usage"
	"github.com/golaunch/golaunch/placement"
)

// MachineName is the host name.
func MachineName() (string, error) {
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("this node has no name: %w; give one with --name", err)
	}
	return name, nil
}

// MachineID names this boot of the machine and this process's network namespace. Two processes have
// the same MachineID if and only if they have the same network addresses. It is empty if the system
// does not tell it.
func MachineID() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	network, noNetwork := os.Readlink("/proc/self/ns/net")
	if err != nil || noNetwork != nil {
		return ""
	}
	return strings.TrimSpace(string(boot)) + "." + strings.Trim(network, "net:[]")
}

// Loopback is 127.0.0.1 for node 0, 127.0.0.2 for node 1, and so on.
func Loopback(i int) netip.Addr {
	n := i + 1
	return netip.AddrFrom4([4]byte{127, byte(n >> 16), byte(n >> 8), byte(n)})
}

// Own returns the first of the addresses that belongs to this machine, if there is one.
func Own(addrs []netip.Addr) (netip.Addr, bool, error) {
	interfaces, err := interfaceAddrs()
	if err != nil {
		return netip.Addr{}, false, err
	}
	for _, addr := range addrs {
		if addr.IsLoopback() {
			return addr, true, nil
		}
		if slices.ContainsFunc(interfaces, func(own netip.Addr) bool { return own.WithZone("") == addr.WithZone("") }) {
			return addr, true, nil
		}
	}
	return netip.Addr{}, false, nil
}

func interfaceAddrs() ([]netip.Addr, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("cannot list this machine's addresses: %w", err)
	}
	return parsed(addrs), nil
}

// parsed returns the addresses of interfaces in the form that the rest of golaunch uses.
func parsed(all []net.Addr) (addrs []netip.Addr) {
	for _, a := range all {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			addrs = append(addrs, prefix.Addr())
		}
	}
	return addrs
}

// maxGlobal bounds the addresses that a node reports.
const maxGlobal = 16

// Global are the addresses from which processes of this machine may reach other nodes.
func Global() ([]netip.Addr, error) {
	interfaces, err := interfaceAddrs()
	if err != nil {
		return nil, err
	}
	var addrs []netip.Addr
	for _, own := range interfaces {
		if addr := own.Unmap(); addr.IsGlobalUnicast() && len(addrs) < maxGlobal {
			addrs = append(addrs, addr)
		}
	}
	return addrs, nil
}

// OfInterface returns the first IPv4 address of a network interface, or the first IPv6 address if
// it has no IPv4 address.
func OfInterface(name string) (netip.Addr, error) {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return netip.Addr{}, usage.Errorf("interface %q: %v; ip link lists them", name, err)
	}
	addrs, err := i.Addrs()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("interface %s: %w", name, err)
	}
	var found netip.Addr
	for _, addr := range parsed(addrs) {
		addr = addr.Unmap()
		if !addr.IsLinkLocalUnicast() && (!found.IsValid() || found.Is6() && addr.Is4()) {
			found = addr
		}
	}
	if !found.IsValid() {
		return found, fmt.Errorf("interface %s has no address; ip addr lists them", name)
	}
	return found, nil
}

// Parse reads an address of this machine. The error names the node.
func Parse(text, node string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return addr, usage.Errorf("address %q: an IPv4 or IPv6 address", text)
	}
	_, ours, err := Own([]netip.Addr{addr})
	if err == nil && !ours {
		err = fmt.Errorf("address %s is not one of %s's; ip addr lists them", text, node)
	}
	return addr, err
}

// OnDefaultRoute is this machine's address on its default route, or 127.0.0.1. Finding it sends no
// packet.
func OnDefaultRoute() netip.Addr {
	for _, remote := range []string{"192.0.2.1:9", "[2001:db8::1]:9"} { // reserved by RFC 5737 and RFC 3849
		conn, err := net.Dial("udp", remote)
		if err != nil {
			continue
		}
		defer conn.Close()
		return conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
	}
	return Loopback(0)
}

// Reachable is the address at which other nodes reach this one: the node's own address if it has
// one, else the address of its name, else the address on the default route.
func Reachable(ctx context.Context, node placement.Node) (netip.Addr, error) {
	if node.Addr.IsValid() {
		return node.Addr, nil
	}
	ctx, cancel := context.WithTimeout(ctx, resolveLimit)
	defer cancel()
	addrs, _ := net.DefaultResolver.LookupNetIP(ctx, "ip", node.Name) // an error is no problem: the name need not resolve
	for _, a := range addrs {
		if a = a.Unmap(); !a.IsLoopback() {
			if own, ours, err := Own([]netip.Addr{a}); err != nil || ours {
				return own, err
			}
		}
	}
	if own := OnDefaultRoute(); !own.IsLoopback() {
		return own, nil
	}
	if len(node.Others) > 0 {
		return node.Others[0], nil
	}
	return netip.Addr{}, fmt.Errorf("%s has no address that other nodes could reach; give one with --address or --interface", node.Name)
}

// Bridge names this machine's network bridge, such as docker0, that has the address. It is empty if
// no bridge has it, or if the address is the default route's.
func Bridge(addr netip.Addr) string {
	interfaces, err := net.Interfaces()
	if err != nil || addr.IsLoopback() || addr == OnDefaultRoute() {
		return ""
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	for _, i := range interfaces {
		addrs, err := i.Addrs()
		mine := func(a netip.Addr) bool { return a.Unmap().WithZone("") == addr.WithZone("") }
		if err != nil || !slices.ContainsFunc(parsed(addrs), mine) {
			continue
		}
		info, err := unix.IoctlGetEthtoolDrvinfo(fd, i.Name)
		if err == nil && unix.ByteSliceToString(info.Driver[:]) == "bridge" {
			return i.Name
		}
	}
	return ""
}
