package fold

import (
	"math"
	"time"
)

const (
	// maxTwins is how often a rank may say a thing until what it repeats is counted only.
	maxTwins = 16
	// apart is the space in the order of two nodes for those that come between.
	apart = 1 << 20
	// near is how late a line may be after the one that its rank said before, to be placed after that and not at the end.
	near = 20 * time.Millisecond
	// along is how long after a node that goes out a block may have gone on to go out with it.
	along = 50 * time.Millisecond
)

// lane is what is open of a stream: a list of nodes, which go out in its order.
type lane struct {
	fold          *Folder
	stream        Stream
	shapes        map[string]*shape
	recent        *shape
	front, back   *node
	oldest, newer *node
	nodes         int
	// top is the order of the last node that was placed at the end.
	top    uint64
	said   []said
	key    []byte
	merger merger
}

// said is the last that a rank has said: the node, if its life is still the same, and its order. loose says that the next line is of
// the same block.
type said struct {
	node  *node
	life  uint64
	order uint64
	loose bool
}

func (s said) waits() *node {
	if s.node != nil && s.node.life == s.life {
		return s.node
	}
	return nil
}

func newLane(f *Folder, of Stream) *lane {
	return &lane{fold: f, stream: of, shapes: map[string]*shape{}}
}

// add puts the line that was just taken apart where it belongs.
func (l *lane) add(rank int) {
	f := l.fold
	t := l.shape()
	l.key = t.appendKey(l.key[:0], f.scanner.text, f.scanner.spans)
	if rank < 0 || rank > MaxRank {
		l.stranger(t, rank)
		return
	}
	for rank >= len(l.said) {
		l.said = append(l.said, said{})
	}
	last := &l.said[rank]
	inside := indented(f.scanner.text)
	bound := inside || last.loose
	n := l.find(t, rank, *last, bound)
	if n == nil {
		n = l.open(t, *last, bound)
	}
	l.join(n, rank)
	if bound {
		n.bound, n.least = true, max(n.least, last.order)
	}
	*last = said{n, n.life, n.order, inside}
	l.complete()
	l.shed()
}

// stranger shows a line whose rank is none by itself.
func (l *lane) stranger(t *shape, rank int) {
	n := l.fold.node()
	n.shape, n.first = t, l.fold.now
	n.put(l.fold.entry(0), l.fold.scanner.text, l.fold.scanner.spans)
	l.fold.bytes += n.size()
	l.fold.split.begin(n)
	g := l.group(n, []int32{0})
	g.Ranks, g.All = Ranks{{rank, rank}}, false
	l.fold.give(g)
	l.fold.recycle(n)
}

// find is the first node that a line of the rank may join.
func (l *lane) find(t *shape, rank int, last said, bound bool) *node {
	n := t.recent
	if n == nil || n.key != string(l.key) {
		if n = t.open[string(l.key)]; n == nil {
			return nil
		}
		t.recent = n
	}
	seen := n
	for tries := 0; n != nil; tries++ {
		if !n.ranks.has(rank) && (!bound || n.order > last.order) {
			return n
		}
		if tries == maxTwins {
			return l.repeat(seen, n, bound)
		}
		n = n.twin
	}
	return nil
}

// repeat is the node in which what a rank says again and again is counted. Lines of a block keep their place instead, and the first
// such node goes out.
func (l *lane) repeat(first, last *node, bound bool) *node {
	if !bound {
		return last
	}
	l.close(first)
	return nil
}

// open places a new node: after what the rank has said before, if that is in a block or not long ago, and else at the end.
func (l *lane) open(t *shape, last said, bound bool) *node {
	n := l.fold.node()
	n.first = l.fold.now
	if t.nodes == 0 && t.doubt != 0 {
		t.own, t.doubt = t.own&^t.doubt, 0
		l.key = t.appendKey(l.key[:0], l.fold.scanner.text, l.fold.scanner.spans)
	}
	n.shape, n.key = t, string(l.key)
	t.nodes++
	t.index(n)
	before := l.back
	if was := last.waits(); was != nil && (bound || was.first+near >= l.fold.now) {
		before = was
	}
	l.place(n, before)
	if n.older = l.newer; n.older != nil {
		n.older.newer = n
	} else {
		l.oldest = n
	}
	l.newer = n
	l.nodes++
	l.fold.bytes += n.size()
	return n
}

// index has the node found by its key, after those of the same key.
func (t *shape) index(n *node) {
	first := t.open[n.key]
	if first == nil {
		t.open[n.key], t.recent = n, n
		return
	}
	for first.twin != nil {
		first = first.twin
	}
	first.twin = n
}

// place puts a node into the list after another, or at the end if there is no room between.
func (l *lane) place(n, before *node) {
	if before != nil && before.after != nil && before.after.order-before.order > 1 {
		after := before.after
		n.order = before.order + (after.order-before.order)/2
		n.before, n.after = before, after
		before.after, after.before = n, n
		return
	}
	l.top += apart
	n.order = l.top
	if n.before = l.back; n.before != nil {
		n.before.after = n
	} else {
		l.front = n
	}
	l.back = n
}

// entry is the line that came last.
func (f *Folder) entry(rank int) entry { return entry{rank: int32(rank), line: f.lines, at: f.now} }

func (l *lane) join(n *node, rank int) {
	f := l.fold
	f.bytes -= n.size()
	n.put(f.entry(rank), f.scanner.text, f.scanner.spans)
	f.bytes += n.size()
	if n.ranks.add(rank) && f.want.has(rank) {
		n.have++
	}
}

// recount counts who is expected anew.
func (l *lane) recount() {
	for n := l.front; n != nil; n = n.after {
		n.have = 0
		for rank := range n.ranks.ranks().All() {
			if l.fold.want.has(rank) {
				n.have++
			}
		}
	}
}

// whole says that a node waits for no other rank.
func (l *lane) whole(n *node) bool { return l.fold.want.n > 0 && n.have == l.fold.want.n }

// complete shows the nodes in front that wait for nobody. Those behind one that does wait with it: it may still get what it lacks.
func (l *lane) complete() {
	for l.front != nil && l.whole(l.front) {
		l.emit(l.front)
	}
}

// close shows a node, all that is before it, and what goes on in its block.
func (l *lane) close(n *node) {
	last, first := n.order, n.first
	l.settle(n)
	for l.front != nil && l.front.order <= last {
		l.settle(l.front)
		l.emit(l.front)
	}
	for l.front != nil && l.front.bound && l.front.first <= first+along {
		l.settle(l.front)
		l.emit(l.front)
	}
	l.complete()
}

func (l *lane) emit(n *node) {
	l.show(n)
	l.drop(n)
}

// drop takes a node out of everything.
func (l *lane) drop(n *node) {
	unlink(&l.front, &l.back, n, order)
	unlink(&l.oldest, &l.newer, n, ages)
	n.shape.unindex(n)
	n.shape.nodes--
	l.nodes--
	l.fold.recycle(n)
}

func order(n *node) (before, after **node) { return &n.before, &n.after }

func ages(n *node) (before, after **node) { return &n.older, &n.newer }

func unlink(first, last **node, n *node, links func(*node) (before, after **node)) {
	before, after := links(n)
	if *before != nil {
		_, next := links(*before)
		*next = *after
	} else {
		*first = *after
	}
	if *after != nil {
		previous, _ := links(*after)
		*previous = *before
	} else {
		*last = *before
	}
}

func (t *shape) unindex(n *node) {
	if t.recent == n {
		t.recent = nil
	}
	first := t.open[n.key]
	if first == n {
		if n.twin == nil {
			delete(t.open, n.key)
		} else {
			t.open[n.key] = n.twin
		}
		return
	}
	for first != nil && first.twin != n {
		first = first.twin
	}
	if first != nil {
		first.twin = n.twin
	}
}

// shed makes room: what differs by nature is put together, and then the oldest go out until a quarter is free, so that it is not for each
// line that this is looked at.
func (l *lane) shed() {
	if l.nodes <= maxOpen && l.fold.bytes <= maxBytes {
		return
	}
	l.oldest.shape.judged = math.MinInt64 / 2
	l.close(l.oldest)
	for l.oldest != nil && (l.nodes > maxOpen/4*3 || l.fold.bytes > maxBytes/4*3) {
		l.close(l.oldest)
	}
}
