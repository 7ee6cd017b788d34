package straggler

import (
	"math"
	"time"
)

// sense follows one signal of all ranks. Each value is a duration in any unit, so that a rank's
// excess over the others is a ratio. Values come in slots of time.
type sense struct {
	Signal
	scheme
	layout
	slot
	memory
	// full is how much longer than usual each rank takes. excess is the same without the rank's
	// longest stretch. A rank with an excess of limit or more sticks out.
	excess, full []float32
	limit        float64
	// common is the excess of the median rank of each node.
	common []float32
	// begun is when the first slot ended. compared is true once the watch has looked for ranks that
	// stick out from the beginning.
	begun    time.Time
	compared bool
	scratch  []float32
}

// layout says where the ranks run.
type layout struct {
	// ranks are all ranks, homes the ranks by node, and node the node of each rank.
	ranks []int
	homes [][]int
	node  []int
	// odd has the watch's episodes. A rank's usual value does not change while the rank sticks out.
	odd []episode
}

// slot holds the values of the open slot.
type slot struct {
	// sum has the weighted values of the open slot, and next the values of the slot after it. last
	// is the newest value of a rank, which is age slots old.
	sum, weight, next, nextWeight, last []float32
	age                                 []uint16
}

// memory has the values and averages of past slots.
type memory struct {
	// ring has the newest window values of each rank, and middle the newest window values of the
	// median.
	ring, middle []float32
	slots        int
	// usual is a rank's past value as a multiple of the median, learned in seen slots.
	usual []float32
	seen  []uint16
	// level is the past median of all ranks, learned in learned slots.
	level   float64
	learned int
}

// scheme says how a signal is judged.
type scheme struct {
	// The last window slots count, without the drop neighbouring slots that stick out most.
	window, drop int
	// taper is the number of slots at both ends of the window within which a value gains its full
	// weight.
	taper int
	// learn is the number of slots that determine the usual value. After these, the usual value
	// follows slowly.
	learn int
	// floor is the smallest excess that counts.
	floor float64
	// start is the smallest excess that counts if a rank has had it from the beginning.
	start float64
	// keep is the number of slots for which a value stays valid.
	keep uint16
}

// rankMemory is the number of slots that determine the usual value of a rank, and levelMemory the
// number of slots that determine the usual value of the job.
const (
	rankMemory  = 1800
	levelMemory = 300
)

// Each of the first early slots counts fully. After them, one slot moves a usual value by at most
// jolt of the median.
const (
	early = 10
	jolt  = 0.15
)

// knows reports whether the signal was observed long enough to find stragglers.
func (s *sense) knows() bool { return s.learned > s.learn && s.slots >= s.window }

// put adds a value of a rank to the open slot.
func (s *sense) put(rank int, v float64, of int) {
	if s.ring == nil {
		s.grow(of)
	}
	s.sum[rank] += float32(v)
	s.weight[rank]++
}

// lay spreads a value of a rank over the open slot and the next. The value holds for stretch
// seconds. The first open of these seconds belong to the open slot; open may be negative.
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

// collect turns the open slot into one value for each rank, in last, and opens the next slot. It
// returns the median of all values.
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

// center is the median of all ranks; NaN if there are fewer than two.
func (s *sense) center() float64 {
	if s.scratch = draw(s.ranks, s.last, s.scratch); len(s.scratch) < 2 {
		return math.NaN()
	}
	return float64(median(s.scratch))
}

// push adds the collected slot to the ring, learns from it, and measures. The usual value of the
// job does not change while a rank sticks out.
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

// typical is the median of the ranks' values, each relative to the rank's usual value; NaN if there
// are fewer than two. It is scaled to the median rank, so that the usual values do not drift
// together.
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

// smooth is a rank's mean of the newest slots, so that the time at which agents sample a step does
// not matter.
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

// adapt moves the usual value of a rank.
func (s *sense) adapt(r int, m float32) {
	v := s.last[r]
	if !known(v) || !known(m) || m <= 0 || s.odd[r].by != 0 {
		return
	}
	if s.seen[r] < rankMemory {
		s.seen[r]++
	}
	by := v/m - s.usual[r]
	n := float32(s.seen[r])
	if s.seen[r] > early {
		// The first slots are forgotten, since the job was hardly steady in them.
		n = max(n-float32(max(s.learn-early, 0)), early)
		by = min(max(by, -jolt), jolt)
	}
	// A rank that sticks out by half the limit may become a straggler. While few slots are known,
	// its excess would soon become usual.
	if int(s.seen[r]) > s.learn && s.seen[r] < rankMemory/6 && float64(max(s.full[r], -s.full[r])) > s.limit/2 {
		return
	}
	s.usual[r] += by / n
}

// current is the median of the newest slots relative to the past; NaN if unknown.
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

// relearn forgets the usual values.
func (s *sense) relearn() {
	s.reset()
	s.learned = 0
	clear(s.seen)
}

// undo marks the newest slots as unknown.
func (s *sense) undo(slots int) {
	for ago := 1; ago <= min(slots, s.slots, s.window); ago++ {
		for r := range s.last {
			s.ring[r*s.window+(s.slots-ago)%s.window] = nan
		}
	}
}

// reset forgets all slots, but not the usual values.
func (s *sense) reset() {
	s.slots = 0
	for r := range s.excess {
		s.excess[r], s.full[r] = nan, nan
	}
}
