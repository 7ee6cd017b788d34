package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// clusterFile is a file whose nodes are those of a test's provider, and a command for its verbs.
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
	do("down", file, "-y").ends(0, "-1 is gone", "1 nodes were given back; none is left", "cluster toys is down; nothing is left of it")
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
		if text, _ := os.ReadFile(file); strings.Contains(string(text), "--state-dir="+dir) { // it may have ended
			t.Errorf("%s still runs", strings.ReplaceAll(string(text), "\x00", " "))
		}
	}
}

// TestMistakesInAClusterFile are one line each, and start nothing.
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

// TestUpOnAWS brings up a file of Ray's at moto, by the real command of AWS: the head is an instance, and
// so are the workers. EC2 first has no capacity, and throttles. The coordinator is killed when it has
// asked for a worker. Instances are processes of one machine, each with a home directory. In the end
// moto has no instance.
func TestUpOnAWS(t *testing.T) {
	suite.LeftToAll(t, "it takes half a minute")
	python := suite.Optional(t, "GOLAUNCH_TEST_AWS", "Python with awscli and moto[server]")
	h := newCluster(t)
	bin, faults := filepath.Join(h.dir, "bin"), filepath.Join(h.dir, "faults")
	ssh := "#!/bin/sh\nfor word; do case $word in -oHostKeyAlias=*) name=${word#*=};; esac; done\nfor last; do :; done\nmkdir -p " + h.dir + "/$name\n" +
		"[ $# -gt 0 ] && exec env -u GOLAUNCH_TOKEN HOME=" + h.dir + "/$name unshare --uts sh -c 'hostname $0; exec sh -c \"$1\"' $name \"$last\"\n"
	file := filepath.Join(h.dir, "ray.yaml")
	text := `
cluster_name: vision
provider: {type: aws, region: us-west-2, use_internal_ips: true}
max_workers: 1
idle_timeout_minutes: 100
auth: {ssh_user: ubuntu}
file_mounts: {~/code: ` + h.dir + `/code}
setup_commands: [cp ~/code/a ~/b]
head_start_ray_commands: [ray start --head]
available_node_types:
  ray.head.default: {resources: {CPU: 0}, node_config: {InstanceType: m5.large, ImageId: ami-12c6146b}}
  ray.worker.default:
    min_workers: 0
    max_workers: 1
    resources: {}
    node_config: {InstanceType: m5.large, ImageId: ami-12c6146b, InstanceMarketOptions: {MarketType: spot}}
head_node_type: ray.head.default
`
	err := errors.Join(os.Mkdir(bin, 0o700), os.Mkdir(faults, 0o700), os.WriteFile(filepath.Join(bin, "ssh"), []byte(ssh), 0o700), os.WriteFile(file, []byte(text), 0o600),
		os.Mkdir(filepath.Join(h.dir, "code"), 0o700), os.WriteFile(filepath.Join(h.dir, "code/a"), []byte("content"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	moto := start(t, h.nodes[0].Command(python, "../../launcher/internal/provider/testdata/ec2.py", faults))
	port := moto.match(`(?m)^(\d+)$`)[1]
	do := func(args ...string) *process {
		cmd := h.nodes[0].Command(append([]string{golaunch(t)}, args...)...)
		cmd.Dir = h.dir
		return start(t, cmd, "HOME="+h.home, "PATH="+bin+":"+filepath.Dir(python)+":"+os.Getenv("PATH"), "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test",
			"AWS_ENDPOINT_URL=http://127.0.0.1:"+port, "GOLAUNCH_ALLOW_RUN_AS_ROOT=true")
	}
	do("up", file).ends(0, "line 9: head_start_ray_commands: not needed", "aws is asked for the head, vision-head", "head: cp ~/code/a ~/b", "cluster vision is up")
	log := filepath.Join(h.dir, "vision-head/.golaunch/clusters/vision/log")
	defer func() {
		if text, _ := os.ReadFile(log); t.Failed() {
			t.Logf("the coordinator's log:\n%s", text)
		}
		do("down", file, "--yes").wait()
	}()
	if err := os.WriteFile(filepath.Join(faults, "RunInstances"), []byte("1 500 InsufficientInstanceCapacity We have none."), 0o600); err != nil {
		t.Fatal(err)
	}
	job := do("exec", file, "golaunch --nodes 2 --procs-per-node 1 -- sh -c 'cat ~/b; echo rank $RANK of $WORLD_SIZE on $(hostname)'")
	start(t, exec.Command("sh", "-c", `until grep -q "(InsufficientInstanceCapacity)" "$0"; do sleep 0.1; done`, log)).ends(0)
	do("exec", file, "kill -9 $(grep -lsz -- ^--state-dir=$HOME/.golaunch/clusters/vision/state /proc/[0-9]*/cmdline | cut -d / -f 3)").ends(0)
	do("up", file).ends(0, "cluster vision is up")
	job.ends(0, "contentrank 0 of 2 on ", "contentrank 1 of 2 on ", "on vision-head", "on ray-worker-default-")
	do("down", file, "--yes").ends(0, "1 nodes were given back; none is left", "cluster vision is down; nothing is left of it")
	noCoordinator(t, h.dir)
}
