package fold

import (
	"bytes"
	"time"
)

// maxShapes is the number of shapes that a stream remembers.
const maxShapes = 4 << 10

// shape has the words of lines, the kinds of their values, and the facts learned about these
// values.
type shape struct {
	key   string
	slots []slot
	parts []Part
	// rest is the number of bytes of a line after its head.
	rest int
	// keyed are the values that must be equal in lines that fold, except for varying ones, which
	// differ by rank. doubtful are varying values that seem not to differ any more.
	keyed, varying, doubtful uint64
	// bare shapes have no words, so values in the same place may have different meanings.
	bare bool
	// open has the first open group by key (see appendKey), and groups counts the open groups.
	// recent is the group that was found last.
	open   map[string]*openGroup
	groups int
	recent *openGroup
	// judgedAt is the time at which varying was last determined.
	judgedAt time.Duration
}

func newShape(s *scanner) *shape {
	t := &shape{
		key: string(s.shape), slots: append([]slot(nil), s.slots...), rest: s.rest, bare: !s.words, open: map[string]*openGroup{}, judgedAt: -judgeEvery,
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

// appendKey appends the values of a line that must be equal in lines that fold.
func (t *shape) appendKey(key, text []byte, spans []span) []byte {
	mask := t.keyed &^ t.varying
	for i, v := range spans {
		if mask&(1<<i) != 0 {
			key = append(append(key, text[v.begin:v.end]...), 0)
		}
	}
	return key
}

// shape is the shape of the line just scanned.
func (l *streamFolder) shape() *shape {
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

// forget drops the shapes without open groups. If too many remain, it closes the oldest groups.
func (l *streamFolder) forget() {
	for l.groups > maxShapes/2 {
		l.close(l.oldest)
	}
	for key, t := range l.shapes {
		if t.groups == 0 {
			delete(l.shapes, key)
		}
	}
	l.recent = nil
}

// indented reports whether a line is in the block of the line before. torch puts the rank before
// each line of a traceback.
func indented(text []byte) bool {
	if rest, found := bytes.CutPrefix(text, []byte("[rank")); found {
		if _, after, found := bytes.Cut(rest[:min(len(rest), 12)], []byte("]:")); found {
			text = bytes.TrimPrefix(rest[len(rest[:min(len(rest), 12)])-len(after):], []byte(" "))
		}
	}
	return len(text) == 0 || text[0] == ' ' || text[0] == '\t'
}
