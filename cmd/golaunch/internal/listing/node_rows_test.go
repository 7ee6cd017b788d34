package listing

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/launcher/report"
)

// TestNodeRows has a row for each node of a small cluster, and for each kind of node of a large
// one.
func TestNodeRows(t *testing.T) {
	var s Cluster
	for i := range 12_500 {
		status := report.NodeStatus{Name: fmt.Sprint("n", i), Addr: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})}
		n := Node{NodeStatus: status, State: report.NodeReady, GPUs: 8}
		if i >= 100 {
			n.Used, n.Holds = 8, []report.Holding{{Job: "train"}}
		}
		s.Nodes = append(s.Nodes, n)
	}
	s.Nodes[7].State = report.NodeSilent
	slices.SortFunc(s.Nodes, func(a, b Node) int { return strings.Compare(a.Name, b.Name) }) // in the order of a coordinator
	want := []string{
		"n[0-6,8-99]\t99 nodes\tready\t8\t0\t-\n",
		"n7\t1 node\tsilent\t8\t0\t-\n",
		"n[100-12499]\t12400 nodes\tready\t8\t8\ttrain\n",
	}
	if got := s.nodeRows(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	s.Nodes = s.Nodes[:maxNodeRows]
	if got := s.nodeRows(); len(got) != maxNodeRows || got[0] != "n0\t10.0.0.0\tready\t8\t0\t-\n" {
		t.Errorf("%q", got)
	}
}
