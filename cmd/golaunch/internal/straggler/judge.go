package straggler

import (
	"math"
	"time"
)

// episode is a stretch of time in which a rank sticks out.
type episode struct {
	// by are the signals that show the excess, as bits. hot counts the slots in which a signal
	// shows it, and cool the slots in which no signal shows it.
	by        uint16
	hot, cool uint8
	since     time.Time
	// start is true if the episode began with the job.
	start bool
}

func (e episode) on() bool { return e.hot >= confirmed }

func (e episode) has(s Signal) bool { return e.by>>s&1 != 0 }

// A rank is named when it has stuck out for some slots in a row. It is no longer named when it has
// not stuck out for confirm slots. A dim GPU needs more slots, since a GPU is also dim at the edges
// of a pause. A job without heartbeats also needs more slots, since an evaluation may look like a
// slow rank.
const (
	confirm      = 2
	confirmDim   = 8
	confirmBlind = 15
	confirmed    = 100
)

// needs returns for how many slots a rank must stick out by these signals before it is named.
func (w *Watch) needs(by uint16) uint8 {
	switch {
	case by == 1<<Dim:
		return confirmDim
	case by == 1<<Busy && w.beats.step == 0:
		return confirmBlind
	}
	return confirm
}

// crowded is the number of slots with too many ranks that stick out after which the watch learns
// the usual values again.
const crowded = 60

// persists is the part of a rank's excess that must remain without its longest stretch.
const persists = 0.7

// harmless is a step time, relative to the usual one, below which a straggler would hardly matter.
// Ranks must then stick out more.
const harmless = 1.01

// slump is how much slower the job must be before a rank that draws less power counts as the
// reason. kept is the part of its own share of time that such a rank must keep: while others wait
// for it, the rank loses nothing of its share.
const (
	slump = 0.04
	kept  = 0.96
)

// judge finds the stragglers.
func (w *Watch) judge() {
	for i := range w.sense {
		if s := &w.sense[i]; s.Signal != Late && s.Signal != Pace || s.Signal == Late && w.beats.tight() || s.Signal == Pace && w.beats.loose() {
			w.compare(s)
		}
	}
	w.gather()
	slower, odd := w.slump(), 0
	nodes := map[int]bool{}
	for r := range w.odd {
		w.follow(r, w.signs(r, slower))
		if w.odd[r].on() {
			odd++
			nodes[w.place.Node[r]] = true
		}
	}
	w.findings = nil
	if odd == 0 {
		w.crowd = 0
		return
	}
	if 2*odd > len(w.odd) && len(w.odd) > 2 || len(nodes) > 1 && 4*odd > len(w.odd) && 2*odd != len(w.odd) {
		w.disperse()
		return
	}
	w.crowd = 0
	w.report(slower)
}

// gather finds the nodes whose ranks stick out together. The part of the excess that a node's ranks
// have in common has less noise than the excess of one rank.
func (w *Watch) gather() {
	clear(w.together)
	if len(w.homes) < 2 {
		return
	}
	for i := range w.sense {
		if s := &w.sense[i]; s.knows() && s.Signal != Late {
			w.gatherBy(s)
		}
	}
}

func (w *Watch) gatherBy(s *sense) {
	s.scratch = s.scratch[:0]
	for i := 0; i < len(s.common); i += stride(len(s.common)) {
		if known(s.common[i]) {
			s.scratch = append(s.scratch, s.common[i])
		}
	}
	limit := s.floor
	if n := len(s.scratch); n > 7 {
		limit = max(limit, beyond(n)*spread(s.scratch, median(s.scratch)))
	}
	for n, v := range s.common {
		if float64(v) >= limit {
			w.together[n] |= 1 << s.Signal
		}
	}
}

// quiet reports whether no rank sticks out.
func (w *Watch) quiet() bool { return len(w.findings) == 0 && w.crowd == 0 }

// disperse names no rank. After a while it treats the present values as normal.
func (w *Watch) disperse() {
	if w.crowd++; w.crowd < crowded {
		return
	}
	w.crowd = 0
	clear(w.odd)
	for s := range w.sense {
		w.sense[s].relearn()
	}
}

// slump returns the relative increase of the job's steps, or of the waits in them; NaN if unknown.
func (w *Watch) slump() float64 {
	if j := w.sense[Pace].current(); j == j {
		return j - 1
	}
	return 1/w.sense[Busy].current() - 1
}

// signs are the signals by which a rank sticks out, as bits.
func (w *Watch) signs(r int, slower float64) (by uint16) {
	busy := &w.sense[Busy]
	for i := range w.sense {
		s := &w.sense[i]
		if !s.knows() || !w.sticks(s, r) || s.Signal == Late && !w.beats.tight() || s.Signal == Pace && !w.beats.loose() {
			continue
		}
		waits := busy.knows() && float64(busy.full[r]) < busy.limit/2
		if s.Signal == Late && waits {
			continue // the rank is late because it waits for another
		}
		by |= 1 << s.Signal
	}
	if w.dims(r, slower) {
		by |= 1 << Dim
	}
	return by
}

// sticks reports whether a rank sticks out by a signal. For a rank that already sticks out, half of
// the limit suffices.
func (w *Watch) sticks(s *sense, r int) bool {
	need := s.limit
	if !s.compared {
		return false // ranks that were slow from the beginning are judged first
	}
	if w.odd[r].on() && w.odd[r].has(s.Signal) {
		return float64(s.full[r]) >= need/2 && float64(s.excess[r]) >= need/4
	}
	if w.together[w.place.Node[r]]>>s.Signal&1 != 0 {
		need = s.floor / 2
	} else if shared := s.shared(r); shared > 0 && float64(s.full[r]-shared) < persists*need {
		return false // all ranks of its node are alike
	}
	if s.Signal == Busy && w.sense[Pace].current() < harmless {
		need *= 1.25
	}
	if full := float64(s.full[r]); !(full >= need && float64(s.excess[r]) >= persists*max(need, full*persists)) {
		return false
	}
	return s.Signal != Busy || float64(1+s.full[r])*s.current() >= kept
}

// dims reports whether a rank's GPU draws less than usual since the job became slower, without a
// busy rank to explain that.
func (w *Watch) dims(r int, slower float64) bool {
	s, need := &w.sense[Busy], 2.0
	if w.odd[r].on() && w.odd[r].has(Dim) {
		need = 0.5
	}
	if w.beats.standing(w) || w.power.paused > 0 {
		return w.odd[r].on() && w.odd[r].has(Dim)
	}
	return w.power.gpus && w.sense[Pace].knows() && s.knows() && slower >= min(need, 1)*slump && float64(s.full[r]) <= -need*s.limit
}

// follow notes the signals by which a rank sticks out in a slot.
func (w *Watch) follow(r int, by uint16) {
	e := &w.odd[r]
	if by == 0 {
		if e.cool++; e.cool >= confirm || !e.on() {
			*e = episode{}
		}
		return
	}
	e.by, e.cool = by, 0
	if e.on() {
		return
	}
	if e.hot == 0 {
		e.since = w.onset(r, by)
	}
	if e.hot++; e.hot >= w.needs(by) {
		e.hot = confirmed
	}
}

// onset returns the time at which a rank began to stick out, if known.
func (w *Watch) onset(r int, by uint16) time.Time {
	for s := range w.sense {
		if by>>s&1 != 0 && (s == int(Busy) || s == int(Late) || s == int(Pace)) {
			return w.now.Add(-w.width * time.Duration(w.sense[s].began(r)))
		}
	}
	return w.now
}

// compare finds the ranks that stick out from the beginning, once the usual values are well known.
func (w *Watch) compare(s *sense) {
	if s.slots == 1 && s.begun.IsZero() {
		s.begun = w.now
	}
	if s.compared || !s.knows() || 2*s.learned < 3*s.learn {
		return
	}
	s.compared = true
	var far []int
	s.scratch = draw(s.ranks, s.usual, s.scratch)
	middle := median(s.scratch)
	limit := max(s.start, beyond(len(w.odd))*spread(s.scratch, middle)/float64(middle))
	for _, r := range s.ranks {
		if r == 0 || r == len(w.odd)-1 {
			continue // pipelines have more work at both ends
		}
		if over := s.beginning(r, middle); over > limit && int(s.seen[r]) >= s.learn {
			far = append(far, r)
		}
	}
	if !w.alone(far) {
		return
	}
	for _, r := range far {
		s.usual[r] = 1
		w.odd[r] = episode{by: 1 << s.Signal, hot: confirmed, since: s.begun, start: true}
	}
	s.measure()
}

// alone reports whether ranks may be called slow from the beginning: they are a single rank, or a
// single node that is neither the first nor the last.
func (w *Watch) alone(ranks []int) bool {
	if len(ranks) == 0 || 2*len(ranks) > len(w.odd) {
		return false
	}
	node := w.place.Node[ranks[0]]
	for _, r := range ranks {
		if w.place.Node[r] != node {
			return false
		}
	}
	edge := node == w.place.Node[0] || node == w.place.Node[len(w.odd)-1]
	return len(ranks) == 1 || !edge
}

// cost returns the part of its time that the job would save without the slow rank.
func (w *Watch) cost(e episode, slower, slump float64) float64 {
	most := slower / (1 + slower)
	switch {
	case !e.has(Busy) && !e.has(Dim) && (e.has(Pace) || e.has(Cadence)):
		return math.NaN() // ranks do not wait for each other
	case e.start && e.has(Busy):
		return usualShare * most
	case (e.has(Busy) || e.has(Dim)) && slump == slump:
		return min(max(slump/(1+slump), 0), most)
	}
	return most
}
