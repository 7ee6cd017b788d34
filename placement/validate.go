package placement

import (
	"fmt"
	"maps"
	"slices"
)

// maxNodes and maxPerNode prevent overflow in sums of ranks, and keep plans small enough for
// memory.
const (
	maxNodes   = 1 << 20
	maxPerNode = 1<<16 - 1
)

// MaxPerGPU is how many ranks may share a GPU. On most GPUs, CUDA MPS serves no more than 48
// clients.
const MaxPerGPU = 48

// Validate returns an error that explains why no nodes could satisfy a request.
func (r Request) Validate() error {
	switch {
	case r.MinNodes < 1:
		return fmt.Errorf("at least 1 node must be asked for, not %d", r.MinNodes)
	case r.MaxNodes < r.MinNodes:
		return fmt.Errorf("at most %d nodes are asked for, fewer than the least number, %d", r.MaxNodes, r.MinNodes)
	case r.MaxNodes > maxNodes:
		return fmt.Errorf("%d nodes are more than the %d that a job can have", r.MaxNodes, maxNodes)
	case r.CPUs < 0:
		return fmt.Errorf("CPUs per rank must not be negative: %d", r.CPUs)
	case r.Memory < 0:
		return fmt.Errorf("memory per rank must not be negative: %d bytes", r.Memory)
	case r.PerGPU < 0 || r.PerGPU > MaxPerGPU:
		return fmt.Errorf("ranks per GPU must be from 1 to %d, not %d", MaxPerGPU, r.PerGPU)
	case r.PerGPU > 1 && !r.GPU:
		return fmt.Errorf("CPU ranks have no share of a GPU; ask for GPUs")
	case r.PerGPU > 1 && !r.wholeGroups():
		return fmt.Errorf("ranks that share a GPU are neighbours on a node, and %s may part them; use %s", r.Strategy, StrictPack)
	}
	for _, check := range []func() error{r.checkStrategy, r.checkPerNode, r.checkOrder, r.checkKeep} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (r Request) checkStrategy() error {
	switch r.Strategy {
	case "", StrictPack, Pack, Spread, StrictSpread:
		return nil
	}
	return unknownStrategy(string(r.Strategy))
}

func (r Request) checkPerNode() error {
	if r.allGPUs() {
		if r.Strategy == StrictSpread {
			return fmt.Errorf("%s puts one rank on a node and needs a number of ranks; auto takes whole nodes", StrictSpread)
		}
		return nil
	}
	if n := len(r.PerNode); n != 1 && n != r.MaxNodes {
		return fmt.Errorf("ranks per node: %s for %s; give one number for all nodes, or one for each",
			count(n, "number"), count(r.MaxNodes, "node"))
	}
	for i, n := range r.PerNode {
		if n < 1 || n > maxPerNode {
			return fmt.Errorf("ranks per node must be from 1 to %d, not %d (number %d of %d)", maxPerNode, n, i+1, len(r.PerNode))
		}
	}
	return nil
}

func (r Request) checkOrder() error {
	switch r.Order.By {
	case "", ByIP, ByName, ByTopology:
		if len(r.Order.List) > 0 {
			return fmt.Errorf("order %q takes no list of nodes; want %q", r.Order.By, ByList)
		}
		return nil
	case ByList:
	default:
		return fmt.Errorf("unknown order %q; want %s, %s, %s or %s", r.Order.By, ByIP, ByName, ByTopology, ByList)
	}
	seen := make(map[string]bool, len(r.Order.List))
	for _, name := range r.Order.List {
		if seen[name] {
			return fmt.Errorf("node %s is twice in the order's list", name)
		}
		seen[name] = true
	}
	if n := len(r.Order.List); n < r.leastNodes() {
		return fmt.Errorf("the order's list names %s, but the job needs %d", count(n, "node"), r.leastNodes())
	}
	return nil
}

func (r Request) checkKeep() error {
	holder := make(map[int]string, len(r.Keep))
	for _, name := range slices.Sorted(maps.Keys(r.Keep)) {
		rank := r.Keep[name]
		if rank < 0 {
			return fmt.Errorf("node %s cannot keep node rank %d", name, rank)
		}
		if other, taken := holder[rank]; taken {
			return fmt.Errorf("nodes %s and %s cannot both keep node rank %d", other, name, rank)
		}
		holder[rank] = name
	}
	return nil
}
