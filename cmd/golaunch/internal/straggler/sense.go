package straggler

import (
	"math"
	"time"
)

// sense follows one signal of all ranks. Each value is a duration in any unit, so that what a rank takes longer than its peers is a
// ratio; values come in slots, of time or of rounds.
type sense struct {
	Signal
	scheme
	// ranks are all ranks, homes are the ranks by node, and node the node of each rank.
	ranks []int
	homes [][]int
	node  []int
	// odd are the watch's: what is usual of a rank that sticks out stays.
	odd []episode
	// sum has the values of the slot that is open, each with its weight, and next and nextWeight those of the slot after that; last is
	// the newest of a rank, and age is how many slots ago it came.
	sum, weight, next, nextWeight, last []float32
	age                                 []uint16
	// ring has the newest slots: window values for each rank, and middle those of the median.
	ring, middle []float32
	slots        int
	// usual is a rank's value as a multiple of the median in the past, after seen slots.
	usual []float32
	seen  []uint16
	// level is the median value of all in the past, after learned slots.
	level   float64
	learned int
	// full is how much longer than usual each rank takes, and excess is without its longest stretch; limit is what sticks out.
	excess, full []float32
	limit        float64
	// common is by how much the median rank of each node sticks out.
	common []float32
	// begun is when the first slot ended, and compared says that those were found who stuck out from the beginning.
	begun    time.Time
	compared bool
	scratch  []float32
}

// scheme is how a signal is judged.
type scheme struct {
	// window slots are looked at, without the drop neighbours that stick out most.
	window, drop int
	// taper is in how many slots at both ends a value comes to count in full.
	taper int
	// learn slots make known what is usual, which then follows slowly.
	learn int
	// floor is the smallest excess that counts.
	floor float64
	// start is the smallest excess that counts from the beginning.
	start float64
	// keep is for how many slots a value stays good.
	keep uint16
}

// memory is how many slots what is usual of a rank remembers, and levelMemory of the job.
const (
	memory      = 1800
	levelMemory = 300
)

// early is how many slots are taken as they come; after that, jolt bounds how far one slot moves what is usual, as a part of the median.
const (
	early = 10
	jolt  = 0.15
)

// knows says whether the signal is known for long enough to find somebody.
func (s *sense) knows() bool { return s.learned > s.learn && s.slots >= s.window }

// put gives the open slot a value of a rank.
func (s *sense) put(rank int, v float64, of int) {
	if s.ring == nil {
		s.grow(of)
	}
	s.sum[rank] += float32(v)
	s.weight[rank]++
}

// lay spreads a value of a rank that holds for a stretch of time over the slot that is open and the next one. The slot ends after
// open seconds of the stretch, which may be less than none.
func (s *sense) lay(rank int, v, stretch, open float64, of int) {
	if s.ring == nil {
		s.grow(of)
	}
	if s.next == nil {
		s.next, s.nextWeight = make([]float32, of), make([]float32, of)
	}
	now := min(max(open, 0), stretch)
	s.sum[rank], s.weight[rank] = s.sum[rank]+float32(v*now), s.weight[rank]+float32(now)
	s.next[rank], s.nextWeight[rank] = s.next[rank]+float32(v*(stretch-now)), s.nextWeight[rank]+float32(stretch-now)
}

func (s *sense) grow(n int) {
	s.sum, s.weight, s.last, s.usual = make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, n)
	s.age, s.seen = make([]uint16, n), make([]uint16, n)
	s.ring, s.middle = make([]float32, n*s.window), make([]float32, s.window)
	s.excess, s.full = make([]float32, n), make([]float32, n)
	for i := range n {
		s.last[i], s.usual[i], s.excess[i], s.full[i] = nan, 1, nan, nan
	}
}

// collect turns what came in the open slot to one value for each rank, in last, and opens the next. It returns the median of all.
func (s *sense) collect() float64 {
	for r, weight := range s.weight {
		switch {
		case weight > 0:
			s.last[r], s.age[r] = s.sum[r]/weight, 0
		case s.age[r] < s.keep:
			s.age[r]++
		default:
			s.last[r] = nan
		}
		s.sum[r], s.weight[r] = 0, 0
	}
	if s.next != nil {
		s.sum, s.next = s.next, s.sum
		s.weight, s.nextWeight = s.nextWeight, s.weight
	}
	return s.center()
}

// center is the median of all ranks; NaN of fewer than two.
func (s *sense) center() float64 {
	if s.scratch = draw(s.ranks, s.last, s.scratch); len(s.scratch) < 2 {
		return math.NaN()
	}
	return float64(median(s.scratch))
}

// push adds the slot that was collected to the ring, learns from it, and measures all. What is usual of the job stays while somebody
// sticks out.
func (s *sense) push(center float64, quiet bool) {
	at := s.slots % s.window
	for _, r := range s.ranks {
		s.ring[r*s.window+at] = s.last[r]
	}
	m := s.typical()
	s.middle[at] = m
	for _, r := range s.ranks {
		s.adapt(r, m)
	}
	s.slots++
	if s.learned++; s.learned <= s.learn || quiet {
		s.level += (center - s.level) / float64(min(s.learned, levelMemory))
	}
	s.measure()
}

// typical is the median of the ranks' values, each relative to what is usual of the rank; NaN of fewer than two. It is in the measure
// of the median rank, or what is usual of all would drift.
func (s *sense) typical() float32 {
	s.scratch = draw(s.ranks, s.usual, s.scratch)
	measure := median(s.scratch)
	s.scratch = s.scratch[:0]
	for r := 0; r < len(s.ranks); r += stride(len(s.ranks)) {
		if v := s.smooth(r); known(v) {
			s.scratch = append(s.scratch, v/s.usual[r])
		}
	}
	if len(s.scratch) < 2 {
		return nan
	}
	return median(s.scratch) * measure
}

// smooth is a rank's mean of the newest slots, so that ranks are not compared by where in a step their agents look.
func (s *sense) smooth(r int) float32 {
	var sum, n float32
	for ago := range min(s.taper, s.slots+1) {
		if v := s.ring[r*s.window+(s.slots-ago)%s.window]; known(v) {
			sum, n = sum+v, n+1
		}
	}
	if n == 0 {
		return nan
	}
	return sum / n
}

// adapt moves what is usual of a rank.
func (s *sense) adapt(r int, m float32) {
	v := s.last[r]
	if !known(v) || !known(m) || m <= 0 || s.odd[r].by != 0 {
		return
	}
	if s.seen[r] < memory {
		s.seen[r]++
	}
	by := v/m - s.usual[r]
	n := float32(s.seen[r])
	if s.seen[r] > early {
		// What came first is forgotten: the job was hardly steady.
		n = max(n-float32(max(s.learn-early, 0)), early)
		by = min(max(by, -jolt), jolt)
	}
	// What sticks out by half may be about to: while little is known it would soon be usual.
	if int(s.seen[r]) > s.learn && s.seen[r] < memory/6 && float64(max(s.full[r], -s.full[r])) > s.limit/2 {
		return
	}
	s.usual[r] += by / n
}

// current is the median value of the newest slots as a multiple of the past; NaN if that is not known.
func (s *sense) current() float64 {
	if !s.knows() || s.level <= 0 {
		return math.NaN()
	}
	s.scratch = s.scratch[:0]
	for _, m := range s.middle {
		if known(m) {
			s.scratch = append(s.scratch, m)
		}
	}
	sum := 0.0
	for _, m := range s.scratch {
		sum += float64(m)
	}
	return sum / float64(len(s.scratch)) / s.level
}

// relearn forgets what is usual.
func (s *sense) relearn() {
	s.reset()
	s.learned = 0
	clear(s.seen)
}

// undo forgets the newest slots: they stay, but are not known.
func (s *sense) undo(slots int) {
	for ago := 1; ago <= min(slots, s.slots, s.window); ago++ {
		for r := range s.last {
			s.ring[r*s.window+(s.slots-ago)%s.window] = nan
		}
	}
}

// reset forgets all slots, but not what is usual.
func (s *sense) reset() {
	s.slots = 0
	for r := range s.excess {
		s.excess[r], s.full[r] = nan, nan
	}
}
