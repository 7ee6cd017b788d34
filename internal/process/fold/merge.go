package fold

import (
	"cmp"
	"slices"
	"strconv"
	"time"
)

const (
	// judgeEvery is how often it is looked at in which values of a shape ranks differ by nature.
	judgeEvery = 50 * time.Millisecond
	// fewest is how many ranks it takes to tell that they do, and many how many different values.
	fewest = 4
	many   = 4
)

// merger is memory for putting nodes together.
type merger struct {
	nodes  []*node
	values map[string]*tally
	ranks  set
}

// tally is who has said a value, and how often.
type tally struct {
	ranks set
	lines int
}

// settle looks, before a node that not all ranks have joined goes out, whether it and others are apart only by values in which ranks
// differ by nature, and puts those together. It is remembered of the shape.
func (l *lane) settle(n *node) {
	t := n.shape
	if t.bare || t.nodes < 2 || l.whole(n) || t.keyed&^t.own == 0 || l.fold.now-t.judged < judgeEvery {
		return
	}
	t.judged = l.fold.now
	m := &l.merger
	m.gather(t)
	if own := m.judge(t); own != 0 {
		t.own |= own
		t.doubt &^= own
		l.merge(t)
	}
	clear(m.nodes)
}

// gather lists the nodes of a shape in their order.
func (m *merger) gather(t *shape) {
	m.nodes = m.nodes[:0]
	m.ranks.reset()
	for _, n := range t.open {
		for ; n != nil; n = n.twin {
			m.nodes = append(m.nodes, n)
			for _, e := range n.entries {
				m.ranks.add(int(e.rank))
			}
		}
	}
	slices.SortFunc(m.nodes, func(a, b *node) int { return int(int64(a.order - b.order)) })
}

// judge says which of the values that are keyed are the ranks' own.
func (m *merger) judge(t *shape) (own uint64) {
	for i, slot := range t.slots {
		if mask := uint64(1) << i; t.keyed&^t.own&mask != 0 && m.differs(slot.kind, i) {
			own |= mask
		}
	}
	return own
}

// differs says that a value is the rank's number, or that most lines have one that fewer than half of the ranks have said.
func (m *merger) differs(kind Kind, slot int) bool {
	m.values = map[string]*tally{}
	lines := 0
	for _, n := range m.nodes {
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
	if kind == Integer && m.numbered() {
		return true
	}
	common := 0
	for _, of := range m.values {
		if 2*of.ranks.n >= m.ranks.n {
			common += of.lines
		}
	}
	return m.ranks.n >= fewest && len(m.values) >= many && 2*common < lines
}

// numbered says that values are the numbers of the ranks: of all, or those within nodes or of nodes if enough ranks say so.
func (m *merger) numbered() bool {
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
	return all(numbers, func(of numbering) bool { return of.n == of.rank }) || m.ranks.n >= fewest && (inNode(numbers) || ofNode(numbers))
}

// numbering is a number that a rank says.
type numbering struct{ rank, n int }

func all(numbers []numbering, is func(numbering) bool) bool {
	return !slices.ContainsFunc(numbers, func(of numbering) bool { return !is(of) })
}

// inNode says that each rank has its number within nodes of the same size.
func inNode(numbers []numbering) bool {
	size := 1 + slices.MaxFunc(numbers, func(a, b numbering) int { return a.n - b.n }).n
	return all(numbers, func(of numbering) bool { return of.n == of.rank%size })
}

// ofNode says that each rank, in their order, has the number of its node, of at least three: two might be steps, of which half of the
// ranks are at one. Ranks at a node's end may be missing.
func ofNode(numbers []numbering) bool {
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

// merge has the lines of a shape's nodes, gathered in order, join the first node that they may by what is keyed now.
func (l *lane) merge(t *shape) {
	clear(t.open)
	t.recent = nil
	places := map[string]*places{}
	for _, n := range l.merger.nodes {
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

// places are the nodes of a key, and for each rank the first which it may not have joined yet.
type places struct {
	nodes []*node
	free  map[int32]int
}

func newPlaces() *places { return &places{free: map[int32]int{}} }

// first is the place in which a line of the rank may be; the number of nodes if there is none.
func (p *places) first(rank int32, n *node) int {
	i := p.free[rank]
	for ; i < len(p.nodes); i++ {
		if to := p.nodes[i]; !to.ranks.has(int(rank)) && (!n.bound || to.order > n.least) {
			break
		}
	}
	if !n.bound {
		p.free[rank] = i
	}
	return i
}

// move has the lines of a node join others. What cannot stays, and the node is then one of the places.
func (l *lane) move(n *node, at *places) {
	stay := n.entries[:0:0]
	before := n.size()
	for _, e := range n.entries {
		if to := at.first(e.rank, n); to < len(at.nodes) {
			l.hand(e, n, at.nodes[to])
		} else {
			stay = append(stay, e)
		}
	}
	if len(stay) == 0 {
		l.dissolve(n)
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
	if len(at.nodes) == 0 {
		n.shape.open[n.key] = n
	} else {
		at.nodes[len(at.nodes)-1].twin = n
	}
	at.nodes = append(at.nodes, n)
}

// hand gives a line to another node.
func (l *lane) hand(e entry, from, to *node) {
	l.fold.bytes -= to.size()
	to.put(e, from.line(int(e.row)), from.of(int(e.row)))
	l.fold.bytes += to.size()
	if from.first < to.first {
		l.date(to, from)
	}
	if to.ranks.add(int(e.rank)) && l.fold.want.has(int(e.rank)) {
		to.have++
	}
	if from.bound {
		to.bound, to.least = true, max(to.least, from.least)
	}
	if s := &l.said[e.rank]; s.waits() == from {
		s.node, s.life, s.order = to, to.life, to.order
	}
}

// date has a node be as old as another.
func (l *lane) date(n, as *node) {
	unlink(&l.oldest, &l.newer, n, ages)
	n.first, n.newer, n.older = as.first, as, as.older
	if as.older = n; n.older != nil {
		n.older.newer = n
	} else {
		l.oldest = n
	}
}

// dissolve drops a node whose lines are all in others; it is in no index.
func (l *lane) dissolve(n *node) {
	n.key = "\x00dissolved"
	l.drop(n)
}
