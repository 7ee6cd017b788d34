package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/nettest"
)

// silentResolver takes queries on a node and answers none. It reports each.
func silentResolver(t *testing.T, n nettest.Node) (asked <-chan string) {
	t.Helper()
	var conn net.PacketConn
	n.Do(t, func() {
		var err error
		if conn, err = net.ListenPacket("udp", "127.0.0.1:53"); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { conn.Close() })
	queries := make(chan string, 100)
	go func() {
		for b := make([]byte, 512); ; {
			n, _, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			queries <- fmt.Sprintf("%q", b[:n])
		}
	}()
	return queries
}

// TestNoNameQueries has a resolver that never answers, like an overloaded one: a job whose nodes
// are named by address does not notice.
func TestNoNameQueries(t *testing.T) {
	t.Parallel()
	nodes, token := cluster(t)
	dir := t.TempDir()
	conf := filepath.Join(dir, "resolv.conf")
	if err := os.WriteFile(conf, []byte("nameserver 127.0.0.1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	resolves := func(cmd *exec.Cmd) *exec.Cmd {
		cmd.Args = append([]string{"unshare", "--mount", "sh", "-c", `mount --bind "$0" /etc/resolv.conf && exec "$@"`, conf}, cmd.Args...)
		cmd.Path = "/usr/bin/unshare"
		return cmd
	}
	var asked []<-chan string
	var all []*process
	for i, name := range []string{"a", "b"} {
		asked = append(asked, silentResolver(t, nodes[i]))
		all = append(all, start(t, resolves(join(t, nodes[i], name, token, "--nodes", "2", "--procs-per-node", "1", "--", "sh", "-c", "echo up $RANK"))))
	}
	for i, p := range all {
		p.ends(0, fmt.Sprintf("up %d", i))
	}
	for _, queries := range asked {
		select {
		case q := <-queries:
			t.Errorf("the resolver was asked: %s", q)
		default:
		}
	}
	start(t, resolves(nodes[0].Command("getent", "hosts", "golaunch.test"))) // so the test is able to fail
	<-asked[0]
}

// TestIPv6Alone has nodes that have only IPv6 addresses, and ranks that meet by torch's own means.
func TestIPv6Alone(t *testing.T) {
	t.Parallel()
	needTorch(t, python)
	const meet = `
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.tensor([dist.get_rank() + 1])
dist.all_reduce(x)
print("rank", dist.get_rank(), "at", os.environ["MASTER_ADDR"], "sums up to", x.item(), flush=True)
dist.destroy_process_group()`
	nodes := nettest.Nodes(t, "fd77::2", "fd77::10")
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, make([]byte, 32), 0o600); err != nil {
		t.Fatal(err)
	}
	for store, masters := range map[string][]string{"golaunch": {"fd77::2", "fd77::2"}, "proxy": {"fd77::2", "fd77::10"}} {
		var all []*process
		for _, n := range nodes {
			all = append(all, start(t, n.Command(golaunch(t), "--rendezvous", "[fd77::2]:29400", "--token-file", token, "--name", n.Addr.String()[6:],
				"--nodes", "2", "--procs-per-node", "1", "--store", store, "--", python, "-c", meet), "GLOO_SOCKET_IFNAME=eth0"))
		}
		for i, p := range all {
			p.ends(0, fmt.Sprintf("rank %d at %s sums up to 3", i, masters[i]))
		}
	}
}
