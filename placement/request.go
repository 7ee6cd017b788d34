package placement

func (r Request) allGPUs() bool { return len(r.PerNode) == 1 && r.PerNode[0] == AllGPUs }

// wholeGroups reports whether whole groups go to separate nodes, rather than single bundles to any
// nodes.
func (r Request) wholeGroups() bool {
	return r.Strategy == "" || r.Strategy == StrictPack || r.allGPUs()
}

// entry is the number of shares that node rank i asks for.
func (r Request) entry(i int) int {
	switch {
	case r.allGPUs():
		return 1
	case len(r.PerNode) == 1:
		return r.PerNode[0]
	}
	return r.PerNode[i]
}

// entries returns the number of shares of each of the first n node ranks.
func (r Request) entries(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = r.entry(i)
	}
	return list
}

// bundles is the number of ranks of a job on n nodes.
func (r Request) bundles(n int) int {
	sum := 0
	for i := range n {
		sum += r.entry(i)
	}
	return sum
}

// leastNodes is the least number of nodes that must exist.
func (r Request) leastNodes() int {
	if r.Strategy == StrictSpread {
		return r.bundles(r.MinNodes)
	}
	return r.MinNodes
}
