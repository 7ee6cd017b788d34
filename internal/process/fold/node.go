package fold

import (
	"bytes"
	"time"
)

// node is a group that is open.
type node struct {
	shape *shape
	key   string
	// order is the place in the lane's list, whose neighbours are before and after; older and newer are so by when they were opened.
	order         uint64
	before, after *node
	older, newer  *node
	// twin is the next node of the same shape and key: for what ranks say again.
	twin *node
	// life counts how often the node was used, since nodes are used again.
	life  uint64
	first time.Duration
	ranks set
	// have counts the ranks that are expected.
	have int
	// bound says that a line follows the one before it in a block: none of those is placed after least, at a lower order than it.
	bound bool
	least uint64
	// entries are the lines, whose text, if it is not that of the line before, is a row.
	entries []entry
	rows    []row
	spans   []span
	text    []byte
}

// entry is a line of a rank: its row, its number, and when it came.
type entry struct {
	rank, row int32
	line      uint64
	at        time.Duration
}

// row is text[begin:end] of a node.
type row struct{ begin, end uint32 }

// put adds a line with its values.
func (n *node) put(e entry, text []byte, spans []span) {
	if last := len(n.rows) - 1; last < 0 || !bytes.Equal(n.line(last), text) {
		begin := uint32(len(n.text))
		n.text = append(n.text, text...)
		n.rows = append(n.rows, row{begin, uint32(len(n.text))})
		n.spans = append(n.spans, spans...)
	}
	e.row = int32(len(n.rows) - 1)
	n.entries = append(n.entries, e)
}

func (n *node) line(row int) []byte { return n.text[n.rows[row].begin:n.rows[row].end] }

func (n *node) of(row int) []span {
	slots := len(n.shape.slots)
	return n.spans[row*slots : (row+1)*slots]
}

// value is that of a slot, in a row.
func (n *node) value(row int32, slot int) []byte {
	v := n.spans[int(row)*len(n.shape.slots)+slot]
	begin := n.rows[row].begin
	return n.text[begin+uint32(v.begin) : begin+uint32(v.end)]
}

// size is the memory of the lines, about, in bytes.
func (n *node) size() int {
	return 256 + len(n.text) + 24*len(n.entries) + 8*len(n.rows) + 6*len(n.spans)
}

func (n *node) reset() {
	n.ranks.reset()
	*n = node{
		life: n.life + 1, ranks: n.ranks, entries: n.entries[:0], rows: n.rows[:0], spans: n.spans[:0], text: n.text[:0],
	}
}

func (n *node) capacity() int {
	return 256 + cap(n.text) + 24*cap(n.entries) + 8*cap(n.rows) + 6*cap(n.spans) + 8*cap(n.ranks.words)
}

// maxKept is how much memory of nodes is kept to be used again, in bytes.
const maxKept = 16 << 20

func (f *Folder) node() *node {
	last := len(f.free) - 1
	if last < 0 {
		return &node{life: 1}
	}
	n := f.free[last]
	f.free = f.free[:last]
	f.kept -= n.capacity()
	return n
}

func (f *Folder) recycle(n *node) {
	f.bytes -= n.size()
	n.reset()
	if size := n.capacity(); f.kept+size <= maxKept {
		f.kept += size
		f.free = append(f.free, n)
	}
}
