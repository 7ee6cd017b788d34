package fold

import (
	"math"
	"time"
)

const (
	// maxRepeats is how often a rank may repeat a line before further repetitions are no more than
	// counted.
	maxRepeats = 16
	// orderGap leaves room in the order for groups that are placed between two others.
	orderGap = 1 << 20
	// A line that comes within afterWithin of its rank's previous line is placed behind that line.
	// A line that comes later is placed at the end.
	afterWithin = 20 * time.Millisecond
	// Lines of a block that start within blockWithin of its first line are closed with it.
	blockWithin = 50 * time.Millisecond
)

// streamFolder is the open groups of a stream, a list in the order in which they are returned.
type streamFolder struct {
	fold          *Folder
	stream        Stream
	shapes        map[string]*shape
	recent        *shape
	front, back   *openGroup
	oldest, newer *openGroup
	groups        int
	// top is the order of the last group that was placed at the end.
	top       uint64
	lastLines []lastLine
	key       []byte
	merger    merger
}

// lastLine is the place of the last line of a rank: the group, unless its memory was reused since,
// and the group's order. openBlock says that the next line is in the same block.
type lastLine struct {
	openGroup  *openGroup
	generation uint64
	order      uint64
	openBlock  bool
}

func (s lastLine) open() *openGroup {
	if s.openGroup != nil && s.openGroup.generation == s.generation {
		return s.openGroup
	}
	return nil
}

func newStreamFolder(f *Folder, of Stream) *streamFolder {
	return &streamFolder{fold: f, stream: of, shapes: map[string]*shape{}}
}

// add puts the line that was just scanned where it belongs.
func (l *streamFolder) add(rank int) {
	f := l.fold
	t := l.shape()
	l.key = t.appendKey(l.key[:0], f.scanner.text, f.scanner.spans)
	if rank < 0 || rank > MaxRank {
		l.addUnknownRank(t, rank)
		return
	}
	for rank >= len(l.lastLines) {
		l.lastLines = append(l.lastLines, lastLine{})
	}
	last := &l.lastLines[rank]
	inside := indented(f.scanner.text)
	bound := inside || last.openBlock
	n := l.find(t, rank, *last, bound)
	if n == nil {
		n = l.open(t, *last, bound)
	}
	l.join(n, rank)
	if bound {
		n.bound, n.least = true, max(n.least, last.order)
	}
	*last = lastLine{n, n.generation, n.order, inside}
	l.emitComplete()
	l.shrink()
}

// addUnknownRank returns a line with a rank out of range as a group of its own.
func (l *streamFolder) addUnknownRank(t *shape, rank int) {
	n := l.fold.newGroup()
	n.shape, n.first = t, l.fold.now
	n.put(l.fold.entry(0), l.fold.scanner.text, l.fold.scanner.spans)
	l.fold.bytes += n.size()
	l.fold.split.begin(n)
	g := l.group(n, []int32{0})
	g.Ranks, g.All = Ranks{{rank, rank}}, false
	l.fold.give(g)
	l.fold.recycle(n)
}

// find returns the first group that a line of the rank may join.
func (l *streamFolder) find(t *shape, rank int, last lastLine, bound bool) *openGroup {
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
		if tries == maxRepeats {
			return l.repeat(seen, n, bound)
		}
		n = n.twin
	}
	return nil
}

// repeat returns the group that counts the repetitions of a rank. But a line of a block must keep
// its place: for such a line, repeat closes the first group and returns nil.
func (l *streamFolder) repeat(first, last *openGroup, bound bool) *openGroup {
	if !bound {
		return last
	}
	l.close(first)
	return nil
}

// open places a new group: behind the rank's last line if that line is in the same block or recent,
// otherwise at the end.
func (l *streamFolder) open(t *shape, last lastLine, bound bool) *openGroup {
	n := l.fold.newGroup()
	n.first = l.fold.now
	if t.groups == 0 && t.doubtful != 0 {
		t.varying, t.doubtful = t.varying&^t.doubtful, 0
		l.key = t.appendKey(l.key[:0], l.fold.scanner.text, l.fold.scanner.spans)
	}
	n.shape, n.key = t, string(l.key)
	t.groups++
	t.index(n)
	before := l.back
	if was := last.open(); was != nil && (bound || was.first+afterWithin >= l.fold.now) {
		before = was
	}
	l.place(n, before)
	if n.older = l.newer; n.older != nil {
		n.older.newer = n
	} else {
		l.oldest = n
	}
	l.newer = n
	l.groups++
	l.fold.bytes += n.size()
	return n
}

// index adds a group to the end of the groups with its key.
func (t *shape) index(n *openGroup) {
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

// place inserts a group behind another, or at the end if there is no room.
func (l *streamFolder) place(n, before *openGroup) {
	if before != nil && before.after != nil && before.after.order-before.order > 1 {
		after := before.after
		n.order = before.order + (after.order-before.order)/2
		n.before, n.after = before, after
		before.after, after.before = n, n
		return
	}
	l.top += orderGap
	n.order = l.top
	if n.before = l.back; n.before != nil {
		n.before.after = n
	} else {
		l.front = n
	}
	l.back = n
}

// entry returns the latest line.
func (f *Folder) entry(rank int) entry { return entry{rank: int32(rank), line: f.lines, at: f.now} }

func (l *streamFolder) join(n *openGroup, rank int) {
	f := l.fold
	f.bytes -= n.size()
	n.put(f.entry(rank), f.scanner.text, f.scanner.spans)
	f.bytes += n.size()
	if n.ranks.add(rank) && f.want.has(rank) {
		n.have++
	}
}

// recount counts the expected ranks of each group again.
func (l *streamFolder) recount() {
	for n := l.front; n != nil; n = n.after {
		n.have = 0
		for rank := range n.ranks.ranks().All() {
			if l.fold.want.has(rank) {
				n.have++
			}
		}
	}
}

// isComplete reports whether a group has all expected ranks.
func (l *streamFolder) isComplete(n *openGroup) bool {
	return l.fold.want.n > 0 && n.have == l.fold.want.n
}

// emitComplete returns the complete groups at the front. A complete group behind an incomplete one
// waits, since the incomplete one may still complete.
func (l *streamFolder) emitComplete() {
	for l.front != nil && l.isComplete(l.front) {
		l.emit(l.front)
	}
}

// close returns a group, all groups before it, and the rest of its block.
func (l *streamFolder) close(n *openGroup) {
	last, first := n.order, n.first
	l.mergeSimilar(n)
	for l.front != nil && l.front.order <= last {
		l.mergeSimilar(l.front)
		l.emit(l.front)
	}
	for l.front != nil && l.front.bound && l.front.first <= first+blockWithin {
		l.mergeSimilar(l.front)
		l.emit(l.front)
	}
	l.emitComplete()
}

func (l *streamFolder) emit(n *openGroup) {
	l.emitGroups(n)
	l.drop(n)
}

func (l *streamFolder) drop(n *openGroup) {
	unlink(&l.front, &l.back, n, order)
	unlink(&l.oldest, &l.newer, n, ages)
	n.shape.unindex(n)
	n.shape.groups--
	l.groups--
	l.fold.recycle(n)
}

func order(n *openGroup) (before, after **openGroup) { return &n.before, &n.after }

func ages(n *openGroup) (before, after **openGroup) { return &n.older, &n.newer }

func unlink(first, last **openGroup, n *openGroup, links func(*openGroup) (before, after **openGroup)) {
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

func (t *shape) unindex(n *openGroup) {
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

// shrink makes room. It merges groups if nothing differs except values that are different on every
// rank. It then returns the oldest groups until a quarter of the room is free, so that calls of
// shrink are rare.
func (l *streamFolder) shrink() {
	if l.groups <= maxOpen && l.fold.bytes <= maxBytes {
		return
	}
	l.oldest.shape.judgedAt = math.MinInt64 / 2
	l.close(l.oldest)
	for l.oldest != nil && (l.groups > maxOpen/4*3 || l.fold.bytes > maxBytes/4*3) {
		l.close(l.oldest)
	}
}
