package main

import (
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/nettest"
	"github.com/golaunch/golaunch/internal/testkit/slurmtest"
)

// bridged are two machines whose docker0 bridges have the same address.
func bridged(t *testing.T) []nettest.Node {
	t.Helper()
	nodes := nettest.Nodes(t, "10.84.0.2", "10.84.0.3")
	for _, n := range nodes {
		const script = "ip link add docker0 type bridge && ip addr add 172.17.0.1/16 dev docker0 && ip link set docker0 up"
		if out, err := n.Command("sh", "-c", script).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return nodes
}

// TestMeetingAtABridge: each of two machines leads, at the address of its own docker0.
func TestMeetingAtABridge(t *testing.T) {
	t.Parallel()
	for i, n := range bridged(t) {
		p := start(t, n.Command(golaunch(t), "--nodes", "2", "--rendezvous", "172.17.0.1:29400", "--name", []string{"a", "b"}[i], "--placement-timeout", "10s", "--", "true"), secret)
		p.line("no other node has come yet: 172.17.0.1 is the address of docker0, a bridge inside this machine, .* --interface")
	}
}

// TestABridgesAddress: two nodes have the same address of a bridge, and meet at another address.
// The job ends on both.
func TestABridgesAddress(t *testing.T) {
	t.Parallel()
	nodes := bridged(t)
	for _, name := range [][]string{{"--name=a", "--name=b"}, {"--name=a", "--name=a"}} {
		job := []string{"--nodes", "2", "--rendezvous", "10.84.0.2:29400", "--interface", "docker0", "--", "true"}
		first := start(t, nodes[0].Command(append([]string{golaunch(t), name[0]}, job...)...), secret)
		first.line("waiting for 1 of 2 nodes")
		start(t, nodes[1].Command(append([]string{golaunch(t), name[1]}, job...)...), secret).ends(125, "172.17.0.1", "(--address or --interface)")
		first.ends(2, "172.17.0.1", "(--address or --interface)")
	}
}

// TestSlurmShell runs golaunch only in the first task of a step with two nodes, as from a shell
// with --pty.
func TestSlurmShell(t *testing.T) {
	s := startSlurm(t, slurmtest.Options{Nodes: 2})
	s.run("srun", "--nodes=2", "--ntasks=2", "--pty", "sh", "-c", "[ $SLURM_PROCID != 0 ] || "+golaunch(t)+" --placement-timeout=10s -- true").ends(124,
		"no other node has come yet: Slurm has started this step with a task on each of 2 nodes; if golaunch runs in that of n1 alone", "use salloc instead")
}
