package placement

import (
	"fmt"
	"math/rand"
	"net/netip"
	"testing"
)

// shuffledCluster returns n nodes of 8 GPUs in random order. 16 nodes share a switch.
func shuffledCluster(n int) []Node {
	nodes := make([]Node, n)
	for i := range nodes {
		nodes[i] = node(fmt.Sprintf("gpu-node-%d", i), netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}).String(), 8)
		nodes[i].Labels = map[string]string{TopologyLabel: fmt.Sprintf("spine.rack%d.leaf%d.%s", i/256, i/16, nodes[i].Name)}
	}
	rand.New(rand.NewSource(1)).Shuffle(n, func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	return nodes
}

func benchmark(b *testing.B, r Request, nodes []Node) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Solve(r, nodes); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkStrictPack(b *testing.B) {
	const n = 12_500
	nodes := shuffledCluster(n)
	r := Request{MinNodes: n, MaxNodes: n, PerNode: []int{8}, GPU: true}
	b.Run("ip", func(b *testing.B) { benchmark(b, r, nodes) })
	byName := r
	byName.Order.By = ByName
	b.Run("name", func(b *testing.B) { benchmark(b, byName, nodes) })
	byTopology := r
	byTopology.Order.By = ByTopology
	b.Run("topology", func(b *testing.B) { benchmark(b, byTopology, nodes) })
	list := r
	list.PerNode = make([]int, n)
	for i := range list.PerNode {
		list.PerNode[i] = 1 + i%8
	}
	b.Run("list", func(b *testing.B) { benchmark(b, list, nodes) })
	restart := r
	restart.Keep = make(map[string]int, n)
	for i, node := range nodes[1:] {
		restart.Keep[node.Name] = i
	}
	b.Run("restart", func(b *testing.B) { benchmark(b, restart, nodes) })
	missing := r
	missing.PerNode = []int{16}
	b.Run("infeasible", func(b *testing.B) {
		for b.Loop() {
			if _, err := Solve(missing, nodes); err == nil {
				b.Fatal("16 GPUs were found on a node of 8")
			}
		}
	})
}

func BenchmarkBundles(b *testing.B) {
	nodes := shuffledCluster(1000)
	for _, r := range []Request{
		{PerNode: []int{8}, Strategy: Pack},
		{PerNode: []int{8}, Strategy: Spread},
		{PerNode: []int{1}, Strategy: StrictSpread},
	} {
		r.MinNodes, r.MaxNodes, r.GPU = len(nodes), len(nodes), true
		b.Run(string(r.Strategy), func(b *testing.B) { benchmark(b, r, nodes) })
	}
}
