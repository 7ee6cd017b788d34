package console

import (
	"cmp"
	"context"
	"maps"
	"slices"
)

// maxHeld bounds the unfinished lines of a viewer, in bytes.
const maxHeld = 16 << 20

// Viewer shows pieces of many ranks' log files as the running job would have shown them. It holds
// an unfinished line back until the line ends or all such lines exceed 16 MiB. It belongs to one
// goroutine.
//
// A viewer waits for the console's reader, because its text is in files, and loses no line until
// its context ends. Then the console counts the remaining lines as lost.
type Viewer struct {
	console    *Console
	prefix     func(rank int) string
	buf        []byte
	unfinished map[Source]unfinished
	held       int // bytes of unfinished
}

// unfinished is the start of a line, and its row at the bottom of a terminal, if any.
type unfinished struct {
	text []byte
	row  *liveRow
}

// NewViewer returns a viewer that shows prefix(rank) before each line of a rank.
func NewViewer(c *Console, prefix func(rank int) string) *Viewer {
	return &Viewer{console: c, prefix: prefix, buf: make([]byte, 2*MaxRead), unfinished: map[Source]unfinished{}}
}

// Add shows a piece of a log file. The pieces of one file must come in order.
func (v *Viewer) Add(ctx context.Context, from Source, data []byte) {
	s := v.splitter(ctx, from)
	for len(data) > 0 {
		n := copy(s.Buffer(), data)
		s.Add(n)
		data = data[n:]
	}
	v.keep(from, &s)
	if v.held > maxHeld {
		v.Close(ctx)
	}
}

// SetWorldSize says how many ranks the job has.
func (v *Viewer) SetWorldSize(n int) { v.console.folding.expectWorld(n) }

// Close shows all unfinished lines.
func (v *Viewer) Close(ctx context.Context) {
	for _, from := range slices.SortedFunc(maps.Keys(v.unfinished), Source.Compare) {
		s := v.splitter(ctx, from)
		s.End()
		v.keep(from, &s)
	}
}

// Compare orders sources by attempt, rank and stream.
func (s Source) Compare(o Source) int {
	return cmp.Or(cmp.Compare(s.Attempt, o.Attempt), cmp.Compare(s.Rank, o.Rank), cmp.Compare(s.Stream, o.Stream))
}

// splitter continues an unfinished line. A long one has a buffer of its own, so that it is not
// copied for each piece.
func (v *Viewer) splitter(ctx context.Context, from Source) Splitter {
	s := v.console.Split(SplitOptions{Source: from, Prefix: v.prefix(from.Rank), Fold: true, Cancel: ctx.Done()})
	s.patient, s.buf = true, v.buf
	line := v.unfinished[from].text
	s.row = v.unfinished[from].row
	if s.kept = len(line); s.kept > MaxRead {
		s.buf = line[:cap(line)]
	} else {
		copy(s.buf, line)
	}
	return s
}

func (v *Viewer) keep(from Source, s *Splitter) {
	v.held += s.kept - len(v.unfinished[from].text)
	switch line := s.buf[:s.kept]; {
	case len(line) == 0:
		s.removeRow()
		delete(v.unfinished, from)
	case len(line) <= MaxRead:
		v.unfinished[from] = unfinished{slices.Clone(line), s.row}
	default:
		v.unfinished[from] = unfinished{line, s.row}
		if &s.buf[0] == &v.buf[0] {
			v.buf = make([]byte, 2*MaxRead)
		}
	}
}
