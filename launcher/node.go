package launcher

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"

	"github.com/golaunch/golaunch/internal/gpu"
	"github.com/golaunch/golaunch/placement"
)

// thisNode is what this machine offers: its GPUs if the job wants any, and the name and address that the job gives it.
func (j Job) thisNode(ctx context.Context) (placement.Node, error) {
	node := placement.Node{Name: j.NodeName, CPUs: runtime.NumCPU()}
	var err error
	if node.Name == "" {
		if node.Name, err = os.Hostname(); err != nil {
			return node, fmt.Errorf("this node has no name: %w; give one with --name", err)
		}
	}
	if j.Address != "" {
		if node.Addr, err = netip.ParseAddr(j.Address); err != nil {
			return node, usage("address %q: an IPv4 or IPv6 address", j.Address)
		}
	}
	if !j.Request.GPU {
		return node, nil
	}
	devices, why, err := gpu.List(ctx)
	if err != nil {
		return node, fmt.Errorf("%s: %w", node.Name, err)
	}
	if len(devices) == 0 {
		return node, fmt.Errorf("%s has no GPU: %s; for CPU ranks use --procs-per-node, for declared GPUs --simulate", node.Name, why)
	}
	node.GPUs = gpu.Placement(devices)
	return node, nil
}

// declared is the i-th of the nodes that stand for machines, with as many GPUs as the job wants on it.
func (j Job) declared(i int) placement.Node {
	node := placement.Node{Name: "node" + strconv.Itoa(i), Addr: loopback(i), CPUs: runtime.NumCPU()}
	if !j.Request.GPU {
		return node
	}
	gpus := j.Request.PerNode[min(i, len(j.Request.PerNode)-1)]
	if gpus == placement.AllGPUs {
		gpus = simulatedGPUs
	}
	for n := range gpus {
		node.GPUs = append(node.GPUs, placement.GPU{Index: n})
	}
	return node
}

// simulatedGPUs is what a declared node has when the job wants all of them.
const simulatedGPUs = 8

// loopback is 127.0.0.1 for node 0, 127.0.0.2 for node 1, and so on; all of 127.0.0.0/8 is this machine.
func loopback(i int) netip.Addr {
	n := i + 1
	return netip.AddrFrom4([4]byte{127, byte(n >> 16), byte(n >> 8), byte(n)})
}

// owns finds the address of a host that belongs to this machine, if one does.
func owns(addrs []netip.Addr) (netip.Addr, bool, error) {
	interfaces, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Addr{}, false, fmt.Errorf("cannot list this machine's addresses: %w", err)
	}
	for _, addr := range addrs {
		if addr.IsLoopback() {
			return addr, true, nil
		}
		for _, own := range interfaces {
			if prefix, err := netip.ParsePrefix(own.String()); err == nil && prefix.Addr().WithZone("") == addr.WithZone("") {
				return addr, true, nil
			}
		}
	}
	return netip.Addr{}, false, nil
}

// endpoint is the addresses and the port of HOST:PORT.
func endpoint(ctx context.Context, text string) ([]netip.Addr, int, error) {
	host, portText, err := net.SplitHostPort(text)
	if err != nil {
		host, portText = text, strconv.Itoa(DefaultPort)
	}
	port, err := strconv.Atoi(portText)
	if err != nil || port < 1 || port > 65535 || host == "" {
		return nil, 0, usage("rendezvous %q: HOST:PORT with a port of 1 to 65535, such as n1:%d or [fd00::1]:%d", text, DefaultPort, DefaultPort)
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{addr}, port, nil
	}
	ctx, cancel := context.WithTimeout(ctx, resolveLimit)
	defer cancel()
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, 0, fmt.Errorf("rendezvous host %s: %w; use an address, or a name that every node can resolve", host, err)
	}
	for i := range addrs {
		addrs[i] = addrs[i].Unmap()
	}
	return addrs, port, nil
}
