package straggler

import (
	"math"
	"time"
)

// A GPU without kernels draws about idleWatts of its limit, and one that waits in NCCL about
// waitWatts (NVIDIA/nccl#2428 has 118 of 400 W), which is corrected when all wait. Ranks are
// assumed to compute for usualShare of the time; this scales all alike, except for late hosts.
const (
	idleWatts  = 0.15
	waitWatts  = 0.30
	usualShare = 0.8
)

// A job works if its GPUs draw warmPower, or its ranks use warmCPU, for warm slots. It pauses if
// the median rank works less than asleep of the usual for pauseSlots slots.
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
	// took is the time of each rank's newest sample.
	took []time.Time
	// wait and compute are what a GPU draws that waits or computes, as parts of the limit, learned
	// in tuned slots.
	wait, compute float64
	tuned         int
	// warm counts slots in which the job worked, and paused those in a row in which all wait.
	warm, paused int
	// stood is true if the job made no step in the last slot. idles is true if most GPUs idle.
	// usual is their usual use.
	stood, idles bool
	usual        float64
	// recent holds the newest medians of the share. dip counts the slots since the share fell below
	// low, the lowest of these.
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

// closeBusy ends a slot of the busy share. Slots in which all wait, or no step is made, do not show
// who is slow.
func (w *Watch) closeBusy() {
	s := &w.sense[Busy]
	if w.power.gpus {
		w.shares(s)
	}
	if s.ring == nil {
		return
	}
	center := s.collect()
	if !(center > 0) || !w.warmed(center) || w.pauses(s, center) || w.stands(s) || w.power.dips(center) {
		return
	}
	s.push(center, w.quiet())
}

// shares converts power and utilization of the open slot to shares of time. A GPU whose host is
// late idles; that is the rank's own time, not waiting.
func (w *Watch) shares(s *sense) {
	p := &w.power
	draw, use := p.draw.collect(), p.use.collect()
	if !(draw > 0) {
		return
	}
	p.calibrate(draw, use, w.quiet())
	if p.usual = max(p.usual, use); p.tuned > warm {
		p.usual += (use - p.usual) / levelMemory
	}
	p.idles = p.tuned > warm && use < p.usual/2
	for r, x := range p.draw.last {
		if x != x {
			continue
		}
		u := float64(p.use.last[r])
		computes := (float64(x) - u*p.wait - (1-u)*idleWatts) / (p.compute - p.wait)
		s.put(r, max(computes, 0)+1-u+leastShare, len(w.odd))
	}
}

// calibrate learns from the median what GPUs draw when they compute and wait.
func (p *power) calibrate(draw, use float64, quiet bool) {
	if p.wait == 0 {
		p.wait, p.compute = waitWatts, 1
	}
	full := p.wait + (draw-p.wait)/usualShare
	switch {
	case draw < warmPower:
		if p.paused >= pauseSlots && use > 0.95 {
			p.wait += (min(max(draw, 0.1), 0.45) - p.wait) / 8
		}
	case quiet && p.paused == 0:
		p.tuned++
		p.compute += (full - p.compute) / float64(min(p.tuned, levelMemory))
	}
	p.compute = max(p.compute, p.wait+0.05)
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

// pauses reports whether nearly all ranks wait, and have for some slots. It drops the slots of the
// pause that were taken before it was known.
func (w *Watch) pauses(s *sense, center float64) bool {
	p := &w.power
	if s.learned < warm || center > asleep*s.level {
		over := p.paused >= pauseSlots // and this slot is one in part
		p.paused = 0
		return over
	}
	if p.paused++; p.paused == pauseSlots {
		s.undo(pauseSlots)
	}
	return p.paused >= pauseSlots
}

// stands reports whether the job makes no steps. It drops the slots in which it already made none.
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

// dips reports whether all ranks wait once, as for a hiccup of one. If that repeats soon, it is
// normal for the job.
func (p *power) dips(center float64) bool {
	low := float32(math.Inf(1))
	for _, c := range p.recent[:min(p.at, len(p.recent))] {
		low = min(low, c)
	}
	p.recent[p.at%len(p.recent)] = float32(center)
	p.at++
	if p.dip == 0 && p.at > len(p.recent) {
		p.low = low
	}
	if p.dip < maxDip && float32(center) < dipped*p.low {
		p.dip++
		return true
	}
	p.dip = 0
	return false
}
