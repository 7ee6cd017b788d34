package placement

import (
	"cmp"
	"container/heap"
	"slices"
)

// usable returns how many bundles the strategy allows on a node with the given room.
func (r Request) usable(room int) int {
	if r.Strategy == StrictSpread {
		return min(room, 1)
	}
	return room
}

// placeBundles chooses nodes for the bundles one by one, and gives the chosen nodes their ranks.
func (r Request) placeBundles(candidates []*candidate, bundles int) []*candidate {
	best := r.byScore(candidates)
	if r.Strategy == Pack {
		pack(best, bundles)
	} else {
		r.spread(best, bundles)
	}
	chosen := slices.DeleteFunc(candidates, func(c *candidate) bool { return c.take == 0 })
	return assign(slices.Repeat([]int{1}, len(chosen)), chosen)
}

// byScore returns the candidates sorted by their score, kept nodes first.
func (r Request) byScore(candidates []*candidate) []*candidate {
	for _, c := range candidates {
		c.score = r.score(c)
	}
	best := slices.Clone(candidates)
	slices.SortFunc(best, func(a, b *candidate) int {
		if a.former == newcomer && b.former == newcomer && a.score != b.score {
			return cmp.Compare(b.score, a.score)
		}
		return cmp.Compare(a.place, b.place)
	})
	return best
}

// score returns the score of Ray's LeastResourceScorer (scorer.cc): the share of the node's free
// resources that a bundle would leave, summed over the resources that the bundle needs. An unknown
// amount adds nothing.
func (r Request) score(c *candidate) float64 {
	left := func(ask, have float64) float64 {
		have -= float64(c.take) * ask
		if ask == 0 || have <= 0 {
			return 0
		}
		return (have - ask) / have
	}
	sum := left(float64(r.CPUs), float64(c.node.CPUs)) + left(float64(r.Memory), float64(c.node.Memory))
	if r.GPU {
		sum += left(1, float64(c.gpus))
	}
	return sum
}

// pack fills the nodes one after the other.
func pack(best []*candidate, bundles int) {
	for _, c := range best {
		c.take = min(c.free, bundles)
		bundles -= c.take
	}
}

// spread puts a bundle on each node that has room, and then each further bundle on the node that is
// best at that point.
func (r Request) spread(best []*candidate, bundles int) {
	var again reuse
	for _, c := range best {
		if c.free == 0 || bundles == 0 {
			continue
		}
		bundles--
		if r.grow(c) {
			heap.Push(&again, c)
		}
	}
	for ; bundles > 0; bundles-- {
		if r.grow(again[0]) {
			heap.Fix(&again, 0)
		} else {
			heap.Pop(&again)
		}
	}
}

// grow puts one more bundle on the node, and reports whether a further bundle would fit after it.
func (r Request) grow(c *candidate) bool {
	c.take++
	c.score = r.score(c)
	return c.take < c.free
}

// reuse is a heap of nodes that already have bundles. The best node comes first; among equals, the
// node with the fewest bundles.
type reuse []*candidate

func (h reuse) Len() int      { return len(h) }
func (h reuse) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *reuse) Push(x any)   { *h = append(*h, x.(*candidate)) }

func (h reuse) Less(i, j int) bool {
	a, b := h[i], h[j]
	switch {
	case a.score != b.score:
		return a.score > b.score
	case a.take != b.take:
		return a.take < b.take
	}
	return a.place < b.place
}

func (h *reuse) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
