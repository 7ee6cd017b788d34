package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/nettest"
)

// far is a second address of the coordinator's node. It is the lowest of all addresses, so rank 0
// runs on that node.
const far = "10.76.0.2"

// farMaster gives the first node this address; of the other nodes, only the named ones have a route
// to it.
func farMaster(t *testing.T, nodes []nettest.Node, routed ...nettest.Node) {
	t.Helper()
	ip(t, nodes[0], "addr", "add", far+"/32", "dev", "eth0")
	for _, n := range routed {
		ip(t, n, "route", "add", far, "dev", "eth0")
	}
}

func ip(t *testing.T, n nettest.Node, args ...string) {
	t.Helper()
	if out, err := n.Command(append([]string{"ip"}, args...)...).CombinedOutput(); err != nil {
		t.Fatalf("ip %v: %v\n%s", args, err, out)
	}
}

// gang runs the same command on all three nodes; the first has the far address.
func gang(t *testing.T, nodes []nettest.Node, token string, args ...string) []*process {
	t.Helper()
	first := join(t, nodes[0], "n2", token, append([]string{"--address", far}, args...)...)
	var all []*process
	for _, cmd := range []*exec.Cmd{first, join(t, nodes[1], "n10", token, args...), join(t, nodes[2], "n9", token, args...)} {
		all = append(all, start(t, cmd))
	}
	return all
}

// TestANodeWithoutAWayToTheMaster: a node reaches the coordinator, but not MASTER_ADDR. Every node
// names this node, and no rank starts.
func TestANodeWithoutAWayToTheMaster(t *testing.T) {
	t.Parallel()
	for _, store := range []string{"golaunch", "rank0"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			nodes, token := cluster(t)
			farMaster(t, nodes, nodes[2])
			pair := regexp.MustCompile(`n10 \(10\.77\.0\.10\) cannot reach n2 at 10\.76\.0\.2:\d+ \(MASTER_ADDR:MASTER_PORT\): network is unreachable`)
			for _, p := range gang(t, nodes, token, "--nodes", "3", "--procs-per-node", "1", "--store", store, "--", "echo", "a rank starts") {
				code, text := p.wait()
				if code != 125 || !pair.MatchString(text) || strings.Contains(text, "a rank starts") {
					t.Errorf("exit code %d, want 125 and %v\n%s", code, pair, text)
				}
			}
		})
	}
}

// TestANodeLosesItsWayToTheMaster: a node loses its route to the master while the ranks run. When
// they start again, a spare is the master.
func TestANodeLosesItsWayToTheMaster(t *testing.T) {
	t.Parallel()
	const fails = `echo up $RANK; test $TORCHELASTIC_RESTART_COUNT = 0 || exit 0; test $RANK = 1 && while [ ! -e "$0" ]; do sleep 0.01; done && exit 1
sleep 1000`
	nodes, token := cluster(t)
	farMaster(t, nodes, nodes[1], nodes[2])
	file := filepath.Join(t.TempDir(), "go")
	job := []string{"--nodes", "2", "--spares", "1", "--procs-per-node", "1", "--", "sh", "-c", fails, file}
	a := start(t, join(t, nodes[0], "n2", token, append([]string{"--address", far}, job...)...))
	b := start(t, join(t, nodes[1], "n10", token, job...))
	a.line("up 0")
	b.line("up 1")
	a.line("attempt 0 runs") // a later state within 200 ms would hide the state of the spare
	c := start(t, join(t, nodes[2], "n9", token, job...))
	a.line("n9 .* is here as a spare")
	ip(t, nodes[1], "route", "del", far, "dev", "eth0")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a.line(`n10 \(10\.77\.0\.10\) cannot reach n2 at 10\.76\.0\.2:\d+ \(MASTER_ADDR:MASTER_PORT\): network is unreachable`)
	a.ends(0, "n2 is excluded for 1h0m0s if others will do: unreachable", "2 ranks exited 0 after 2 restarts")
	b.ends(0)
	c.ends(0, "up 0")
}

// TestRank0HasItsPort has a rank 0 that listens as Python does, without SO_REUSEADDR, after the
// others have tried the port.
func TestRank0HasItsPort(t *testing.T) {
	t.Parallel()
	const meet = `
import os, socket, time
to = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if os.environ["RANK"] == "0":
    s = socket.socket()
    s.bind(("", to[1]))
    s.listen()
    for i in range(2):
        s.accept()[0].sendall(b"hello")
    print("rank 0 has met all")
else:
    said = b""
    while said != b"hello":
        try:
            said = socket.create_connection(to).recv(5)
        except OSError:
            time.sleep(0.05)
`
	nodes, token := cluster(t)
	farMaster(t, nodes, nodes[1], nodes[2])
	all := gang(t, nodes, token, "--nodes", "3", "--procs-per-node", "1", "--store", "rank0", "--max-restarts", "0", "--", "python3", "-c", meet)
	for i, p := range all {
		if code, text := p.wait(); code != 0 || i == 0 && !strings.Contains(text, "rank 0 has met all") {
			t.Errorf("exit code %d, want 0\n%s", code, text)
		}
	}
}
