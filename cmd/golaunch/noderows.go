package main

import (
	"fmt"

	"github.com/golaunch/golaunch/internal/hostlist"
)

// maxNodeRows is how many nodes have a row each. In a larger cluster those that are alike share one, as in sinfo.
const maxNodeRows = 32

// row is what status says of nodes that are alike.
type row struct {
	state      string
	gpus, used int
	jobs       string
}

// nodeRows are the rows of the table of nodes, in the order of their first nodes.
func (s clusterShown) nodeRows() (rows []string) {
	var order []row
	alike := map[row][]string{}
	for _, n := range s.Nodes {
		r := row{n.State, n.GPUs, n.Used, n.holders()}
		if len(s.Nodes) <= maxNodeRows {
			rows = append(rows, r.text(n.Name, n.Address.String()))
			continue
		}
		if alike[r] == nil {
			order = append(order, r)
		}
		alike[r] = append(alike[r], n.Name)
	}
	for _, r := range order {
		rows = append(rows, r.of(alike[r]))
	}
	return rows
}

// of is the row of nodes of a large cluster: a list of them as Slurm writes it, and how many they are.
func (r row) of(names []string) string {
	hostlist.Sort(names)
	n := fmt.Sprint(len(names), " nodes")
	if len(names) == 1 {
		n = "1 node"
	}
	return r.text(short(hostlist.Compress(names), 60), n)
}

func (r row) text(node, address string) string {
	return fmt.Sprintf("%s\t%s\t%s\t%d\t%d\t%s\n", node, address, r.state, r.gpus, r.used, r.jobs)
}
