package listing

import (
	"fmt"
	"maps"
	"slices"

	"github.com/golaunch/golaunch/internal/host/hostlist"
	"github.com/golaunch/golaunch/launcher/report"
)

// maxNodeRows is the largest number of nodes that have a row each. In a larger cluster, like nodes
// share a row, as in sinfo.
const maxNodeRows = 32

// row is what status shows about nodes that are alike.
type row struct {
	state      report.NodeState
	gpus, used int
	jobs       string
}

// nodeRows returns the rows of the table of nodes, in the order of their first nodes.
func (s Cluster) nodeRows() (rows []string) {
	alike := map[row][]string{}
	for _, n := range s.Nodes {
		r := row{n.State, n.GPUs, n.Used, n.holders()}
		if len(s.Nodes) <= maxNodeRows {
			rows = append(rows, r.text(n.Name, n.Addr.String()))
			continue
		}
		alike[r] = append(alike[r], n.Name)
	}
	for _, names := range alike {
		hostlist.Sort(names)
	}
	for _, r := range slices.SortedFunc(maps.Keys(alike), func(a, b row) int { return hostlist.Compare(alike[a][0], alike[b][0]) }) {
		rows = append(rows, r.of(alike[r]))
	}
	return rows
}

// of returns the row of several nodes: their names as Slurm compresses them, and their number.
func (r row) of(names []string) string {
	n := fmt.Sprint(len(names), " nodes")
	if len(names) == 1 {
		n = "1 node"
	}
	return r.text(short(hostlist.Compress(names), 60), n)
}

func (r row) text(node, address string) string {
	return fmt.Sprintf("%s\t%s\t%s\t%d\t%d\t%s\n", node, address, r.state, r.gpus, r.used, r.jobs)
}
