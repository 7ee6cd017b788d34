package logs

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// live is the bottom of a terminal: the text of each stream whose line has no end yet, prompts and bars above all. What is shown as whole
// lines goes above it. The lane's goroutine draws; pumps say what there is.
type live struct {
	mu sync.Mutex
	// rows are in the order of ranks.
	rows []*row
	// due says that a drawing is queued.
	due bool

	// drawn is how many rows stand on the terminal. It belongs to the lane's goroutine.
	drawn int
}

// row is the text of one stream of a rank, as it may be shown; empty where its line has ended.
type row struct {
	rank int
	text []byte
}

// redrawEvery bounds how often the bottom is drawn for itself. It is drawn anew with all that is shown above it.
const redrawEvery = 50 * time.Millisecond

// newLive returns the bottom of a terminal that can move its cursor; nil for others.
func newLive(s *sink) *live {
	if term := os.Getenv("TERM"); !s.tty || term == "" || term == "dumb" {
		return nil
	}
	return new(live)
}

// add makes a row, of no text, for a rank.
func (l *live) add(rank int) *row {
	r := &row{rank: rank}
	l.mu.Lock()
	defer l.mu.Unlock()
	i, _ := slices.BinarySearchFunc(l.rows, rank, func(r *row, rank int) int { return cmp.Compare(r.rank, rank) })
	l.rows = slices.Insert(l.rows, i, r)
	return r
}

// remove forgets a row, which shows no text.
func (l *live) remove(r *row) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.rows, r); i >= 0 {
		l.rows = slices.Delete(l.rows, i, i+1)
	}
}

// set has a row show a text, soon.
func (l *live) set(r *row, text []byte, redraw func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if bytes.Equal(r.text, text) {
		return
	}
	r.text = append(r.text[:0], text...)
	if !l.due {
		l.due = true
		time.AfterFunc(redrawEvery, redraw)
	}
}

// wipe takes the bottom away, so that the cursor stands where it began.
func (l *live) wipe(b []byte) []byte {
	switch {
	case l.drawn == 0:
		return b
	case l.drawn > 1:
		b = fmt.Appendf(b, "\x1b[%dA", l.drawn-1)
	}
	l.drawn = 0
	return append(b, "\r\x1b[J"...)
}

// draw puts it there, rows of so many lines at most, of which each keeps to one line of the terminal.
func (l *live) draw(b []byte, most int) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.due = false
	more := 0
	for _, r := range l.rows {
		switch {
		case len(r.text) == 0:
			continue
		case l.drawn == most:
			more++
			continue
		case l.drawn == 0:
			b = append(b, "\x1b[?7l"...) // no wrapping
		default:
			b = append(b, '\n')
		}
		b = append(b, r.text...)
		l.drawn++
	}
	if more > 0 {
		b = fmt.Appendf(b, "\n... and %d more", more)
		l.drawn++
	}
	if l.drawn > 0 {
		b = append(b, "\x1b[?7h"...)
	}
	return b
}

// height is how many rows the terminal has for the bottom and the line that counts the others.
func (s *sink) height() int {
	const usual = 24
	rows := usual
	if size, err := unix.IoctlGetWinsize(s.fd, unix.TIOCGWINSZ); err == nil && size.Row > 0 {
		rows = int(size.Row)
	}
	return max(1, rows-2)
}
