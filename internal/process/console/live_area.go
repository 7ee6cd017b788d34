package console

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

// liveArea is the bottom of a terminal: the unfinished line of each stream, such as a prompt or a
// progress bar, below the finished lines. Pumps set the rows; the printer's goroutine draws them.
type liveArea struct {
	mu sync.Mutex
	// rows are ordered by rank.
	rows []*liveRow
	// due says that a redraw is queued.
	due bool

	// drawn is the number of rows on the terminal. It belongs to the printer's goroutine.
	drawn int
}

// liveRow is the unfinished line of one stream of a rank, ready to be shown; empty if no line is
// unfinished.
type liveRow struct {
	rank int
	text []byte
}

// redrawEvery bounds how often changed rows alone cause a redraw. Finished lines always cause a
// redraw.
const redrawEvery = 50 * time.Millisecond

// newLiveArea returns nil unless the sink is a terminal that can move its cursor.
func newLiveArea(s *sink) *liveArea {
	if term := os.Getenv("TERM"); !s.tty || term == "" || term == "dumb" {
		return nil
	}
	return new(liveArea)
}

// add makes an empty row.
func (l *liveArea) add(rank int) *liveRow {
	r := &liveRow{rank: rank}
	l.mu.Lock()
	defer l.mu.Unlock()
	i, _ := slices.BinarySearchFunc(l.rows, rank, func(r *liveRow, rank int) int { return cmp.Compare(r.rank, rank) })
	l.rows = slices.Insert(l.rows, i, r)
	return r
}

// remove forgets an empty row.
func (l *liveArea) remove(r *liveRow) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.rows, r); i >= 0 {
		l.rows = slices.Delete(l.rows, i, i+1)
	}
}

// set changes the text of a row and schedules redraw.
func (l *liveArea) set(r *liveRow, text []byte, redraw func()) {
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

// erase returns the escape sequences that remove the area and leave the cursor where the area began.
func (l *liveArea) erase() (b []byte) {
	if l.drawn == 0 {
		return nil
	}
	if l.drawn > 1 {
		b = fmt.Appendf(b, "\x1b[%dA", l.drawn-1)
	}
	l.drawn = 0
	return append(b, "\r\x1b[J"...)
}

// draw appends the area, at most maxRows rows of one terminal line each and a count of the others.
func (l *liveArea) draw(b []byte, maxRows int) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.due = false
	more := 0
	for _, r := range l.rows {
		switch {
		case len(r.text) == 0:
			continue
		case l.drawn == maxRows:
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

// height is the number of rows of the terminal that the live area may fill. Two lines stay free.
func (s *sink) height() int {
	const usual = 24
	rows := usual
	if size, err := unix.IoctlGetWinsize(s.fd, unix.TIOCGWINSZ); err == nil && size.Row > 0 {
		rows = int(size.Row)
	}
	return max(1, rows-2)
}
