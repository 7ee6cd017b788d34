package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/fabric"
	"github.com/golaunch/golaunch/internal/testkit/nettest"
)

// checkup runs golaunch doctor --fabric on each of four nodes, whose links have 400 Mbit/s each
// way, after a fault was made on one node. It returns the output of the first node, which has rank
// 0, and whether all nodes had the expected exit code.
func checkup(t *testing.T, code int, do func(nodes []nettest.Node)) (text string, ok bool) {
	t.Helper()
	nodes := nettest.Nodes(t, "10.77.0.2", "10.77.0.3", "10.77.0.4", "10.77.0.5")
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(strings.Repeat("k", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		shape(t, n, "400mbit")
	}
	do(nodes)
	var all []*process
	for i, n := range nodes {
		all = append(all, start(t, n.Command(
			golaunch(t), "doctor", "--fabric", "--nodes", "4", "--rendezvous", "10.77.0.2:29400", "--master-port", "29123",
			"--name", []string{"a", "b", "c", "d"}[i], "--token-file", token,
		)))
	}
	ok = true
	for i, p := range all {
		got, out := p.wait()
		ok = ok && got == code
		if i == 0 {
			text = out
		} else if !strings.Contains(out, "rank 0's node has the report") {
			t.Errorf("node %d does not say where the report is:\n%s", i, out)
		}
	}
	return text, ok
}

// shape bounds what a node may send.
func shape(t *testing.T, n nettest.Node, rate string) {
	t.Helper()
	cmd := n.Command("tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "64kb", "latency", "20ms")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
}

func TestFabric(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		code int
		do   func(t *testing.T, nodes []nettest.Node)
		want []string
		not  string
	}{
		"good": {0, func(*testing.T, []nettest.Node) {}, []string{"\na     good ", "\nd     good ", "over TCP: nodes 4, tests 6, rounds 2, "}, "fabric-"},
		"a slow NIC": {
			0, func(t *testing.T, nodes []nettest.Node) { shape(t, nodes[2], "20mbit") },
			[]string{"warning: A node is slow [fabric-slow]\n  found   c: with ", "\nc     slow ", "\na     good ", "\nb     good ", "\nd     good "},
			"error:",
		},
		"a bad NIC": {
			// The node still reaches the coordinator and the store, at lower ports.
			1, func(t *testing.T, nodes []nettest.Node) {
				ip(t, nodes[1], "rule", "add", "ipproto", "tcp", "dport", "32768-60999", "blackhole")
			},
			[]string{"error: A node fails with other nodes [fabric-nic]\n  found   b: with ", "\nb     bad ", "\na     good ", "\nc     good ", "\nd     good "},
			"warning: A node", // a handshake may be given up on a busy machine
		},
		"no way between two": {
			1, func(t *testing.T, nodes []nettest.Node) {
				ip(t, nodes[1], "route", "add", "blackhole", nodes[2].Addr.String())
			},
			[]string{"error: Two nodes do not reach each other [fabric-path]\n  found   b and c: ", "\nb     good ", "\nc     good "},
			"warning: A node",
		},
	} {
		t.Run(name, func(t *testing.T) {
			// If other programs keep the machine busy, a node may indeed be slow: then the test
			// measures again.
			for try := 1; ; try++ {
				out, ok := checkup(t, c.code, func(nodes []nettest.Node) { c.do(t, nodes) })
				wrong := !ok || strings.Contains(out, c.not)
				for _, want := range c.want {
					wrong = wrong || !strings.Contains(out, want)
				}
				if !wrong {
					return
				}
				if t.Failed() || try == 3 {
					t.Fatalf("it does not print each of %q, or it prints %q, or exits otherwise than with %d:\n%s", c.want, c.not, c.code, out)
				}
			}
		})
	}
}

// TestAFabricThatFailed: a failed test has a report, and also an error.
func TestAFabricThatFailed(t *testing.T) {
	t.Parallel()
	failed := errors.New("the job's end is not known")
	for name, c := range map[string]struct {
		json, printed bool
		err           error
	}{
		"for people": {false, true, failed}, "for a program": {true, false, failed}, "no error": {true, true, nil},
	} {
		var out bytes.Buffer
		err := tellFabric(&cli.Console{Stdout: &out, JSON: c.json}, fabric.Report{Led: true}, c.err)
		if !errors.Is(err, c.err) || (out.Len() > 0) != c.printed || c.json && c.printed && !json.Valid(out.Bytes()) {
			t.Errorf("%s: %v, and it prints %q", name, err, out.String())
		}
	}
}

// TestFabricWithoutANode: one node is missing. The check does not begin, and names the node that it
// waits for.
func TestFabricWithoutANode(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(golaunch(t), "doctor", "--fabric", "--nodes", "2", "--rendezvous", "127.0.0.1:29411", "--placement-timeout", "5s")
	if code, out := start(t, cmd, "HOME="+t.TempDir()).wait(); code != 124 || !strings.Contains(out, "1 of 2 nodes") {
		t.Errorf("exit code %d, want 124\n%s", code, out)
	}
}
