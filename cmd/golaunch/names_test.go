package main

import (
	"os"
	"testing"
)

// TestMachinesOfOneName: machines with the same name join a job and a cluster, because their
// addresses distinguish them. If users have given the same name twice, they must change it.
func TestMachinesOfOneName(t *testing.T) {
	t.Parallel()
	nodes, token := cluster(t)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	var all []*process
	for _, n := range nodes {
		all = append(all, start(t, n.Command(golaunch(t), "--rendezvous", "10.77.0.2:29400", "--token-file", token, "--nodes", "3", "--procs-per-node", "1",
			"--", "sh", "-c", "echo rank $RANK on $GOLAUNCH_NODE")))
		if n.Addr == nodes[0].Addr {
			all[0].line("waiting for 2 of 3 nodes")
		}
	}
	all[0].line(`^.*rank 0 on ` + host + `$`)
	all[1].line(`there is a node ` + host + ` already, .*; this node is ` + host + `-10\.77\.0\.10$`)
	all[1].line(`^.*rank 2 on ` + host + `-10\.77\.0\.10$`)
	all[2].line(`^.*rank 1 on ` + host + `-10\.77\.0\.9$`)
	ended(t, all...)

	h := &heads{t: t, nodes: nodes, home: t.TempDir(), dir: t.TempDir(), at: clusterAt}
	h.coordinate()
	h.start(1, "agent", "--coordinator", h.at, "--num-gpus", "1").line(host + ` \(10\.77\.0\.10, 1 GPUs\) is in the cluster`)
	h.start(2, "agent", "--coordinator", h.at, "--num-gpus", "1").line(host + `-10\.77\.0\.9 \(10\.77\.0\.9, 1 GPUs\) is in the cluster`)
	h.start(0, "agent", "--coordinator", h.at, "--num-gpus", "1", "--name", host).ends(125, "there is a node "+host+" already")
}
