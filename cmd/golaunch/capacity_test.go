package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// capacity writes a capacity file.
func (h *heads) capacity(text string) string {
	h.t.Helper()
	file := filepath.Join(h.dir, "capacity.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
	return file
}

// hosts sets up the example of a provider. Its hosts are the nodes from the second on, whose agents
// declare GPUs.
func (h *heads) hosts(gpus int) string {
	h.t.Helper()
	script, err := filepath.Abs("../../examples/capacity/hosts.py")
	if err != nil {
		h.t.Fatal(err)
	}
	words := []string{"python3", script, filepath.Join(h.dir, "nodes")}
	for i, n := range h.nodes[1:] {
		words = append(words, strings.Join(n.Command("sh", "-c", fmt.Sprintf(`'exec "$@" --num-gpus %d --name n%d'`, gpus, i+1), "-").Args, " "))
	}
	for i, w := range words {
		words[i] = fmt.Sprintf("%q", w)
	}
	return "[" + strings.Join(words, ", ") + "]"
}

// TestCapacityFollowsTheQueue: a cluster without nodes gets two nodes for a job, and gives them
// back.
func TestCapacityFollowsTheQueue(t *testing.T) {
	t.Parallel()
	h := newCluster(t)
	file := h.capacity("kinds:\n  toy:\n    gpus: 2\n    max: 2\n    idle: 1s\n    exec: " + h.hosts(2) + "\n")
	coordinator := h.coordinate("--capacity", file)
	out := h.do("--nodes", "2", "--gpus-per-node", "2", "--coordinator", h.at, "--", "sh", "-c", "echo rank $RANK on $GOLAUNCH_NODE")
	for _, want := range []string{"on n1\n", "on n2\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("the job does not print %q:\n%s", want, out)
		}
	}
	coordinator.line("2 x toy requested: for job ")
	coordinator.line("toy-[a-z0-9]+-1 is given back: node n[12] was drained and has left")
	coordinator.line("toy-[a-z0-9]+-2 is given back: node n[12] was drained and has left")
	coordinator.line("toy-[a-z0-9]+-1 is gone")
	coordinator.line("toy-[a-z0-9]+-2 is gone")
	if s := h.status(); len(s.Nodes) > 0 || len(s.Requested) > 0 {
		t.Errorf("%d nodes and %d requests are left", len(s.Nodes), len(s.Requested))
	}
	left, err := os.ReadDir(filepath.Join(h.dir, "nodes"))
	if err != nil || len(left) > 0 {
		t.Errorf("the provider has %d nodes, %v", len(left), err)
	}
}

// TestHostsEndOnlyTheirOwn: the pid of a node's former process now belongs to another process,
// which must not be ended.
func TestHostsEndOnlyTheirOwn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stranger := exec.Command("cat")
	stranger.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := stranger.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	tag := filepath.Join(dir, "toy-1")
	if err := os.WriteFile(tag, fmt.Appendf(nil, "%d 1 0", stranger.Process.Pid), 0o600); err != nil {
		t.Fatal(err)
	}
	provider := exec.Command("python3", "../../examples/capacity/hosts.py", dir, "sh")
	provider.Stdin = strings.NewReader(`{"operation": "delete", "nodes": [{"tag": "toy-1"}]}`)
	if out, err := provider.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if err := errors.Join(in.Close(), stranger.Wait()); err != nil {
		t.Errorf("the process that has the number ended with %v", err)
	}
	if _, err := os.Stat(tag); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the node that has ended is still noted: %v", err)
	}
}

// TestACallEndsWithTheCoordinator: no process of a hanging provider is left, even after a kill -9
// of the coordinator.
func TestACallEndsWithTheCoordinator(t *testing.T) {
	t.Parallel()
	h := newCluster(t)
	file := h.capacity("kinds:\n  toy: {min: 1, max: 1, exec: [timeout, --foreground, \"1000\", sleep, \"1000\"]}\n")
	for _, end := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		coordinator := h.coordinate("--capacity", file)
		pid := child(t, child(t, coordinator.cmd.Process.Pid, "timeout"), "sleep")
		fd, err := pidfdOpen(pid)
		if err != nil {
			t.Fatal(err)
		}
		coordinator.signal(end)
		coordinator.wait()
		if !fd.ended(patience) {
			kill(t, pid, syscall.SIGKILL)
			t.Errorf("a child of the provider is left after signal %v", end)
		}
	}
}
