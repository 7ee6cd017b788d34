package straggler

import (
	"math"
	"time"
)

// beat is the newest heartbeat of a rank: its step, and its time by the node's clock in seconds.
type beat struct {
	step int64
	at   float64
	// stops counts the heartbeats in a row that took far too long.
	stops uint8
}

// maxStops is the number of much longer steps in a row after which their time counts as normal.
const maxStops = 8

// beats holds the heartbeats of all ranks.
type beats struct {
	last  []beat
	epoch time.Time
	// moved is true if a rank made a step in the open slot. still is how long no rank has made a
	// step. steps counts slots with a step.
	moved bool
	still time.Duration
	steps int
	// recent holds the median step times of the newest slots in seconds. step is their median; 0
	// while unknown.
	recent [16]float32
	slots  int
	step   float64
	coupling
}

// coupling tells whether ranks wait for each other in every step. If they do, a rank's lateness is
// independent noise from step to step; otherwise it drifts.
type coupling struct {
	// back is the share of the n observations in which a rank's lateness moved back towards its
	// usual value.
	back float64
	n    int
	// late has each rank's lateness at its step.
	late []float32
	step []int64
}

// Of independent values, three in four move back towards the usual value; of a value that drifts,
// two in four do. After enough observations, the share comesBack divides the two cases.
const (
	comesBack = 0.62
	enough    = 200
)

func (c *coupling) tight() bool { return c.n >= enough && c.back > comesBack }

func (c *coupling) loose() bool { return c.n >= enough && c.back <= comesBack }

// take takes the ranks' lateness now, and the usual lateness.
func (c *coupling) take(now, usual []float32, last []beat) {
	if c.late == nil {
		c.late, c.step = make([]float32, len(now)), make([]int64, len(now))
	}
	for r, v := range now {
		if !known(v) || last[r].step == c.step[r] {
			continue
		}
		if was := c.late[r]; c.step[r] > 0 && was != usual[r] && v != was {
			hit := 0.0
			if (was > usual[r]) != (v > was) {
				hit = 1
			}
			c.n++
			c.back += (hit - c.back) / float64(min(c.n, 50*enough))
		}
		c.late[r], c.step[r] = v, last[r].step
	}
}

func (w *Watch) takeBeat(s Sample) {
	if s.Beat.IsZero() {
		return
	}
	b := &w.beats
	if b.last == nil {
		b.last, b.epoch = make([]beat, len(w.odd)), s.Beat
	}
	before := b.last[s.Rank]
	now := beat{step: s.Step, at: s.Beat.Sub(b.epoch).Seconds() + 1}
	took, made := now.at-before.at, now.step-before.step
	if made == 0 && took == 0 {
		return
	}
	if b.step > 0 && took > (float64(made)+1.5)*b.step && before.stops < maxStops {
		now.stops = before.stops + 1
	}
	b.last[s.Rank] = now
	if made <= 0 || took <= 0 || before.at == 0 {
		return // this is the first step, or the program has gone back
	}
	if b.moved = true; now.stops > 0 {
		return // the rank did something else between its steps
	}
	w.sense[Pace].put(s.Rank, took/float64(made), len(w.odd))
}

// standing reports whether no rank has made a step for so long that the job must be doing something
// else.
func (b *beats) standing(w *Watch) bool {
	return b.step > 0 && b.still > max(pauseSlots*w.width, time.Duration(2.5*b.step*float64(time.Second)))
}

// starting reports whether the job has heartbeats, but only a few yet.
func (b *beats) starting() bool { return b.last != nil && b.steps < warm/2 }

// closeBeats ends a slot of heartbeats.
func (w *Watch) closeBeats() {
	b, s := &w.beats, &w.sense[Pace]
	b.still += w.width
	if b.moved {
		b.still = 0
		b.steps++
	}
	if s.ring == nil {
		return
	}
	moved := b.moved
	b.moved = false
	center := s.collect()
	if !(center > 0) {
		return
	}
	if moved {
		b.time(center)
		w.widen()
	}
	if !moved || b.standing(w) || b.steps < warm/2 {
		return
	}
	s.push(center, w.quiet())
	w.closeLate()
}

// time takes the median step time of a slot.
func (b *beats) time(center float64) {
	b.recent[b.slots%len(b.recent)] = float32(center)
	b.slots++
	var newest [len(b.recent)]float32
	n := copy(newest[:], b.recent[:min(b.slots, len(b.recent))])
	b.step = float64(median(newest[:n]))
}

// widen makes slots at least as long as a third of a step: the interval of samples times a power of
// two, at most 64. When the length changes, it forgets the slots, but not the usual values.
func (w *Watch) widen() {
	least := w.every()
	width := least
	for width < 64*least && float64(width) < w.beats.step/3*float64(time.Second) {
		width *= 2
	}
	// A step time near a limit must not switch the width back and forth.
	if width == w.width || width < w.width && w.beats.step > 1.3*w.width.Seconds() {
		return
	}
	w.width, w.end = width, w.now.Add(width)
	for _, s := range []Signal{Busy, Late, Pace} {
		w.sense[s].reset()
	}
}

// closeLate ends a slot of lateness. Lateness is measured in steps, relative to the median of the
// rank's node. If ranks are at different steps, closeLate compares the times of the lowest of
// these steps.
func (w *Watch) closeLate() {
	b, s := &w.beats, &w.sense[Late]
	for _, ranks := range w.homes {
		var phases []float32
		first := int64(math.MaxInt64)
		for _, r := range ranks {
			if b.last[r].at > 0 {
				first = min(first, b.last[r].step)
			}
		}
		for _, r := range ranks {
			if l := b.last[r]; l.at > 0 {
				phases = append(phases, b.phase(l, first))
			}
		}
		if len(phases) < 2 {
			continue
		}
		base := b.phase(b.last[ranks[0]], first)
		for i := range phases {
			phases[i] -= base
		}
		w.putLate(s, ranks, first, base, median(phases))
	}
	if s.ring != nil {
		center := s.collect()
		b.take(s.last, s.usual, b.last)
		s.push(center, w.quiet())
	}
}

// phase is the time at which a rank wrote the heartbeat of a step, in units of the median step
// time. If the rank's newest heartbeat is of a later step, phase assumes that each step since then
// took the median time.
func (b *beats) phase(l beat, step int64) float32 {
	return float32((l.at - float64(l.step-step)*b.step) / b.step)
}

func (w *Watch) putLate(s *sense, ranks []int, first int64, base, middle float32) {
	b := &w.beats
	for _, r := range ranks {
		if l := b.last[r]; l.at > 0 {
			if late := float64(b.phase(l, first) - base - middle); math.Abs(late) < 1 {
				s.put(r, 1+late, len(w.odd))
			}
		}
	}
}
