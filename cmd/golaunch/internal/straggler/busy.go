package straggler

import (
	"math"
	"time"
)

// A GPU without kernels draws about idleWatts of its limit. A GPU that waits in NCCL draws about
// waitWatts (118 of 400 W in NVIDIA/nccl#2428); the watch corrects this value when all ranks wait.
// The watch assumes that ranks compute for usualShare of the time. An error of this assumption
// scales the values of all ranks alike, except when a GPU idles because its host is late.
const (
	idleWatts  = 0.15
	waitWatts  = 0.30
	usualShare = 0.8
)

// A job counts as working once its GPUs have drawn warmPower, or its ranks have used warmCPU, for
// warm slots. It pauses if the median rank, for pauseSlots slots, works less than the part asleep
// of its usual share.
const (
	warmPower  = 0.36
	warmCPU    = 0.2
	warm       = 10
	asleep     = 0.3
	pauseSlots = 3
	leastShare = 0.01
)

// power converts watts to the share of time in which a rank does not wait.
type power struct {
	// use and draw hold the open slot by rank. gpus is true once power was reported.
	draw, use sense
	gpus      bool
	// took has the time of each rank's newest sample.
	took  []time.Time
	level powerLevel
	// warm counts the slots in which the job worked. paused counts the slots in a row in which all
	// ranks waited.
	warm, paused int
	// stood is true if the job made no step in the last slot. idles is true if most GPUs idle.
	// usual is the usual use of the GPUs.
	stood, idles bool
	usual        float64
	dips         dips
}

// powerLevel is the power that a GPU draws while it waits or computes, as parts of the limit,
// learned in tuned slots.
type powerLevel struct {
	wait, compute float64
	tuned         int
}

// dips has the newest medians of the share, and low is the lowest of them. dip counts the slots
// since the share fell below low.
type dips struct {
	recent  [20]float32
	at, dip int
	low     float32
}

func (w *Watch) takeBusy(now time.Time, s Sample) {
	p, n := &w.power, len(w.odd)
	stretch := w.every().Seconds()
	if p.took == nil {
		p.took = make([]time.Time, n)
	}
	if since := now.Sub(p.took[s.Rank]).Seconds(); since > 0 && since < 2*stretch {
		stretch = since
	}
	p.took[s.Rank] = now
	open := stretch - now.Sub(w.end).Seconds()
	switch {
	case s.Power == s.Power:
		p.gpus = true
		use := s.Use
		if use != use {
			use = 1
		}
		p.draw.lay(s.Rank, s.Power, stretch, open, n)
		p.use.lay(s.Rank, min(max(use, 0), 1), stretch, open, n)
	case !p.gpus && s.CPU == s.CPU && s.Use != s.Use:
		w.sense[Busy].lay(s.Rank, max(s.CPU, leastShare), stretch, open, n)
	}
}

// closeBusy ends a slot of the busy share. Slots in which all ranks wait, or make no step, do not
// show which rank is slow.
func (w *Watch) closeBusy() {
	s := &w.sense[Busy]
	if w.power.gpus {
		w.shares(s)
	}
	if s.ring == nil {
		return
	}
	center := s.collect()
	if !(center > 0) || !w.warmed(center) || w.pauses(s, center) || w.stands(s) || w.power.dips.add(center) {
		return
	}
	s.push(center, w.quiet())
}

// shares converts power and utilization of the open slot to shares of time. While its host is late,
// a GPU idles; this time counts as the rank's own time, not as waiting.
func (w *Watch) shares(s *sense) {
	p := &w.power
	draw, use := p.draw.collect(), p.use.collect()
	if !(draw > 0) {
		return
	}
	p.level.learn(draw, use, w.quiet(), p.paused)
	if p.usual = max(p.usual, use); p.level.tuned > warm {
		p.usual += (use - p.usual) / levelMemory
	}
	p.idles = p.level.tuned > warm && use < p.usual/2
	for r, x := range p.draw.last {
		if x != x {
			continue
		}
		s.put(r, p.level.share(float64(x), float64(p.use.last[r])), len(w.odd))
	}
}

// learn learns, from the medians of power and utilization, the power that GPUs draw when they
// compute and when they wait. paused counts the slots in a row in which all ranks wait.
func (l *powerLevel) learn(draw, use float64, quiet bool, paused int) {
	if l.wait == 0 {
		l.wait, l.compute = waitWatts, 1
	}
	full := l.wait + (draw-l.wait)/usualShare
	switch {
	case draw < warmPower:
		if paused >= pauseSlots && use > 0.95 {
			l.wait += (min(max(draw, 0.1), 0.45) - l.wait) / 8
		}
	case quiet && paused == 0:
		l.tuned++
		l.compute += (full - l.compute) / float64(min(l.tuned, levelMemory))
	}
	l.compute = max(l.compute, l.wait+0.05)
}

// share is the share of time in which a rank does not wait, from the power and use of its GPU.
func (l *powerLevel) share(draw, use float64) float64 {
	computes := (draw - use*l.wait - (1-use)*idleWatts) / (l.compute - l.wait)
	return max(computes, 0) + 1 - use + leastShare
}

// warmed reports whether the job has worked for a while, so that start and compilation are over.
func (w *Watch) warmed(center float64) bool {
	p := &w.power
	if p.warm >= warm {
		return true
	}
	works := center >= warmCPU
	if p.gpus {
		works = p.draw.center() >= warmPower
	}
	if p.warm++; !works || w.beats.starting() {
		p.warm = 0
	}
	return false
}

// pauses reports whether nearly all ranks have waited for some slots. It drops the first slots of
// the pause, which were recorded before the pause was known.
func (w *Watch) pauses(s *sense, center float64) bool {
	p := &w.power
	if s.learned < warm || center > asleep*s.level {
		over := p.paused >= pauseSlots // this slot is partly in the pause
		p.paused = 0
		return over
	}
	if p.paused++; p.paused == pauseSlots {
		s.undo(pauseSlots)
	}
	return p.paused >= pauseSlots
}

// stands reports whether the job makes no steps. It drops the earlier slots without a step.
func (w *Watch) stands(s *sense) bool {
	p, stood := &w.power, w.power.stood
	if p.stood = w.beats.standing(w); p.stood && !stood {
		s.undo(int(w.beats.still / w.width))
	}
	return p.stood || p.idles
}

// A share below dipped times the lowest recent median is a hiccup that delays all ranks, for at
// most maxDip slots.
const (
	dipped = 0.75
	maxDip = 6
)

// add adds a median, and reports whether all ranks wait once and not repeatedly, as for a hiccup of
// one rank. A wait that repeats soon is normal for the job.
func (d *dips) add(center float64) bool {
	low := float32(math.Inf(1))
	for _, c := range d.recent[:min(d.at, len(d.recent))] {
		low = min(low, c)
	}
	d.recent[d.at%len(d.recent)] = float32(center)
	d.at++
	if d.dip == 0 && d.at > len(d.recent) {
		d.low = low
	}
	if d.dip < maxDip && float32(center) < dipped*d.low {
		d.dip++
		return true
	}
	d.dip = 0
	return false
}
