// Package nettest makes network namespaces that stand for nodes: each with an address of its own,
// all on one bridge. It is for tests, on Linux, as root, with iproute2, util-linux and nftables.
// [Port] is for tests in the network of the machine itself.
package nettest

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// Node is one namespace.
type Node struct {
	Name string
	Addr netip.Addr
	// path is the namespace's file, for nsenter.
	path string
	veth string
}

// Command is a command that runs on the node. It enters the network namespace alone, so that /sys
// and the cgroups stay as they are.
func (n Node) Command(argv ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"--net=" + n.path, "--"}, argv...)...)
}

// Do runs f in the network of the node, on a thread that ends with f. Sockets that f opens stay in
// that network.
func (n Node) Do(t testing.TB, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		ns, err := unix.Open(n.path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			err = errors.Join(unix.Setns(ns, unix.CLONE_NEWNET), unix.Close(ns))
		}
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// Cut disconnects the node: connections fall silent, and are not reset. Join connects the node
// again.
func (n Node) Cut(t testing.TB)  { ip(t, "link", "set", n.veth, "down") }
func (n Node) Join(t testing.TB) { ip(t, "link", "set", n.veth, "up") }

// Firewall makes the node accept new TCP connections from other nodes only at the given ports, in
// the syntax of nftables ("29400, 30000-30100"). All others get a verdict of nftables, such as
// "drop" or "reject with tcp reset".
func (n Node) Firewall(t testing.TB, ports, verdict string) {
	t.Helper()
	n.Rules(t, fmt.Sprintf(`table inet filter {
	chain input {
		type filter hook input priority 0; policy accept;
		iif lo accept
		ct state established,related accept
		tcp dport { %s } accept
		meta l4proto tcp %s
	}
}
`, ports, verdict))
}

// Rules gives the node rules for nftables.
func (n Node) Rules(t testing.TB, rules string) {
	t.Helper()
	cmd := n.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("nft: %v\n%s\n%s", err, out, rules)
	}
}

// made counts the calls of Nodes in this process, so that names differ.
var made atomic.Int32

// Nodes makes one node for each address (such as "10.77.0.2" or "fd77::2"), on a bridge of their
// own, and removes all at the end of the test.
func Nodes(t testing.TB, addrs ...string) []Node {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("network namespaces need root")
	}
	id := fmt.Sprintf("gl%dx%d", os.Getpid()%100000, made.Add(1))
	bridge := id + "b"
	ip(t, "link", "add", bridge, "type", "bridge")
	t.Cleanup(func() { ip(t, "link", "del", bridge) })
	ip(t, "link", "set", bridge, "up")
	nodes := make([]Node, len(addrs))
	for i, addr := range addrs {
		name := fmt.Sprintf("%sn%d", id, i)
		n := Node{Name: name, Addr: netip.MustParseAddr(addr), path: "/run/netns/" + name, veth: fmt.Sprintf("%sv%d", id, i)}
		ip(t, "netns", "add", name)
		t.Cleanup(func() { ip(t, "netns", "del", name) })
		ip(t, "link", "add", n.veth, "type", "veth", "peer", "name", "eth0", "netns", name)
		t.Cleanup(func() { ip(t, "link", "del", n.veth) }) // a deleted namespace releases its interface only after some time
		ip(t, "link", "set", n.veth, "master", bridge, "up")
		prefix := []string{addr + "/24"}
		if n.Addr.Is6() {
			prefix = []string{addr + "/64", "nodad"} // no other interface has the address
		}
		ip(t, append([]string{"-n", name, "addr", "add", "dev", "eth0"}, prefix...)...)
		ip(t, "-n", name, "link", "set", "eth0", "up")
		ip(t, "-n", name, "link", "set", "lo", "up")
		nodes[i] = n
	}
	return nodes
}

func ip(t testing.TB, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
