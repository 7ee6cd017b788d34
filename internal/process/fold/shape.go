package fold

import (
	"bytes"
	"time"
)

// maxShapes is the most shapes that a stream remembers.
const maxShapes = 4 << 10

// shape is the words of lines and the kinds of their values, with what was learned of these.
type shape struct {
	key   string
	slots []slot
	parts []Part
	// rest counts the bytes of a line after its head.
	rest int
	// keyed are the values that must be equal in lines that fold, but for own, in which ranks differ by nature. doubt are those of own
	// in which they no longer do.
	keyed, own, doubt uint64
	// bare shapes have no words: that values are in the same place says nothing of them.
	bare bool
	// open are the first of the nodes that wait, by the values that are keyed, and nodes counts all. recent is the one met last.
	open   map[string]*node
	nodes  int
	recent *node
	// judged is when it was last looked at what own is.
	judged time.Duration
}

func newShape(s *scanner) *shape {
	t := &shape{
		key: string(s.shape), slots: append([]slot(nil), s.slots...), rest: s.rest, bare: !s.words, open: map[string]*node{}, judged: -judgeEvery,
	}
	done := 0
	for i, v := range s.spans {
		t.words(s.text[done:v.pad])
		t.parts = append(t.parts, Part{Kind: t.slots[i].kind})
		done = int(v.end)
		if k := t.slots[i].kind; k == Integer || k == Name || t.bare && k != Moment {
			t.keyed |= 1 << i
		}
	}
	t.words(s.text[done:])
	return t
}

func (t *shape) words(text []byte) {
	if len(text) > 0 {
		t.parts = append(t.parts, Part{Text: string(text)})
	}
}

// appendKey appends what must be equal in lines that fold, of a line of the shape.
func (t *shape) appendKey(key, text []byte, spans []span) []byte {
	mask := t.keyed &^ t.own
	for i, v := range spans {
		if mask&(1<<i) != 0 {
			key = append(append(key, text[v.begin:v.end]...), 0)
		}
	}
	return key
}

// shape is that of the line just taken apart.
func (l *lane) shape() *shape {
	s := &l.fold.scanner
	if t := l.recent; t != nil && t.key == string(s.shape) {
		return t
	}
	t := l.shapes[string(s.shape)]
	if t == nil {
		if len(l.shapes) >= maxShapes {
			l.forget()
		}
		t = newShape(s)
		l.shapes[t.key] = t
	}
	l.recent = t
	return t
}

// forget drops the shapes of which no line waits. If that leaves too many, since ever new ones come, the oldest lines wait no longer.
func (l *lane) forget() {
	for l.nodes > maxShapes/2 {
		l.close(l.oldest)
	}
	for key, t := range l.shapes {
		if t.nodes == 0 {
			delete(l.shapes, key)
		}
	}
	l.recent = nil
}

// indented says that a line is part of the block of the line before. torch puts the rank before each line of a traceback.
func indented(text []byte) bool {
	if rest, found := bytes.CutPrefix(text, []byte("[rank")); found {
		if _, after, found := bytes.Cut(rest[:min(len(rest), 12)], []byte("]:")); found {
			text = bytes.TrimPrefix(rest[len(rest[:min(len(rest), 12)])-len(after):], []byte(" "))
		}
	}
	return len(text) == 0 || text[0] == ' ' || text[0] == '\t'
}
