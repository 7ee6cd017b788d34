package placement

func (r Request) allGPUs() bool { return len(r.PerNode) == 1 && r.PerNode[0] == AllGPUs }

// perGPU returns how many ranks share a GPU.
func (r Request) perGPU() int { return max(1, r.PerGPU) }

// Fits returns how many ranks of the request the given number of GPUs of a node has room for.
func (r Request) Fits(gpus int) int { return gpus * r.perGPU() }

// Takes returns how many GPUs the given number of ranks takes on a node. CPU ranks take none.
func (r Request) Takes(ranks int) int {
	if !r.GPU {
		return 0
	}
	return (ranks + r.perGPU() - 1) / r.perGPU()
}

// wholeGroups reports whether whole groups go to separate nodes, rather than single bundles to any
// nodes.
func (r Request) wholeGroups() bool {
	return r.Strategy == "" || r.Strategy == StrictPack || r.allGPUs()
}

// entry returns how many shares node rank i needs.
func (r Request) entry(i int) int {
	switch {
	case r.allGPUs():
		return 1
	case len(r.PerNode) == 1:
		return r.PerNode[0]
	}
	return r.PerNode[i]
}

// entries returns how many shares each of the first n node ranks needs.
func (r Request) entries(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = r.entry(i)
	}
	return list
}

// bundles returns the number of ranks of a job on n nodes.
func (r Request) bundles(n int) int {
	sum := 0
	for i := range n {
		sum += r.entry(i)
	}
	return sum
}

// leastNodes returns the number of nodes without which the job cannot start.
func (r Request) leastNodes() int {
	if r.Strategy == StrictSpread {
		return r.bundles(r.MinNodes)
	}
	return r.MinNodes
}
