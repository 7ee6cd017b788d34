package straggler

import (
	"math"
	"slices"
	"time"
)

// A slot of lines is linesSlot samples long, so that the exact times of lines matter little. The
// median rank must write leastLines in it.
const (
	linesSlot  = 10
	leastLines = 8
)

// lines counts the lines of each rank, now and when the slot began.
type lines struct {
	now, before []float64
	began       time.Time
}

func (w *Watch) takeLines(s Sample) {
	l := &w.lines
	if s.Lines != s.Lines {
		return
	}
	if l.now == nil {
		l.now, l.before = slices.Repeat([]float64{math.NaN()}, len(w.odd)), make([]float64, len(w.odd))
	}
	l.now[s.Rank] = s.Lines
}

// closeLines ends a slot of lines when its time is over.
func (w *Watch) closeLines() {
	l, s := &w.lines, &w.sense[Cadence]
	slot, took := linesSlot*w.every(), w.now.Sub(l.began)
	if l.now == nil || took < slot {
		return
	}
	if took < 2*slot {
		for r, v := range l.now {
			if more := v - l.before[r]; more >= leastLines {
				s.put(r, took.Seconds()/more, len(w.odd))
			}
		}
	}
	copy(l.before, l.now)
	if l.began = w.now; s.ring == nil {
		return
	}
	if center := s.collect(); center > 0 {
		s.push(center, w.quiet())
	}
}
