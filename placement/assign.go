package placement

// packGroups chooses, for each of n node ranks, a node with room for the whole group of that rank.
func (r Request) packGroups(candidates []*candidate, n int) []*candidate {
	want := r.entries(n)
	seats := assign(want, candidates)
	for rank, c := range seats {
		c.take = want[rank]
		if r.allGPUs() {
			c.take = r.whole(c.node)
		}
	}
	return seats
}

// assign gives each group, in the order of node ranks, a candidate with room for the group. The
// caller must have checked that this is possible.
func assign(groups []int, candidates []*candidate) []*candidate {
	l := newLedger(groups, candidates, (*candidate).now)
	for _, size := range groups {
		l.add(size)
	}
	seats := make([]*candidate, len(groups))
	l.keep(groups, seats, candidates)
	queues := l.queues(candidates)
	for rank, size := range groups {
		if seats[rank] == nil {
			seats[rank] = l.next(size, queues)
		}
	}
	return seats
}

// keep gives candidates the node ranks that they had before. It skips a candidate if other groups
// would then have no node. These candidates come first in the list.
func (l *ledger) keep(groups []int, seats, candidates []*candidate) {
	kept := l.returning(candidates)
	shrunk := len(kept) > 0 && kept[len(kept)-1].former >= len(groups)
	for i, c := range kept[:min(len(kept), len(groups))] {
		rank := c.former
		if shrunk {
			rank = i
		}
		if l.take(groups[rank], c.free) {
			seats[rank], c.seated = c, true
		}
	}
}

// returning returns the candidates that had a rank before and have room for some group.
func (l *ledger) returning(candidates []*candidate) []*candidate {
	var kept []*candidate
	for _, c := range candidates {
		if c.former == newcomer {
			break
		}
		if l.class(c.free) >= 0 {
			kept = append(kept, c)
		}
	}
	return kept
}

// queues returns, for each size, the candidates without a seat whose room is enough for this size
// and for no larger one. Each queue is in the order of candidates.
func (l *ledger) queues(candidates []*candidate) [][]*candidate {
	queues := make([][]*candidate, len(l.sizes))
	for _, c := range candidates {
		if class := l.class(c.free); class >= 0 && !c.seated {
			queues[class] = append(queues[class], c)
		}
	}
	return queues
}

// next takes the first candidate that has room for the group and is not needed for a larger one.
func (l *ledger) next(size int, queues [][]*candidate) *candidate {
	group := l.class(size)
	best := -1
	for i := group; i < len(queues) && (i == group || l.spare[i] > 0); i++ {
		if len(queues[i]) > 0 && (best < 0 || queues[i][0].place < queues[best][0].place) {
			best = i
		}
	}
	first := queues[best][0]
	queues[best] = queues[best][1:]
	l.take(size, first.free)
	return first
}
