package straggler

import "time"

// maxRounds is how many barriers may be open at a time, and maxOpen for how long one may be.
const (
	maxRounds = 4
	maxOpen   = time.Minute
)

// round is a barrier that not all have reached. When has each rank's arrival, in seconds after the first.
type round struct {
	number int64
	first  time.Time
	when   []float32
	came   int
}

// rounds are the barriers that are open, and the number and the time of the newest that is not.
type rounds struct {
	open, free []*round
	done       int64
	before     time.Time
}

// Arrive takes that a rank has reached a barrier of all ranks, by the clock of the node that serves the store. Barriers are numbered in
// the order in which they begin.
func (w *Watch) Arrive(rank int, number int64, at time.Time) {
	if rank < 0 || rank >= len(w.odd) {
		return
	}
	r := w.round(number, at)
	if r == nil || known(r.when[rank]) {
		return
	}
	r.when[rank] = float32(at.Sub(r.first).Seconds())
	if r.came++; r.came == len(w.odd) {
		w.rounds.drop(w, r)
	}
}

// round is the one of a number, and nil if that has ended. Of too many the oldest ends.
func (w *Watch) round(number int64, at time.Time) *round {
	o := &w.rounds
	for _, r := range o.open {
		if r.number == number {
			return r
		}
	}
	if !o.before.IsZero() && number <= o.done {
		return nil
	}
	if len(o.open) == maxRounds {
		o.drop(w, o.open[0])
	}
	r := &round{when: make([]float32, len(w.odd))}
	if last := len(o.free) - 1; last >= 0 {
		r, o.free = o.free[last], o.free[:last]
	}
	r.number, r.first, r.came = number, at, 0
	for i := range r.when {
		r.when[i] = nan
	}
	o.open = append(o.open, r)
	return r
}

// drop ends a round, and takes it if all have come.
func (o *rounds) drop(w *Watch, done *round) {
	for i, r := range o.open {
		if r == done {
			o.open = append(o.open[:i], o.open[i+1:]...)
			break
		}
	}
	if done.came == len(w.odd) {
		w.closeRound(done)
	}
	if o.before.IsZero() || done.number > o.done {
		o.done, o.before = done.number, done.first
	}
	o.free = append(o.free, done)
}

// expire ends the rounds that some will not reach.
func (o *rounds) expire(w *Watch) {
	for i := 0; i < len(o.open); {
		if w.now.Sub(o.open[i].first) > maxOpen {
			o.drop(w, o.open[i])
			continue
		}
		i++
	}
}

// closeRound takes by how much ranks were late, as a part of the time since the round before, or of a step if that is shorter: since then
// they have waited for each other.
func (w *Watch) closeRound(r *round) {
	s := &w.sense[Arrival]
	since := r.first.Sub(w.rounds.before).Seconds()
	if w.rounds.before.IsZero() || since <= 0 {
		return
	}
	if w.beats.step > 0 {
		since = min(since, w.beats.step)
	}
	s.scratch = s.scratch[:0]
	for i := 0; i < len(r.when); i += stride(len(r.when)) {
		s.scratch = append(s.scratch, r.when[i])
	}
	middle := median(s.scratch)
	for rank, at := range r.when {
		s.put(rank, 1+min(float64(at-middle)/since, 1), len(w.odd))
	}
	s.push(s.collect(), w.quiet())
}
