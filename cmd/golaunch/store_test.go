package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// TestTheStoreIsTheJobs: the store serves the job's nodes and no other machine: a third machine is
// disconnected and named.
func TestTheStoreIsTheJobs(t *testing.T) {
	t.Parallel()
	nodes, token := cluster(t)
	job := []string{
		"--nodes", "2", "--procs-per-node", "1", "--master-port", "29123", "--grace", "1s",
		"--", "sh", "-c", "echo rank $RANK is up; read line </dev/null; sleep 1000",
	}
	first := start(t, join(t, nodes[0], "n2", token, job...))
	second := start(t, join(t, nodes[1], "n10", token, job...))
	first.line("rank 0 is up")
	second.line("rank 1 is up")
	// The greeting of a torch client, and a ping.
	greet := `exec 3<>/dev/tcp/10.77.0.2/29123 && printf '\000\316\367\205\074\015\001\000\000\000' >&3; head -c 4 <&3 | wc -c`
	if _, text := start(t, nodes[2].Command("bash", "-c", greet)).wait(); !strings.HasSuffix(strings.TrimSpace(text), "0") {
		t.Errorf("a machine that is no node of the job got an answer: %q", text)
	}
	first.line("warning: store of job .*10.77.0.9")
	if _, text := start(t, nodes[1].Command("bash", "-c", greet)).wait(); strings.TrimSpace(text) != "4" {
		t.Errorf("a node of the job got %q bytes back, want the 4 of the ping", text)
	}
}

// TestAProxyOnEachNode: the ranks of the second node connect to a proxy on their own machine. The
// proxy has one connection to the first node for all of them, and admits no other machine.
func TestAProxyOnEachNode(t *testing.T) {
	t.Parallel()
	nodes, token := cluster(t)
	// A client of torch: it greets, sets a key of its own, and waits for the keys of the other
	// clients. Then it stays connected.
	const rank = `exec 3<>/dev/tcp/$MASTER_ADDR/$MASTER_PORT
printf '\000\316\367\205\074\015\001\000\000\000' >&3; head -c 4 <&3 >/dev/null
printf '\001\002\000\000\000\000\000\000\000/%d\001\000\000\000\000\000\000\000x' $RANK >&3
for peer in 0 1 2 3; do printf '\006\001\000\000\000\000\000\000\000\002\000\000\000\000\000\000\000/%d' $peer >&3; head -c 1 <&3 >/dev/null; done
echo "rank $RANK has met all at $MASTER_ADDR, and the first at $GOLAUNCH_MASTER_ADDR:$GOLAUNCH_MASTER_PORT port $MASTER_PORT"; read line </dev/null; exec sleep 1000`
	job := []string{
		"--nodes", "2", "--procs-per-node", "2", "--master-port", "29124", "--store", "proxy", "--grace", "1s", "--", "bash", "-c", rank,
	}
	first := start(t, join(t, nodes[0], "n2", token, job...))
	second := start(t, join(t, nodes[1], "n10", token, job...))
	first.line("rank 0 has met all at 10.77.0.2, and the first at 10.77.0.2:29124 port 29124")
	const met = `rank %d has met all at 10.77.0.10, and the first at 10.77.0.2:29124 port %s`
	second.line(fmt.Sprintf(met, 2, `\d+`))
	text, _ := second.out.read()
	_, port, _ := strings.Cut(text, "29124 port ")
	port, _, _ = strings.Cut(port, "\n")
	second.line(fmt.Sprintf(met, 3, port+"$"))
	out, err := nodes[0].Command("ss", "-tnH", "state", "established", "( sport = :29124 )").CombinedOutput()
	if err != nil {
		t.Fatalf("ss: %v\n%s", err, out)
	}
	if n := strings.Count(string(out), "10.77.0.10:"); n != 1 {
		t.Errorf("the second node has %d connections to the store, want 1\n%s", n, out)
	}
	greet := `exec 3<>/dev/tcp/10.77.0.10/` + port + ` && printf '\000\316\367\205\074\015\001\000\000\000' >&3; head -c 4 <&3 | wc -c`
	if _, text = start(t, nodes[0].Command("bash", "-c", greet)).wait(); !strings.HasSuffix(strings.TrimSpace(text), "0") {
		t.Errorf("another node got an answer from the proxy: %q", text)
	}
	second.line("warning: store of job .*10.77.0.2")
}

// TestATorchWithoutLibuv follows the advice of the report, on the command line and under the
// torchrun link.
func TestATorchWithoutLibuv(t *testing.T) {
	t.Parallel()
	root := os.Getenv(testRoot)
	if root == "" || os.Getuid() != 0 {
		suite.Missing(t, "let %s name a root with Debian's newest torch, and be root", testRoot)
	}
	dir := t.TempDir()
	python, script := filepath.Join(dir, "python3"), filepath.Join(dir, "meet.py")
	for path, text := range map[string]string{
		python: fmt.Sprintf(inRoot, root, os.TempDir()),
		script: "import torch.distributed as d\nnext(d.rendezvous('env://'))\nprint('met')\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	run := func(vars []string, argv ...string) (int, string) {
		cmd := exec.Command(golaunch(t), argv...)
		cmd.Dir = dir
		return start(t, cmd, vars...).wait()
	}
	code, text := run(nil, "--", python, script)
	_, remedy, told := strings.Cut(text, "start the job with ")
	flags, vars, link := strings.Cut(remedy, " (under the torchrun link: ")
	vars, _, _ = strings.Cut(vars, ")")
	if code != 1 || !told || !link {
		t.Fatalf("exit code %d, and no remedy:\n%s", code, text)
	}
	if code, text := run(nil, append(strings.Fields(flags), "--", python, script)...); code != 0 || !strings.Contains(text, "met") {
		t.Errorf("%s: exit code %d:\n%s", flags, code, text)
	}
	if code, text := run(strings.Fields(vars), "torchrun", "--no-python", python, script); code != 0 || !strings.Contains(text, "met") {
		t.Errorf("%s: exit code %d:\n%s", vars, code, text)
	}
}
