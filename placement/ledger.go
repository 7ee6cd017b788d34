package placement

import "slices"

// ledger decides whether groups of different sizes ("4,8,2") fit on nodes, each group on a separate
// node.
//
// A node with room for 8 ranks has room for 4. So, by Hall's theorem, all groups fit if and only if
// the following is true for each size: at least as many nodes have room for this size as there are
// groups of this size or a larger one. spare[i] is how many more nodes than groups there are for
// sizes[i]. It is never negative.
type ledger struct {
	sizes []int
	spare []int
}

// newLedger returns a ledger that has all candidates and no group yet. It needs groups only for
// their sizes.
func newLedger(groups []int, candidates []*candidate, room func(*candidate) int) *ledger {
	sizes := slices.Clone(groups)
	slices.Sort(sizes)
	sizes = slices.Compact(sizes)
	l := &ledger{sizes: sizes, spare: make([]int, len(sizes))}
	for _, c := range candidates {
		if class := l.class(room(c)); class >= 0 {
			l.spare[class]++
		}
	}
	for i := len(sizes) - 1; i > 0; i-- {
		l.spare[i-1] += l.spare[i]
	}
	return l
}

// class returns the index of the largest size that fits into the room, or -1.
func (l *ledger) class(room int) int {
	i, exact := slices.BinarySearch(l.sizes, room)
	if exact {
		return i
	}
	return i - 1
}

// add adds a group to the ledger. If some group would then have no node, it returns false and
// changes nothing.
func (l *ledger) add(size int) bool {
	upto := l.spare[:l.class(size)+1]
	if slices.Contains(upto, 0) {
		return false
	}
	for i := range upto {
		upto[i]--
	}
	return true
}

// shortSize returns the largest size that has no node to spare for one more group of the given
// size.
func (l *ledger) shortSize(size int) int {
	i := l.class(size)
	for l.spare[i] > 0 {
		i--
	}
	return l.sizes[i]
}

// take removes a group together with its node. It returns false if the node is too small, or is
// needed for a larger group.
func (l *ledger) take(size, room int) bool {
	group, node := l.class(size), l.class(room)
	if node < group || slices.Contains(l.spare[group+1:node+1], 0) {
		return false
	}
	for i := group + 1; i <= node; i++ {
		l.spare[i]--
	}
	return true
}
