package fold

import (
	"bytes"
	"time"
)

// openGroup is a group that was not returned yet.
type openGroup struct {
	shape *shape
	key   string
	// order is the group's place in the stream's list, and before and after are its neighbours
	// there. older and newer are its neighbours by age.
	order         uint64
	before, after *openGroup
	older, newer  *openGroup
	// twin is the next group of the same shape and key. It has lines that ranks have repeated.
	twin *openGroup
	// generation counts the uses of this memory.
	generation uint64
	first      time.Duration
	ranks      set
	// have is the number of expected ranks that have joined.
	have int
	// bound says that the group has a line of a block whose previous line has order least or lower.
	// So the group must stay behind least.
	bound bool
	least uint64
	lines
}

// lines are the lines of a group. Consecutive lines with the same text share a row. A row has as
// many spans as the group's shape has slots.
type lines struct {
	entries []entry
	rows    []row
	spans   []span
	text    []byte
}

// entry is a line of a rank: its row, its number and its time.
type entry struct {
	rank, row int32
	line      uint64
	at        time.Duration
}

// row is text[begin:end] of a group.
type row struct{ begin, end uint32 }

// put adds a line with its values.
func (l *lines) put(e entry, text []byte, spans []span) {
	if last := len(l.rows) - 1; last < 0 || !bytes.Equal(l.line(last), text) {
		begin := uint32(len(l.text))
		l.text = append(l.text, text...)
		l.rows = append(l.rows, row{begin, uint32(len(l.text))})
		l.spans = append(l.spans, spans...)
	}
	e.row = int32(len(l.rows) - 1)
	l.entries = append(l.entries, e)
}

func (l *lines) line(row int) []byte { return l.text[l.rows[row].begin:l.rows[row].end] }

func (n *openGroup) of(row int) []span {
	slots := len(n.shape.slots)
	return n.spans[row*slots : (row+1)*slots]
}

// value is the text of a slot in a row.
func (n *openGroup) value(row int32, slot int) []byte {
	v := n.spans[int(row)*len(n.shape.slots)+slot]
	begin := n.rows[row].begin
	return n.text[begin+uint32(v.begin) : begin+uint32(v.end)]
}

// size is roughly the memory of a group with these lines, in bytes.
func (l *lines) size() int {
	return 256 + len(l.text) + 24*len(l.entries) + 8*len(l.rows) + 6*len(l.spans)
}

// capacity is the size, plus the memory that is kept for more lines.
func (l *lines) capacity() int {
	return 256 + cap(l.text) + 24*cap(l.entries) + 8*cap(l.rows) + 6*cap(l.spans)
}

// clear forgets the lines, but keeps their memory.
func (l *lines) clear() {
	*l = lines{entries: l.entries[:0], rows: l.rows[:0], spans: l.spans[:0], text: l.text[:0]}
}

func (n *openGroup) reset() {
	n.ranks.reset()
	n.lines.clear()
	*n = openGroup{generation: n.generation + 1, ranks: n.ranks, lines: n.lines}
}

func (n *openGroup) capacity() int { return n.lines.capacity() + 8*cap(n.ranks.words) }

// maxKept bounds the memory of groups that is kept for reuse, in bytes.
const maxKept = 16 << 20

func (f *Folder) newGroup() *openGroup {
	last := len(f.free) - 1
	if last < 0 {
		return &openGroup{generation: 1}
	}
	n := f.free[last]
	f.free = f.free[:last]
	f.kept -= n.capacity()
	return n
}

func (f *Folder) recycle(n *openGroup) {
	f.bytes -= n.size()
	n.reset()
	if size := n.capacity(); f.kept+size <= maxKept {
		f.kept += size
		f.free = append(f.free, n)
	}
}
