package fold

import (
	"bytes"
	"slices"
	"time"
)

// group is some lines of an open group.
func (l *streamFolder) group(n *openGroup, lines []int32) Group {
	f := l.fold
	s := &f.split
	s.ranks.reset()
	s.lines = s.lines[:0]
	have := 0
	first, last := n.entries[lines[0]].at, n.entries[lines[0]].at
	for _, i := range lines {
		e := n.entries[i]
		first, last = min(first, e.at), max(last, e.at)
		s.lines = append(s.lines, e.line)
		if s.ranks.add(int(e.rank)) && f.want.has(int(e.rank)) {
			have++
		}
	}
	return Group{
		Stream: l.stream, Ranks: s.ranks.ranks(), All: f.want.n > 0 && have == f.want.n, Parts: parts(n, lines), Cut: n.shape.rest,
		Lines: len(lines), First: f.time(first), Last: f.time(last),
	}
}

// give returns a group to the caller; split has its lines.
func (f *Folder) give(g Group) {
	f.out = append(f.out, g)
	if f.watch != nil {
		f.watch(g, f.split.lines)
	}
}

func (f *Folder) time(since time.Duration) time.Time { return f.base.Add(since) }

// parts returns the parts of the shape, with the ranges of the values in the given lines.
func parts(n *openGroup, lines []int32) []Part {
	parts := slices.Clone(n.shape.parts)
	slot := 0
	for i := range parts {
		if parts[i].Text == "" {
			parts[i].Low, parts[i].High = extremes(n, lines, slot)
			slot++
		}
	}
	return parts
}

// extremes returns the texts with the least and the greatest amount of a value. Texts with equal
// amounts compare as texts.
func extremes(n *openGroup, lines []int32, slot int) (string, string) {
	kind := n.shape.slots[slot].kind
	row := n.entries[lines[0]].row
	low := n.value(row, slot)
	high, least := low, amount(kind, low)
	most := least
	for _, i := range lines[1:] {
		if n.entries[i].row == row {
			continue
		}
		row = n.entries[i].row
		text := n.value(row, slot)
		if bytes.Equal(text, low) || bytes.Equal(text, high) {
			continue
		}
		a := amount(kind, text)
		if a < least || a == least && bytes.Compare(text, low) < 0 {
			low, least = text, a
		}
		if a > most || a == most && bytes.Compare(text, high) > 0 {
			high, most = text, a
		}
	}
	if bytes.Equal(low, high) {
		text := string(low)
		return text, text
	}
	return string(low), string(high)
}
