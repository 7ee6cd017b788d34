package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/sshtest"
)

// clusterFile returns a file whose nodes come from a test's provider, and a command for its verbs.
func (h *heads) clusterFile(text string) (file string, do func(args ...string) *process) {
	h.t.Helper()
	file = h.capacity(text)
	return file, func(args ...string) *process {
		h.t.Helper()
		cmd := h.nodes[0].Command(append([]string{golaunch(h.t)}, args...)...)
		cmd.Dir = h.dir
		return start(h.t, cmd, "HOME="+h.home)
	}
}

// TestUp starts a cluster on this machine, runs a job there, changes it, and ends it: no node, no
// process and no directory is left. A second up changes nothing.
func TestUp(t *testing.T) {
	t.Parallel()
	h := newCluster(t)
	text := "name: toys\nlisten: 10.77.0.2\nhead_setup: [echo ready >" + h.dir + "/setup]\nkinds:\n  toy:\n    gpus: 2\n    max: %d\n    idle: 1h\n    exec: " + h.hosts(2) + "\n"
	file, do := h.clusterFile(fmt.Sprintf(text, 1))
	do("exec", file, "true").ends(125, "cluster toys is not up; golaunch up "+file+" starts it")
	do("down", file).ends(0, "cluster toys is not up: nothing is left of it")
	do("up", file, "--dry-run").ends(0, "# toy: 0 to 1 nodes, each by", "python3 ", "# on this machine", "coordinator --json --capacity=")
	do("up", file).ends(0, "head: echo ready", "cluster toys is up; its coordinator is at 10.77.0.2:29400 on this machine")
	defer func() {
		if text, _ := os.ReadFile(filepath.Join(h.home, ".golaunch/clusters/toys/log")); t.Failed() {
			t.Logf("the coordinator's log:\n%s", text)
		}
		do("down", file, "--yes").wait()
	}()
	do("exec", file, "golaunch --nodes 1 --gpus-per-node 2 -- sh -c 'echo rank $RANK of $WORLD_SIZE'; exit 7").ends(7, "rank 1 of 2")
	do("up", file).ends(0, "cluster toys is up as the file says; nothing has changed")

	h.capacity(fmt.Sprintf(text, 2))
	do("up", file).ends(2, `- kinds.toy.max: "1"`, `+ kinds.toy.max: "2"`, "There is no terminal to ask at: give --yes")
	do("up", file, "--yes").ends(0, "cluster toys is up; its coordinator is at 10.77.0.2:29400")
	do("exec", file, "golaunch", "status").ends(0, "n1")

	do("down", file).ends(2, "End cluster toys with its jobs and all its nodes?")
	do("down", file, "-y").ends(0, "-1 is gone", "nodes given back: 1; none is left", "cluster toys is down; nothing is left of it")
	if _, err := os.Stat(filepath.Join(h.home, ".golaunch/clusters/toys")); !os.IsNotExist(err) {
		t.Errorf("the directory of the cluster is left: %v", err)
	}
	left, err := os.ReadDir(filepath.Join(h.dir, "nodes"))
	if err != nil || len(left) > 0 {
		t.Errorf("the provider has %d nodes, %v", len(left), err)
	}
	noCoordinator(t, h.home)
}

// noCoordinator checks that no coordinator runs with a state below a directory.
func noCoordinator(t *testing.T, dir string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || len(all) == 0 {
		t.Fatalf("%d processes, %v", len(all), err)
	}
	for _, file := range all {
		if text, _ := os.ReadFile(file); strings.Contains(string(text), "--state-dir="+dir) { // the process may have ended
			t.Errorf("%s still runs", strings.ReplaceAll(string(text), "\x00", " "))
		}
	}
}

// TestMistakesInAClusterFile: each mistake gives one line, and starts nothing.
func TestMistakesInAClusterFile(t *testing.T) {
	t.Parallel()
	h := newCluster(t)
	for _, c := range []struct {
		text string
		code int
		want string
	}{
		{"kinds:\n  a: {max: 1, exec: [sh, -c, 'echo no quota >&2; exit 1']}\n", 125, "a: cannot list the nodes: sh: exit status 1: no quota"},
		{"kinds:\n  a: {max: 1, exec: [echo, hello]}\n", 125, "a: cannot list the nodes: echo printed what is not its answer: \"hello"},
		{"kinds:\n  a: {max: 1, call_timeout: 1s, exec: [sleep, '60']}\n", 125, "a: cannot list the nodes: the provider did not answer within 1s"},
		{"kinds:\n  a: {max: 1, exec: [x]}\nhead: {kind: b}\n", 2, "the head is of kind b, which is not among the kinds"},
		{"cluster_name: x\nprovider: {type: aws}\nnodes: 3\n", 2, `line 3: "nodes" is no field of Ray's cluster file that golaunch knows`},
		{"files: {/x: " + h.dir + "/none}\nkinds:\n  a: {max: 1, exec: [true]}\n", 2, "line 1: stat " + h.dir + "/none: no such file or directory"},
	} {
		file, do := h.clusterFile(c.text)
		do("up", file).ends(c.code, c.want)
	}
	if left, _ := filepath.Glob(filepath.Join(h.home, ".golaunch/clusters/*/values")); len(left) > 0 {
		t.Errorf("%s is left", strings.Join(left, ", "))
	}
}

// TestUpOnALoginNode runs the coordinator on a host that ssh reaches. attach opens a shell there,
// in a terminal. In the end, nothing is left on the host.
func TestUpOnALoginNode(t *testing.T) {
	t.Parallel()
	hosts := sshtest.Start(t, 1)
	h := &heads{t: t, nodes: append(hosts.Nodes[:0:0], hosts.Head), home: t.TempDir(), dir: t.TempDir()}
	file := h.capacity("name: login\nhead: n1\nlisten: 10.78.0.9\nhead_setup: [echo ready >~/setup]\nkinds:\n" +
		`  none: {max: 1, exec: [echo, '{"nodes": []}']}` + "\n")
	do := func(stdin string, args ...string) *process {
		cmd := hosts.Command(args...)
		cmd.Dir, cmd.Stdin = h.dir, strings.NewReader(stdin)
		return start(t, cmd, "HOME="+h.home)
	}
	bin := golaunch(t)
	do("", bin, "up", file).ends(0, "head: echo ready", "cluster login is up; its coordinator is at 10.78.0.9:29400 on n1")
	do("", bin, "exec", file, "golaunch status && cat ~/setup; exit 3").ends(3, "ready")
	do("tty; echo at $GOLAUNCH_COORDINATOR; command -v golaunch; exit 5\n", "script", "-qec", bin+" attach "+file, "/dev/null").
		ends(5, "/dev/pts/", "at 10.78.0.9:29400", "/.golaunch/clusters/login/golaunch")
	do("", bin, "down", file, "--yes").ends(0, "nodes given back: 0; none is left", "cluster login is down; nothing is left of it")
	do("", "ssh", "n1", "ls ~/.golaunch/clusters; rm ~/setup").ends(0)
	left(t, hosts)
}

// TestADryRunLeavesNothing: a dry run leaves nothing, not even the key with which a machine would
// be made.
func TestADryRunLeavesNothing(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	file := filepath.Join(home, "cluster.yaml")
	if err := os.WriteFile(file, []byte("name: dry\nhead: {kind: a}\nkinds:\n  a: {max: 1, aws: [--instance-type=m5.large]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, exec.Command(golaunch(t), "up", file, "--dry-run"), "HOME="+home).
		ends(0, "# a: the head, and 0 to 1 nodes, each by", `ssh_authorized_keys: ["ssh-ed25519 KEY golaunch"]`, "# on the machine dry-head")
	if all, err := os.ReadDir(home); err != nil || len(all) != 1 {
		t.Errorf("%v, %v", all, err)
	}
}
