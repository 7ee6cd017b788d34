package main

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/nccltest"
	"github.com/golaunch/golaunch/internal/testkit/nettest"
)

// walled has nodes whose firewalls allow the coordinator's port and a range, with a verdict for all
// other ports.
func walled(t *testing.T, verdict string, addrs ...string) (nodes []nettest.Node, token string) {
	t.Helper()
	nodes = nettest.Nodes(t, addrs...)
	for _, n := range nodes {
		n.Firewall(t, "29400, 18000-18010", verdict)
	}
	return nodes, tokenFile(t)
}

const wallRange = "18000:18010"

// inRange checks that a port is in the range.
func inRange(port string) bool {
	n, err := strconv.Atoi(port)
	return err == nil && n >= 18000 && n <= 18010
}

// listens prints the ports of this rank's node that other nodes can reach.
const listens = `echo rank $RANK meets at $MASTER_ADDR:$MASTER_PORT within $GOLAUNCH_PORTS; ss -Hltn | awk '$4 !~ /^(127\.|\[::1\])/ {print "rank '$RANK' hears " $4}'`

// TestPortRangeThroughFirewall runs a job on three nodes that may all lead, behind firewalls that
// allow only the coordinator's port and the job's range.
func TestPortRangeThroughFirewall(t *testing.T) {
	t.Parallel()
	for _, store := range []string{"golaunch", "proxy", "rank0"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			nodes, token := walled(t, "drop", "10.77.0.2", "10.77.0.3", "10.77.0.4")
			var all []*process
			for i, n := range nodes {
				all = append(all, start(t, join(t, n, fmt.Sprint("n", i), token, "--port-range", wallRange, "--nodes", "3", "--procs-per-node", "1",
					"--store", store, "--", "sh", "-c", listens)))
			}
			meets := regexp.MustCompile(`rank (\d) meets at [0-9.]+:(\d+) within (\S+)`)
			hears := regexp.MustCompile(`rank \d hears \S+:(\d+)`)
			for _, p := range all {
				code, text := p.wait()
				if code != 0 {
					t.Fatalf("exit code %d, want 0\n%s", code, text)
				}
				at := meets.FindStringSubmatch(text)
				if at == nil || !inRange(at[2]) || at[3] != wallRange {
					t.Errorf("the ranks meet elsewhere than in the range: %q\n%s", at, text)
				}
				for _, m := range hears.FindAllStringSubmatch(text, -1) {
					if m[1] != "29400" && !inRange(m[1]) {
						t.Errorf("a node listens at port %s\n%s", m[1], text)
					}
				}
				if store != "rank0" && !hears.MatchString(text) {
					t.Errorf("it listens nowhere\n%s", text)
				}
			}
		})
	}
}

// TestTheDocumentedFirewall runs torch on two nodes with the rules of docs/network.md, and with the
// matching ports that the kernel chooses.
func TestTheDocumentedFirewall(t *testing.T) {
	t.Parallel()
	torch := cmp.Or(os.Getenv(testPython), python)
	needTorch(t, torch)
	text, err := os.ReadFile("../../docs/network.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rules, found := strings.Cut(string(text), "```nft\n")
	rules, _, closed := strings.Cut(rules, "```")
	sysctl := regexp.MustCompile(`(?m)^    sysctl -w "?(net\.ipv4\.ip_local_port_range)="?(\d+ \d+)"$`).FindSubmatch(text)
	if !found || !closed || sysctl == nil {
		t.Fatal("docs/network.md has no rules for nftables, or no sysctl, any more")
	}
	nodes, token := nettest.Nodes(t, "10.77.0.2", "10.77.0.3"), tokenFile(t)
	for _, n := range nodes {
		n.Rules(t, strings.ReplaceAll(rules, "10.0.0.0/16", "10.77.0.0/24"))
		if out, err := n.Command("sysctl", "-w", fmt.Sprintf("%s=%s", sysctl[1], sysctl[2])).CombinedOutput(); err != nil {
			t.Fatalf("sysctl: %v\n%s", err, out)
		}
	}
	script, err := filepath.Abs("../../examples/torch-ddp/train.py")
	if err != nil {
		t.Fatal(err)
	}
	job := []string{
		"--port-range", "30000:30100", "--nodes", "2", "--procs-per-node", "1", "--max-restarts", "0",
		"--", torch, script, "--steps", "3", "--checkpoint", filepath.Join(t.TempDir(), "ddp.pt"),
	}
	var all []*process
	for i, n := range nodes {
		all = append(all, start(t, join(t, n, fmt.Sprint("n", i), token, job...), "GLOO_SOCKET_IFNAME=eth0"))
	}
	if out := ended(t, all...); !strings.Contains(out, "loss") {
		t.Errorf("it has not trained:\n%s", out)
	}
}

// TestAJobStoppedByAFirewall: the error names both nodes and the port, and says how the attempt
// ended.
func TestAJobStoppedByAFirewall(t *testing.T) {
	t.Parallel()
	for verdict, why := range map[string]string{
		"drop":                  `connection timed out \(a firewall drops it, or the machine is gone\)`,
		"reject with tcp reset": `connection refused \(nothing listens there, or a firewall rejects it\)`,
	} {
		t.Run(verdict, func(t *testing.T) {
			t.Parallel()
			nodes, token := walled(t, verdict, "10.77.0.2", "10.77.0.3")
			a, b := both(t, nodes, token, "--nodes", "2", "--procs-per-node", "1", "--", "echo", "a rank starts")
			pair := regexp.MustCompile(`b \(10\.77\.0\.3\) cannot reach a at 10\.77\.0\.2:\d+ \(MASTER_ADDR:MASTER_PORT\): ` + why)
			for _, p := range []*process{a, b} {
				code, text := p.wait()
				if code != 125 || !pair.MatchString(text) || !strings.Contains(text, "--port-range") || strings.Contains(text, "a rank starts") {
					t.Errorf("exit code %d, want 125 and %v\n%s", code, pair, text)
				}
			}
		})
	}
}

// TestDoctorThroughAFirewall names both nodes of each pair, and the port, or finds nothing with the
// range that the firewall lets through.
func TestDoctorThroughAFirewall(t *testing.T) {
	t.Parallel()
	fake := nccltest.Libraries(t)
	for name, c := range map[string]struct {
		walls, verdict string // the nodes that have a firewall
		env, args      []string
		want           []string
	}{
		"the range": {"ab", "drop", nil, []string{"--port-range", wallRange}, nil},
		"dropped both ways": {"ab", "drop", nil, []string{"--master-port", "29400"}, []string{
			`a \(10\.77\.0\.2\) cannot reach b at 10\.77\.0\.3, port \d+: no answer within 2s \(a firewall drops it, or`,
			`b \(10\.77\.0\.3\) cannot reach a at 10\.77\.0\.2, port \d+: no answer within 2s \(a firewall drops it, or`,
		}},
		"rejected by the one": {"a", "reject with tcp reset", nil, []string{"--master-port", "29400"}, []string{
			`b \(10\.77\.0\.3\) cannot reach a at 10\.77\.0\.2, port \d+: connection refused \(nothing listens there, or a firewall rejects it\)`,
		}},
		"forbidden by the other": {"b", "reject with icmpx type admin-prohibited", nil, []string{"--master-port", "29400"}, []string{
			`a \(10\.77\.0\.2\) cannot reach b at 10\.77\.0\.3, port \d+: no route to host \(.* or a firewall rejects it\)`,
		}},
		"NCCL fails": {"ab", "drop", []string{"LD_LIBRARY_PATH=" + fake, "FAKE_NCCL=b=link"}, []string{"--port-range", wallRange, "--libnccl", fake + "/libnccl.so.2"}, []string{
			`socketStartConnect: Connect to 10\.0\.0\.9 failed; b \(10\.77\.0\.3\) cannot reach a at 10\.77\.0\.2, port \d+: no answer within 2s`,
		}},
		"NCCL has its own network": {
			"ab", "drop", []string{"LD_LIBRARY_PATH=" + fake}, []string{"--port-range", wallRange, "--libnccl", fake + "/libnccl.so.2"}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodes, token := nettest.Nodes(t, "10.77.0.2", "10.77.0.3"), tokenFile(t)
			args := append([]string{"doctor", "--fabric", "--nodes", "2", "--rendezvous", "10.77.0.2:29401", "--token-file", token}, c.args...)
			var all []*process
			for i, node := range []string{"a", "b"} {
				if strings.Contains(c.walls, node) {
					nodes[i].Firewall(t, "29400, 29401, 18000-18010", c.verdict)
				}
				all = append(all, start(t, nodes[i].Command(append([]string{golaunch(t), "--name", node}, args...)...), c.env...))
			}
			code, text := all[0].wait()
			if want := min(1, len(c.want)); code != want {
				t.Errorf("exit code %d, want %d\n%s", code, want, text)
			}
			for _, want := range c.want {
				if !regexp.MustCompile(want).MatchString(text) {
					t.Errorf("it does not say %q:\n%s", want, text)
				}
			}
			all[1].wait()
		})
	}
}

// TestAClusterThroughAFirewall: agents listen within the range of their node, or within the part of
// it that a job allows. A job whose range has no port in common with the range of the node ends.
func TestAClusterThroughAFirewall(t *testing.T) {
	t.Parallel()
	nodes, token := walled(t, "drop", "10.77.0.2", "10.77.0.3")
	home := t.TempDir()
	run := func(n nettest.Node, args ...string) *process {
		t.Helper()
		return start(t, n.Command(append([]string{golaunch(t)}, args...)...), "HOME="+home, "GOLAUNCH_COORDINATOR=")
	}
	if err := os.Mkdir(filepath.Join(home, ".golaunch"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(token, filepath.Join(home, ".golaunch", "token")); err != nil {
		t.Fatal(err)
	}
	head := run(nodes[0], "coordinator", "--listen", "10.77.0.2", "--port-range", wallRange)
	head.line(`golaunch agent --coordinator 10\.77\.0\.2:18000`)
	for i, n := range nodes {
		run(n, "agent", "--coordinator", "10.77.0.2:18000", "--name", fmt.Sprint("n", i), "--port-range", wallRange).line(" is in the cluster of ")
	}
	job := func(args ...string) (int, string) {
		t.Helper()
		p := run(nodes[1], append(append([]string{"--coordinator", "10.77.0.2:18000", "--nodes", "2", "--procs-per-node", "1"}, args...), "--", "sh", "-c",
			"echo at $MASTER_PORT of $GOLAUNCH_PORTS")...)
		return p.wait()
	}
	at := regexp.MustCompile(`at (\d+) of (\S+)`)
	if code, text := job(); code != 0 || at.FindStringSubmatch(text) == nil || !inRange(at.FindStringSubmatch(text)[1]) {
		t.Errorf("exit code %d, want 0 and a port of %s\n%s", code, wallRange, text)
	}
	if code, text := job("--port-range", "18010:18999"); code != 0 || !strings.Contains(text, "at 18010 of 18010:18010") {
		t.Errorf("exit code %d, want 0 and port 18010\n%s", code, text)
	}
	if code, text := job("--port-range", "31000:31999"); code == 0 || !strings.Contains(text, "this node listens on ports 18000:18010 only") {
		t.Errorf("exit code %d, want 125\n%s", code, text)
	}
}

// TestARendezvousWithoutAPort: a rendezvous without a port uses the first port of the range.
func TestARendezvousWithoutAPort(t *testing.T) {
	t.Parallel()
	nodes, token := walled(t, "drop", "10.77.0.2", "10.77.0.3")
	a, b := both(t, nodes, token, "--rendezvous", "10.77.0.2", "--port-range", wallRange, "--nodes", "2", "--procs-per-node", "1", "--", "sh", "-c", listens)
	a.ends(0, "hears 10.77.0.2:18000\n")
	b.ends(0, "b asks to join at 10.77.0.2:18000\n")
}

// TestABusyRange: the error says which range is busy, and on which node.
func TestABusyRange(t *testing.T) {
	t.Parallel()
	nodes, token := nettest.Nodes(t, "10.77.0.2", "10.77.0.3"), tokenFile(t)
	holder := start(t, nodes[0].Command("python3", "-c", `
import socket, time
held = [socket.create_server(("10.77.0.2", port)) for port in (30000, 30001)]
print("held", flush=True)
time.sleep(1000)`))
	holder.line("held")
	a, b := both(t, nodes, token, "--nodes", "2", "--procs-per-node", "1", "--max-restarts", "0", "--port-range", "30000:30001", "--", "echo", "a rank starts")
	for _, p := range []*process{a, b} {
		code, text := p.wait()
		if code != 125 || !regexp.MustCompile(`a.*: all 2 ports of 30000:30001 \(--port-range\) are in use at 10\.77\.0\.2`).MatchString(text) {
			t.Errorf("exit code %d, want 125 and the range\n%s", code, text)
		}
	}
}

// TestTorchrunWithinARange sets the range by its variable; a given port stays unchanged.
func TestTorchrunWithinARange(t *testing.T) {
	t.Parallel()
	node := nettest.Nodes(t, "10.77.0.2")[0]
	for given, want := range map[string]string{"": "at 18010 of 18010:18010\n", "18020": "at 18020 of 18010:18010\n"} {
		args := []string{golaunch(t), "torchrun", "--nproc-per-node", "1"}
		if given != "" {
			args = append(args, "--master-port", given)
		}
		cmd := node.Command(append(args, "--no-python", "sh", "-c", "echo at $MASTER_PORT of $GOLAUNCH_PORTS")...)
		start(t, cmd, "HOME="+t.TempDir(), "GOLAUNCH_PORT_RANGE=18010:18010", "GOLAUNCH_COORDINATOR=").ends(0, want)
	}
}

// TestBadRanges: a bad range is a usage error of every verb that listens, by flag and by variable.
func TestBadRanges(t *testing.T) {
	verbs := [][]string{
		{"run", "--", "true"},
		{"agent", "--coordinator", "127.0.0.1:29412"},
		{"coordinator", "--listen", "127.0.0.1:0"},
		{"dashboard", "--listen", "127.0.0.1:0"},
		{"doctor", "--fabric"},
		{"torchrun", "--nproc-per-node", "1", "--no-python", "true"},
	}
	for text, want := range map[string]string{
		"5:3": "it ends before it begins", "0:10": `"0" is no port`, "70000": "FIRST:LAST", "a:b": `"a" is no port`, "30000": "FIRST:LAST",
	} {
		for _, verb := range verbs {
			cmd := exec.Command(golaunch(t), verb...)
			code, out := start(t, cmd, "HOME="+t.TempDir(), "GOLAUNCH_PORT_RANGE="+text, "GOLAUNCH_COORDINATOR=").wait()
			if code != 2 || !strings.Contains(out, want) {
				t.Errorf("%v with %s: exit code %d, want 2 and %q\n%s", verb, text, code, want, out)
			}
		}
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{
			[]string{"--hosts", "n1,n2", "--port-range", "30000:30000", "--", "true"},
			"port range 30000:30000 has 1 ports, and a node of this job may listen on 2: the coordinator, the store at MASTER_PORT",
		},
		{[]string{"--rendezvous", "n1", "--nodes", "2", "--port-range", "30000:30000", "--", "true"}, "may listen on 2"},
	} {
		if code, out := start(t, exec.Command(golaunch(t), c.args...), "HOME="+t.TempDir(), "GOLAUNCH_COORDINATOR=").wait(); code != 2 || !strings.Contains(out, c.want) {
			t.Errorf("%v: exit code %d, want 2 and %q\n%s", c.args, code, c.want, out)
		}
	}
}
