package placement

import "slices"

// Solve places the job on the nodes. The order of nodes does not matter, and Solve does not change
// nodes. A GPU counts as free only if its HeldBy is empty. So the caller must clear HeldBy of GPUs
// that the job itself held in an earlier attempt.
//
// With StrictPack, each node rank in turn takes the first suitable node, by Keep and then by Order.
// A node is suitable if it has room for the rank's entry of PerNode, and if the remaining nodes
// then still suffice for the later ranks. So Solve finds a plan whenever there is one. With the
// other strategies, Solve first chooses nodes by the rules in [Strategy], and then gives these
// nodes their ranks by Keep and Order in the same way.
//
// Solve takes O(n log n + n k) time for n nodes and k different entries in PerNode. When Spread
// uses nodes again, each bundle takes O(log n) more.
//
// The error is an [*InfeasibleError] when the nodes do not suffice. Any other error is a mistake in
// the request (see [Request.Validate]), two nodes with one name, or two machines with one address.
func Solve(r Request, nodes []Node) (Plan, error) {
	if err := r.Validate(); err != nil {
		return Plan{}, err
	}
	candidates, err := r.candidates(nodes)
	if err != nil {
		return Plan{}, err
	}
	n := r.fit(candidates, (*candidate).now)
	if n < r.MinNodes {
		return Plan{}, r.infeasible(candidates)
	}
	if r.wholeGroups() {
		return r.plan(r.packGroups(candidates, n)), nil
	}
	return r.plan(r.placeBundles(candidates, r.bundles(n))), nil
}

// fit returns the largest number of nodes, up to MaxNodes, for which the candidates have room.
func (r Request) fit(candidates []*candidate, room func(*candidate) int) int {
	if r.wholeGroups() {
		want := r.entries(min(r.MaxNodes, len(candidates)))
		l := newLedger(want, candidates, room)
		if i := slices.IndexFunc(want, func(size int) bool { return !l.add(size) }); i >= 0 {
			return i
		}
		return len(want)
	}
	sum := 0
	for _, c := range candidates {
		sum += r.usable(room(c))
	}
	n := 0
	for ; n < r.MaxNodes && sum >= r.entry(n); n++ {
		sum -= r.entry(n)
	}
	return n
}

// plan returns the plan. It assigns ranks, and each node's free GPUs, in their order. groups are in
// the order of node ranks.
func (r Request) plan(groups []*candidate) Plan {
	world := 0
	for _, c := range groups {
		world += c.take
	}
	bundles := make([]Bundle, 0, world)
	p := Plan{Groups: make([]Group, len(groups))}
	for rank, c := range groups {
		first := len(bundles)
		bundles = r.deal(bundles, c)
		p.Groups[rank] = Group{Node: *c.node, NodeRank: rank, Bundles: bundles[first:len(bundles):len(bundles)]}
	}
	return p
}

// deal appends the bundles of one group to bundles.
func (r Request) deal(bundles []Bundle, c *candidate) []Bundle {
	gpu := -1
	for local := range c.take {
		b := Bundle{Rank: len(bundles), LocalRank: local}
		if r.GPU {
			if local%r.perGPU() == 0 {
				gpu++
			}
			for c.node.GPUs[gpu].HeldBy != "" {
				gpu++
			}
			b.GPU = &c.node.GPUs[gpu]
		}
		bundles = append(bundles, b)
	}
	return bundles
}
