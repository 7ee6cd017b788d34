package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// byTopology places a job on all nodes by topology, and returns their names in the order of node
// ranks.
func byTopology(t interface{ Fatal(...any) }, nodes []Node) []string {
	r := Request{MinNodes: len(nodes), MaxNodes: len(nodes), PerNode: []int{1}, Order: Order{By: ByTopology}}
	p, err := Solve(r, nodes)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, g := range p.Groups {
		names = append(names, g.Node.Name)
	}
	return names
}

func labelled(name, addr, label string) Node {
	n := node(name, addr, 0)
	n.Labels = map[string]string{TopologyLabel: label, "rack": "r1"}
	return n
}

func TestByTopology(t *testing.T) {
	for _, tt := range []struct {
		name   string
		labels string // labels in the wanted order; the nodes' addresses are in the reverse order
	}{
		{"switches of topology/tree, as numbers", "s0.s2.n3 s0.s2.n12 s0.s10.n1 s1.s3.n0"},
		{"blocks of topology/block", "b3.n9 b3.n12 b12.n1"},
		{"without topology", "n2 n10 n11"},
		{"names with dots", "s2.n2.example.org s2.n10.example.org s10.n1.example.org"},
		{"several switches at a level", "s[0-1].s2.n1 s[0-1].s10.n0 s[2-3].s4.n0"},
		{"a level above what is below it", "s0 s0.n1 s0.s1.n2"},
		{"a level is no prefix of another", "s.n9 s1.n1 s1-b.n0"},
		{"levels without a name", ". .. ..n1 .n1 s0 s0..n1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := strings.Fields(tt.labels)
			var nodes []Node
			for i, label := range want {
				nodes = append(nodes, labelled(label, fmt.Sprintf("10.0.0.%d", 9-i), label))
			}
			if got := byTopology(t, nodes); !slices.Equal(got, want) {
				t.Errorf("got  %v\nwant %v", got, want)
			}
		})
	}
}

func TestNodesWithoutTopologyComeLast(t *testing.T) {
	got := byTopology(t, []Node{
		node("c", "10.0.0.10", 0), labelled("b", "10.0.0.9", ""),
		{Name: "f"},
		node("a", "10.0.0.8", 0),
		labelled("e", "10.0.0.12", "s0.x"), labelled("d", "10.0.0.11", "s0.x"),
	})
	if want := []string{"d", "e", "a", "b", "c", "f"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v: by label, then by address", got, want)
	}
}

// For any labels, the nodes below a switch are neighbours at every level, and the order of the
// input does not matter.
func TestNodesOfSwitchAreNeighbours(t *testing.T) {
	level := rapid.SampledFrom([]string{"s0", "s00", "s1", "s10", "s2", "n1", "b", "s[0-1]", ""})
	rapid.Check(t, func(t *rapid.T) {
		var nodes []Node
		labels := map[string]string{}
		for i := range rapid.IntRange(1, 20).Draw(t, "nodes") {
			name := string(rune('a' + i))
			labels[name] = strings.Join(rapid.SliceOfN(level, 1, 4).Draw(t, "levels"), ".")
			nodes = append(nodes, labelled(name, fmt.Sprintf("10.0.0.%d", 100-i), labels[name]))
		}
		names := byTopology(t, nodes)
		for depth := 1; depth <= 4; depth++ {
			var switches []string
			for _, name := range names {
				levels := strings.Split(cmp.Or(labels[name], "(no label)")+".(node)", ".")
				switches = append(switches, strings.Join(levels[:min(depth, len(levels))], "."))
			}
			switches = slices.Compact(switches)
			slices.Sort(switches)
			if n := len(switches); len(slices.Compact(switches)) != n {
				t.Errorf("the nodes of a switch of level %d are apart: %v with %v", depth, names, labels)
			}
		}
		shuffled := rapid.Permutation(nodes).Draw(t, "shuffled")
		if again := byTopology(t, shuffled); !slices.Equal(again, names) {
			t.Errorf("got %v, then %v", names, again)
		}
	})
}
