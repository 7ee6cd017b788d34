package straggler

import (
	"math"
	"slices"
	"time"
)

// Look takes how many collectives ranks have started, as one look of NCCL's RAS service has it. Who has started fewer than another of
// the same communicator is waited for.
func (w *Watch) Look(all []Started) {
	most, s := map[uint64]int64{}, &w.sense[Behind]
	for _, a := range all {
		most[a.Comm] = max(most[a.Comm], a.Count)
	}
	for _, a := range all {
		if a.Rank < 0 || a.Rank >= len(w.odd) {
			continue
		}
		behind := 0.0
		if a.Count < most[a.Comm] {
			behind = 1
		}
		s.put(a.Rank, 1+behind, len(w.odd))
	}
	if s.ring != nil {
		s.push(s.collect(), w.quiet())
	}
}

// A slot of lines is linesSlot samples long, so that it hardly matters when in it they were taken, and wants leastLines of the median rank.
const (
	linesSlot  = 10
	leastLines = 8
)

// lines are how many each rank has written, now and when the slot began.
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
