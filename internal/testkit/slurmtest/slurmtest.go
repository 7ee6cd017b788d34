// Package slurmtest runs a real Slurm for the length of a test: a head node with munged and
// slurmctld, and compute nodes with a slurmd each. A node consists of namespaces of this machine.
// Each node has a host name, and a network with an address of its own (package nettest). A compute
// node also has a process namespace. When that ends, all processes that a job has left behind end
// too. A Slurm of the machine stays untouched, and several clusters can run at once. The package is
// for tests, on Linux, as root, with the requirements of nettest, and with Debian's packages
// slurmctld, slurmd, slurm-client and munge.
package slurmtest

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/nettest"
	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// Options describes the cluster.
type Options struct {
	// Nodes is the number of compute nodes, 1 if it is 0. They are called n1, n2 and so on.
	Nodes int
	// CPUs is the number of CPUs that Slurm believes a node to have, no matter how many the machine
	// has; 0 means 8.
	CPUs int
	// GPUs is the number of gres/gpu of a node. They are names for /dev/null: Slurm hands out their
	// indices (CUDA_VISIBLE_DEVICES).
	GPUs int
	// Topology is topology.conf, for Config's TopologyPlugin.
	Topology string
	// Config overrides slurm.conf, parameter by parameter: "KillWait": "1".
	Config map[string]string
}

// Cluster is a running Slurm.
type Cluster struct {
	// Head is the node on which slurmctld and the commands run.
	Head nettest.Node
	// Nodes are the compute nodes, named and ordered as in Slurm. Their addresses, 10.79.0.10, .9,
	// .12, .11 and so on, have another order, and yet another as text.
	Nodes []nettest.Node

	t testing.TB
	// dir has everything that Slurm writes.
	dir string
	// died gets a text for each daemon that ends.
	died chan string
}

// Start returns a cluster whose nodes are all idle. At the end of the test, it ends the cluster
// with all its processes. The logs of its daemons are shown if the test fails. Where Slurm is not
// installed the test is skipped, or fails if CI=true.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	need(t)
	o.Nodes, o.CPUs = cmp.Or(o.Nodes, 1), cmp.Or(o.CPUs, 8)
	addrs := []string{"10.79.0.2"}
	for i := range o.Nodes {
		addrs = append(addrs, fmt.Sprintf("10.79.0.%d", 9+(i^1)))
	}
	dir, err := os.MkdirTemp("/tmp", fmt.Sprintf("slurm%d-", os.Getpid())) //nolint:usetesting // short, for the sockets in it
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{t: t, dir: dir, died: make(chan string, 2+o.Nodes)}
	t.Cleanup(c.remove)
	if err := os.Chmod(dir, 0o711); err != nil { // munged wants its socket within anyone's reach
		t.Fatal(err)
	}
	nodes := nettest.Nodes(t, addrs...)
	for _, n := range nodes {
		t.Cleanup(func() { c.empty(n.Name) })
	}
	c.Head, c.Nodes = nodes[0], nodes[1:]
	c.Head.Name = "head"
	for i := range c.Nodes {
		c.Nodes[i].Name = fmt.Sprintf("n%d", i+1)
	}
	c.configure(o)
	c.boot()
	return c
}

// need skips the test where Slurm is not installed.
func need(t testing.TB) {
	t.Helper()
	for _, program := range []string{"munged", "slurmctld", "slurmd", "srun"} {
		_, err := exec.LookPath(program)
		if err == nil {
			continue
		}
		suite.Missing(t, "there is no Slurm: apt-get install slurmctld slurmd slurm-client munge")
	}
}

// Command returns a command that runs on the head node, such as srun, and knows the nodes by name.
// If the command still runs when the test ends, it is killed with all its children. The namespaces
// are in its SysProcAttr: the caller may add to this value, but must not replace it.
func (c *Cluster) Command(argv ...string) *exec.Cmd {
	return c.on(context.Background(), c.Head, `exec "$@"`, argv...)
}

// on returns a shell script that runs on a node with argv as its arguments: in the node's network,
// with its host name, and with an /etc/hosts that has the cluster's nodes.
func (c *Cluster) on(ctx context.Context, n nettest.Node, script string, argv ...string) *exec.Cmd {
	script = `mount --bind "$0/hosts" /etc/hosts && hostname "$1" && shift && ` + script
	argv = n.Command(append([]string{"sh", "-c", script, c.dir, n.Name}, argv...)...).Args
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	outer := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "SLURM_") })
	cmd.Env = append(outer, "SLURM_CONF="+c.file("slurm.conf"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS}
	return cmd
}

func (c *Cluster) file(name string) string { return filepath.Join(c.dir, name) }
