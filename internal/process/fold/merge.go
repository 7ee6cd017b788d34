package fold

import (
	"cmp"
	"slices"
	"strconv"
	"time"
)

const (
	// judgeEvery bounds how often a shape is searched for values that vary by rank.
	judgeEvery = 50 * time.Millisecond
	// minRanks and minValues are the least numbers of ranks and of different values for a decision
	// that a value varies.
	minRanks  = 4
	minValues = 4
)

// merger is reused memory for merging groups.
type merger struct {
	groups []*openGroup
	values map[string]*tally
	ranks  set
}

// tally counts the ranks that print a value, and the lines with the value.
type tally struct {
	ranks set
	lines int
}

// mergeSimilar is called before an incomplete group is returned. It merges the group with other
// groups of its shape if these groups differ only in values that vary by rank. It notes in the
// shape which values vary.
func (l *streamFolder) mergeSimilar(n *openGroup) {
	t := n.shape
	if t.bare || t.groups < 2 || l.isComplete(n) || t.keyed&^t.varying == 0 || l.fold.now-t.judgedAt < judgeEvery {
		return
	}
	t.judgedAt = l.fold.now
	m := &l.merger
	m.gather(t)
	if own := m.findVarying(t); own != 0 {
		t.varying |= own
		t.doubtful &^= own
		l.merge(t)
	}
	clear(m.groups)
}

// gather lists the groups of a shape in order.
func (m *merger) gather(t *shape) {
	m.groups = m.groups[:0]
	m.ranks.reset()
	for _, n := range t.open {
		for ; n != nil; n = n.twin {
			m.groups = append(m.groups, n)
			for _, e := range n.entries {
				m.ranks.add(int(e.rank))
			}
		}
	}
	slices.SortFunc(m.groups, func(a, b *openGroup) int { return int(int64(a.order - b.order)) })
}

// findVarying returns the keyed values that vary by rank.
func (m *merger) findVarying(t *shape) (own uint64) {
	for i, slot := range t.slots {
		if mask := uint64(1) << i; t.keyed&^t.varying&mask != 0 && m.varies(slot.kind, i) {
			own |= mask
		}
	}
	return own
}

// varies reports whether a value varies by rank: it is the rank's number, or on most lines fewer
// than half of the ranks print the same value.
func (m *merger) varies(kind Kind, slot int) bool {
	m.values = map[string]*tally{}
	lines := 0
	for _, n := range m.groups {
		text := n.value(0, slot)
		of := m.values[string(text)]
		if of == nil {
			of = &tally{}
			m.values[string(text)] = of
		}
		for _, e := range n.entries {
			of.ranks.add(int(e.rank))
		}
		of.lines += len(n.entries)
		lines += len(n.entries)
	}
	if len(m.values) < 2 {
		return false
	}
	if kind == Integer && m.areNumbers() {
		return true
	}
	common := 0
	for _, of := range m.values {
		if 2*of.ranks.n >= m.ranks.n {
			common += of.lines
		}
	}
	return m.ranks.n >= minRanks && len(m.values) >= minValues && 2*common < lines
}

// areNumbers reports whether the values number the ranks. With enough ranks, they may also number
// the ranks within nodes, or the nodes.
func (m *merger) areNumbers() bool {
	var numbers []numbering
	for text, who := range m.values {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > MaxRank {
			return false
		}
		for rank := range who.ranks.ranks().All() {
			numbers = append(numbers, numbering{rank, n})
		}
	}
	slices.SortFunc(numbers, func(a, b numbering) int { return cmp.Or(a.rank-b.rank, a.n-b.n) })
	return all(numbers, func(of numbering) bool { return of.n == of.rank }) || m.ranks.n >= minRanks && (areLocalRanks(numbers) || areNodeRanks(numbers))
}

// numbering is a number that a rank prints.
type numbering struct{ rank, n int }

func all(numbers []numbering, is func(numbering) bool) bool {
	return !slices.ContainsFunc(numbers, func(of numbering) bool { return !is(of) })
}

// areLocalRanks reports whether the numbers count the ranks within nodes of the same size.
func areLocalRanks(numbers []numbering) bool {
	size := 1 + slices.MaxFunc(numbers, func(a, b numbering) int { return a.n - b.n }).n
	return all(numbers, func(of numbering) bool { return of.n == of.rank%size })
}

// areNodeRanks reports whether the numbers, sorted by rank, count the nodes. At least three nodes
// are necessary: two numbers might be steps, with half of the ranks at each step. The last ranks of
// a node may be missing.
func areNodeRanks(numbers []numbering) bool {
	first := numbers[0]
	next := slices.IndexFunc(numbers, func(of numbering) bool { return of.n != first.n })
	if next < 0 || numbers[len(numbers)-1].n < first.n+2 {
		return false
	}
	const ranksMissing = 8
	for size := max(numbers[next-1].rank+1, numbers[next].rank-ranksMissing); size <= numbers[next].rank; size++ {
		if all(numbers, func(of numbering) bool { return of.n == first.n+of.rank/size }) {
			return true
		}
	}
	return false
}

// merge moves the lines of the gathered groups into the first group that they may join by the new
// keys.
func (l *streamFolder) merge(t *shape) {
	clear(t.open)
	t.recent = nil
	places := map[string]*places{}
	for _, n := range l.merger.groups {
		n.twin = nil
		l.key = t.appendKey(l.key[:0], n.line(0), n.of(0))
		n.key = string(l.key)
		at := places[n.key]
		if at == nil {
			at = newPlaces()
			places[n.key] = at
		}
		l.move(n, at)
	}
}

// places has the groups of a key, and for each rank the first group that the rank may not have
// joined yet.
type places struct {
	groups []*openGroup
	free   map[int32]int
}

func newPlaces() *places { return &places{free: map[int32]int{}} }

// first is the group that a line of the rank may join, or the number of groups if there is none.
func (p *places) first(rank int32, n *openGroup) int {
	i := p.free[rank]
	for ; i < len(p.groups); i++ {
		if to := p.groups[i]; !to.ranks.has(int(rank)) && (!n.bound || to.order > n.least) {
			break
		}
	}
	if !n.bound {
		p.free[rank] = i
	}
	return i
}

// move moves the lines of a group into others. If some must stay, the group becomes one of the
// places.
func (l *streamFolder) move(n *openGroup, at *places) {
	stay := n.entries[:0:0]
	before := n.size()
	for _, e := range n.entries {
		if to := at.first(e.rank, n); to < len(at.groups) {
			l.moveLine(e, n, at.groups[to])
		} else {
			stay = append(stay, e)
		}
	}
	if len(stay) == 0 {
		l.dropEmptied(n)
		return
	}
	n.ranks.reset()
	n.entries, n.have = append(n.entries[:0], stay...), 0
	for _, e := range stay {
		if n.ranks.add(int(e.rank)) && l.fold.want.has(int(e.rank)) {
			n.have++
		}
	}
	l.fold.bytes += n.size() - before
	if len(at.groups) == 0 {
		n.shape.open[n.key] = n
	} else {
		at.groups[len(at.groups)-1].twin = n
	}
	at.groups = append(at.groups, n)
}

// moveLine moves a line into another group.
func (l *streamFolder) moveLine(e entry, from, to *openGroup) {
	l.fold.bytes -= to.size()
	to.put(e, from.line(int(e.row)), from.of(int(e.row)))
	l.fold.bytes += to.size()
	if from.first < to.first {
		l.ageLike(to, from)
	}
	if to.ranks.add(int(e.rank)) && l.fold.want.has(int(e.rank)) {
		to.have++
	}
	if from.bound {
		to.bound, to.least = true, max(to.least, from.least)
	}
	if s := &l.lastLines[e.rank]; s.open() == from {
		s.openGroup, s.generation, s.order = to, to.generation, to.order
	}
}

// ageLike makes a group as old as another.
func (l *streamFolder) ageLike(n, as *openGroup) {
	unlink(&l.oldest, &l.newer, n, ages)
	n.first, n.newer, n.older = as.first, as, as.older
	if as.older = n; n.older != nil {
		n.older.newer = n
	} else {
		l.oldest = n
	}
}

// dropEmptied drops a group that has no lines and is in no index.
func (l *streamFolder) dropEmptied(n *openGroup) {
	n.key = "\x00dissolved"
	l.drop(n)
}
