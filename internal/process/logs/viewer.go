package logs

import (
	"context"
	"maps"
	"slices"
)

// maxHeld is the most that a viewer keeps of lines whose end has not come, in bytes.
const maxHeld = 16 << 20

// Viewer shows chunks of many ranks' logs on a console, as they would be shown live: whole lines, prefixed. A line whose end has not
// come is kept back until it has, End, or the 16 MiB that all such lines together may have are used up, when they are shown as they
// are. It belongs to one goroutine.
//
// Unlike a rank it can wait, because what it shows is in files: it loses no line while nobody reads the console, until the context it
// was given ends. Then the console counts those it has not taken as lost.
type Viewer struct {
	console *Console
	prefix  func(rank int) string
	buf     []byte
	lines   map[File]begun // that have no end yet
	held    int            // bytes of lines
}

// begun is the start of a line, and its row at the bottom of a terminal; nil where it has none.
type begun struct {
	text []byte
	row  *row
}

// NewViewer returns a viewer that shows prefix(rank) before each line of a rank.
func NewViewer(c *Console, prefix func(rank int) string) *Viewer {
	return &Viewer{console: c, prefix: prefix, buf: make([]byte, 2*maxRead), lines: map[File]begun{}}
}

// Add shows a chunk. The chunks of one file must come in order.
func (v *Viewer) Add(ctx context.Context, c Chunk) {
	w := v.view(ctx, c.File)
	for data := c.Data; len(data) > 0; {
		n := copy(w.room(), data)
		w.add(n)
		data = data[n:]
	}
	v.keep(c.File, &w)
	if v.held > maxHeld {
		v.Close(ctx)
	}
}

// World says how many ranks the job has.
func (v *Viewer) World(size int) { v.console.folding.expectWorld(size) }

// End shows the lines of a rank that have no end; none is to come.
func (v *Viewer) End(ctx context.Context, rank int) {
	v.end(ctx, func(f File) bool { return f.Rank == rank })
}

// Close is End for all ranks.
func (v *Viewer) Close(ctx context.Context) { v.end(ctx, func(File) bool { return true }) }

func (v *Viewer) end(ctx context.Context, which func(File) bool) {
	for _, f := range slices.SortedFunc(maps.Keys(v.lines), File.compare) {
		if which(f) {
			w := v.view(ctx, f)
			w.end()
			v.keep(f, &w)
		}
	}
}

// view is a view of a file that has the start of a line. A long one has a buffer of its own, lest it be copied for each chunk.
func (v *Viewer) view(ctx context.Context, f File) view {
	w := view{
		lane: v.console.lane(f.Stream), prefix: []byte(v.prefix(f.Rank)), hide: ctx.Done(), patient: true, buf: v.buf, rank: f.Rank, attempt: f.Attempt,
		stream: f.Stream, fold: v.console.folding,
	}
	line := v.lines[f].text
	w.row = v.lines[f].row
	if w.kept = len(line); w.kept > maxRead {
		w.buf = line[:cap(line)]
	} else {
		copy(w.buf, line)
	}
	return w
}

func (v *Viewer) keep(f File, w *view) {
	v.held += w.kept - len(v.lines[f].text)
	switch line := w.buf[:w.kept]; {
	case len(line) == 0:
		w.leave()
		delete(v.lines, f)
	case len(line) <= maxRead:
		v.lines[f] = begun{slices.Clone(line), w.row}
	default:
		v.lines[f] = begun{line, w.row}
		if &w.buf[0] == &v.buf[0] {
			v.buf = make([]byte, 2*maxRead)
		}
	}
}
