package placement

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// twin solves the same problem in the simplest correct way: it tries every assignment of groups, or
// looks at all nodes for each bundle. It returns the nodes by node rank and the number of ranks on
// each, or nil if there is no solution.
func twin(r Request, nodes []Node) ([]string, map[string]int) {
	nodes = preferred(r, nodes)
	for n := r.MaxNodes; n >= r.MinNodes; n-- {
		if names, ranks := twinOf(r, nodes, n); names != nil {
			return names, ranks
		}
	}
	return nil, nil
}

func twinOf(r Request, nodes []Node, n int) ([]string, map[string]int) {
	ranks := map[string]int{}
	if r.Strategy == StrictPack || r.PerNode[0] == AllGPUs {
		want := make([]int, n)
		for i := range want {
			want[i] = r.PerNode[i%len(r.PerNode)]
		}
		names := twinSeats(r, nodes, want)
		for i, name := range names {
			ranks[name] = want[i]
			if want[i] == AllGPUs {
				ranks[name] = twinWhole(r, nodes[slices.IndexFunc(nodes, func(n Node) bool { return n.Name == name })])
			}
		}
		return names, ranks
	}
	for i := range n {
		for range r.PerNode[i%len(r.PerNode)] {
			name, ok := twinBest(r, nodes, ranks)
			if !ok {
				return nil, nil
			}
			ranks[name]++
		}
	}
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(n Node) bool { return ranks[n.Name] == 0 })
	return twinSeats(r, nodes, make([]int, len(nodes))), ranks
}

// twinBest returns the best node for one more bundle, given the ranks on each node so far.
func twinBest(r Request, nodes []Node, ranks map[string]int) (best string, ok bool) {
	var least []float64
	for i, n := range nodes {
		used := ranks[n.Name]
		if !twinFits(r, n, used+1) || r.Strategy == StrictSpread && used > 0 {
			continue
		}
		key := []float64{2, -twinScore(r, n, used), float64(i)}
		switch _, kept := r.Keep[n.Name]; {
		case r.Strategy == Pack && used > 0:
			key = []float64{0} // Pack goes on filling this node
		case r.Strategy == Spread && used > 0:
			key = []float64{3, -twinScore(r, n, used), float64(used), float64(i)}
		case kept:
			key = []float64{1, float64(i)}
		}
		if least == nil || slices.Compare(key, least) < 0 {
			best, least = n.Name, key
		}
	}
	return best, least != nil
}

// twinWhole returns the number of ranks that a whole node runs.
func twinWhole(r Request, n Node) int {
	var slots int
	switch _, err := fmt.Sscan(n.Labels[SlotsLabel], &slots); {
	case err == nil:
		return slots
	case r.GPU && n.Labels[SlotsLabel] == "":
		return len(n.GPUs) * max(1, r.PerGPU)
	}
	return 0
}

func twinScore(r Request, n Node, used int) float64 {
	score := 0.0
	if free := float64(len(twinFree(n)) - used); r.GPU && free > 0 {
		score += (free - 1) / free
	}
	if free := float64(n.CPUs - used*r.CPUs); r.CPUs > 0 && free > 0 {
		score += (free - float64(r.CPUs)) / free
	}
	return score
}

func twinFree(n Node) []GPU {
	return slices.DeleteFunc(slices.Clone(n.GPUs), func(g GPU) bool { return g.HeldBy != "" })
}

// twinFits reports whether the node has room for a number of ranks.
func twinFits(r Request, n Node, ranks int) bool {
	if r.Order.By == ByList && !slices.Contains(r.Order.List, n.Name) {
		return false
	}
	if ranks == AllGPUs {
		if ranks = twinWhole(r, n); ranks == 0 {
			return false
		}
	}
	return (!r.GPU || ranks <= len(twinFree(n))*max(1, r.PerGPU)) && (r.CPUs == 0 || n.CPUs == 0 || ranks*r.CPUs <= n.CPUs)
}

// preferred sorts the nodes: kept nodes by rank, others by order. The names and the addresses of
// these nodes have only one digit, so they can be compared as text.
func preferred(r Request, nodes []Node) []Node {
	key := func(n Node) string {
		kept := 9
		if rank, ok := r.Keep[n.Name]; ok {
			kept = rank
		}
		switch r.Order.By {
		case ByName:
			return fmt.Sprint(kept, n.Name)
		case ByList:
			return fmt.Sprint(kept, slices.Index(r.Order.List, n.Name))
		case ByTopology:
			return fmt.Sprint(kept, cmp.Or(n.Labels[TopologyLabel], "~")+"!", n.Addr)
		}
		return fmt.Sprint(kept, n.Addr)
	}
	nodes = slices.Clone(nodes)
	slices.SortFunc(nodes, func(a, b Node) int { return cmp.Compare(key(a), key(b)) })
	return nodes
}

// twinSeats finds a node for each group. It tries kept nodes, one after the other, at the ranks
// that they had. A kept node stays there if all other groups can then get a node somehow. The other
// groups get the first solution in the order of preference.
func twinSeats(r Request, nodes []Node, want []int) []string {
	seats := make([]string, len(want))
	if !twinTry(r, nodes, want, seats, 0) {
		return nil
	}
	clear(seats)
	smallest := slices.MinFunc(want, cmp.Compare[int])
	var kept []Node
	last := -1
	for _, n := range nodes {
		if rank, ok := r.Keep[n.Name]; ok && twinFits(r, n, smallest) {
			kept, last = append(kept, n), rank
		}
	}
	for i, n := range kept {
		rank := r.Keep[n.Name]
		if last >= len(want) {
			rank = i
		}
		if rank >= len(want) || !twinFits(r, n, want[rank]) {
			continue
		}
		seats[rank] = n.Name
		if !twinTry(r, nodes, want, slices.Clone(seats), 0) {
			seats[rank] = ""
		}
	}
	twinTry(r, nodes, want, seats, 0)
	return seats
}

// twinTry finds nodes for the groups from rank on. It tries every node for each group that has none
// yet.
func twinTry(r Request, nodes []Node, want []int, seats []string, rank int) bool {
	if rank == len(want) {
		return true
	}
	if seats[rank] != "" {
		return twinTry(r, nodes, want, seats, rank+1)
	}
	for _, n := range nodes {
		if !twinFits(r, n, want[rank]) || slices.Contains(seats, n.Name) {
			continue
		}
		seats[rank] = n.Name
		if twinTry(r, nodes, want, seats, rank+1) {
			return true
		}
		seats[rank] = ""
	}
	return false
}

// world generates up to five nodes and a request for them.
func world(t *rapid.T) (Request, []Node) {
	var nodes []Node
	keep := map[string]int{}
	addrs := rapid.Permutation([]string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"}).Draw(t, "addrs")
	ranks := rapid.Permutation([]int{0, 1, 2, 3, 4, 5}).Draw(t, "ranks")
	for i := range rapid.IntRange(0, 5).Draw(t, "nodes") {
		held := rapid.SliceOfN(rapid.IntRange(0, 9), 0, 2).Draw(t, "held")
		n := node(fmt.Sprintf("n%d", i), addrs[i], rapid.IntRange(0, 5).Draw(t, "gpus"), held...)
		n.CPUs = rapid.IntRange(-1, 6).Draw(t, "cpus")
		label := rapid.SampledFrom([]string{"", "s0", "s0.a", "s0.a.b", "s0.b", "s1"}).Draw(t, "topology")
		n.Labels = map[string]string{TopologyLabel: label}
		if slots := rapid.SampledFrom([]string{"", "", "1", "2", "3", "many"}).Draw(t, "slots"); slots != "" {
			n.Labels[SlotsLabel] = slots
		}
		nodes = append(nodes, n)
		if rapid.IntRange(0, 2).Draw(t, "kept") == 0 {
			keep[n.Name] = ranks[i]
		}
	}
	r := Request{
		MaxNodes: rapid.IntRange(1, 4).Draw(t, "most"),
		GPU:      rapid.Bool().Draw(t, "gpu"),
		CPUs:     rapid.IntRange(0, 2).Draw(t, "share"),
		Strategy: rapid.SampledFrom([]Strategy{StrictPack, StrictPack, Pack, Spread, StrictSpread}).Draw(t, "strategy"),
		Keep:     keep,
	}
	r.MinNodes = rapid.IntRange(1, r.MaxNodes).Draw(t, "least")
	switch rapid.IntRange(0, 3).Draw(t, "kind") {
	case 0, 1:
		r.PerNode = rapid.SliceOfN(rapid.IntRange(1, 4), r.MaxNodes, r.MaxNodes).Draw(t, "list")
	case 2:
		r.PerNode = []int{rapid.IntRange(1, 4).Draw(t, "each")}
	default:
		r.PerNode = []int{AllGPUs}
	}
	if r.GPU && (r.Strategy == StrictPack || r.PerNode[0] == AllGPUs && r.Strategy != StrictSpread) {
		r.PerGPU = rapid.IntRange(0, 3).Draw(t, "pergpu")
	}
	r.Order.By = rapid.SampledFrom([]string{"", ByIP, ByName, ByList, ByTopology}).Draw(t, "by")
	if r.Order.By == ByList {
		names := rapid.Permutation([]string{"n0", "n1", "n2", "n3", "n4", "gone"}).Draw(t, "names")
		r.Order.List = names[:rapid.IntRange(4, len(names)).Draw(t, "named")]
	}
	return r, nodes
}

func TestSolveIsLikeTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, nodes := world(t)
		if r.Validate() != nil {
			t.Skip("not a request")
		}
		names, ranks := twin(r, nodes)
		p, err := Solve(r, nodes)
		if names == nil {
			checkReasons(t, r, nodes, err)
			return
		}
		if err != nil {
			t.Fatalf("%v, but the twin found %v, %v", err, names, ranks)
		}
		var got []string
		for _, g := range p.Groups {
			got = append(got, g.Node.Name)
			if len(g.Bundles) != ranks[g.Node.Name] {
				t.Errorf("%s has %d ranks, want %v", g.Node.Name, len(g.Bundles), ranks)
			}
		}
		if !slices.Equal(got, names) {
			t.Errorf("got nodes %v, the twin's are %v", got, names)
		}
		checkPlan(t, r, p)
	})
}

// checkReasons checks an InfeasibleError. For Ever, it solves the request again as if all GPUs were
// free.
func checkReasons(t *rapid.T, r Request, nodes []Node, err error) {
	var e *InfeasibleError
	if !errors.As(err, &e) {
		t.Fatalf("got %v, but the twin finds nothing", err)
	}
	if e.Missing == 0 && len(e.Nodes) == 0 {
		t.Errorf("no reason is given: %v", e)
	}
	free := slices.Clone(nodes)
	for i := range free {
		free[i].GPUs = slices.Clone(free[i].GPUs)
		for j := range free[i].GPUs {
			free[i].GPUs[j].HeldBy = ""
		}
	}
	if names, _ := twin(r, free); e.Missing == 0 && e.Ever != (names != nil) {
		t.Errorf("ever is %v, but free nodes give %v", e.Ever, names)
	}
}

// checkPlan checks the rules that every plan must follow.
func checkPlan(t *rapid.T, r Request, p Plan) {
	rank := 0
	used := map[string]bool{}
	for i, g := range p.Groups {
		if g.NodeRank != i || len(g.Bundles) == 0 {
			t.Errorf("group %d has node rank %d and %d ranks", i, g.NodeRank, len(g.Bundles))
		}
		for local, b := range g.Bundles {
			if b.Rank != rank || b.LocalRank != local {
				t.Errorf("rank %d is %d, local rank %d is %d", rank, b.Rank, local, b.LocalRank)
			}
			rank++
			if (b.GPU != nil) != r.GPU {
				t.Errorf("rank %d has GPU %v", b.Rank, b.GPU)
			}
			if b.GPU == nil {
				continue
			}
			shared := local%max(1, r.PerGPU) > 0
			if b.GPU.HeldBy != "" || used[b.GPU.UUID] != shared || !slices.Contains(g.Node.GPUs, *b.GPU) {
				t.Errorf("rank %d has GPU %v, which is not to be had", b.Rank, *b.GPU)
			}
			used[b.GPU.UUID] = true
			if local == 0 {
				continue
			}
			if before := g.Bundles[local-1].GPU.Index; before > b.GPU.Index || shared != (before == b.GPU.Index) {
				t.Errorf("local ranks %d and %d of node rank %d have GPUs %d and %d", local-1, local, i, before, b.GPU.Index)
			}
		}
		has := slices.CompactFunc(slices.Clone(g.Bundles), func(a, b Bundle) bool { return r.GPU && *a.GPU == *b.GPU })
		if r.GPU && r.Takes(len(g.Bundles)) != len(has) {
			t.Errorf("%d ranks are to take %d GPUs, and have %d", len(g.Bundles), r.Takes(len(g.Bundles)), len(has))
		}
	}
	if p.WorldSize() != rank {
		t.Errorf("world size %d, but %d ranks", p.WorldSize(), rank)
	}
}

func TestSolveIgnoresOrderOfNodes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, nodes := world(t)
		p, err := Solve(r, nodes)
		shuffled := slices.Clone(nodes)
		rand.New(rand.NewSource(rapid.Int64().Draw(t, "seed"))).Shuffle(len(nodes), func(i, j int) {
			shuffled[i], shuffled[j] = shuffled[j], shuffled[i]
		})
		again, errAgain := Solve(r, shuffled)
		if !reflect.DeepEqual(p, again) || !reflect.DeepEqual(err, errAgain) {
			t.Errorf("got %v, %v\nthen %v, %v", p, err, again, errAgain)
		}
	})
}

func TestNaturalIsAnOrder(t *testing.T) {
	name := rapid.StringMatching(`[a.0-2~]{0,5}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := name.Draw(t, "a"), name.Draw(t, "b"), name.Draw(t, "c")
		if natural(a, b) != -natural(b, a) || (natural(a, b) == 0) != (a == b) {
			t.Errorf("%q and %q: %d one way, %d the other", a, b, natural(a, b), natural(b, a))
		}
		if natural(a, b) < 0 && natural(b, c) < 0 && natural(a, c) >= 0 {
			t.Errorf("%q < %q < %q, but the ends are the other way round", a, b, c)
		}
	})
}

func TestNatural(t *testing.T) {
	want := []string{
		"", "7", "10", "a", "a1b9", "a01b10", "a1b10", "a2",
		"a18446744073709551617", "a36893488147419103234", "b", "n9", "n10",
	}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, natural)
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestAddresses(t *testing.T) {
	var got []netip.Addr
	want := []string{
		"9.255.0.1", "10.0.0.9", "10.0.0.10", "192.168.0.1",
		"::1", "fd00::9", "fd00::10", "fe80::1%eth0", "fe80::1%eth1",
	}
	for _, s := range want {
		got = append(got, netip.MustParseAddr(s))
	}
	got = append(got, netip.Addr{})
	slices.Reverse(got)
	slices.SortFunc(got, compareAddr)
	if text := fmt.Sprint(got); text != fmt.Sprint(append(want, "invalid IP")) {
		t.Errorf("got %v", text)
	}
}
