// Package straggler finds the ranks of a job that are slow, rather than waiting for others.
//
// In a synchronous job every rank is as slow as the slowest: all ranks end their steps at the same
// time, and ranks that wait spin. So step times do not show the slow rank. A rank's own work in a
// step shows it, compared with the rank's past and with the other ranks. A [Watch] takes values
// that agents can measure of any program. It needs no change of the program, and names no rank if
// it knows too little. Its signals are:
//
//   - [Busy] needs the power of the GPUs, and their utilization for a rank whose GPU idles while
//     its host is late. A rank that waits in NCCL draws about a third of the power of a rank that
//     computes; the slow rank, for which all others wait, keeps its power. A GPU that is slow
//     because it is hot draws less power; [Dim] finds it, because the job became slower at the same
//     time. Ranks without GPUs are judged by their CPU time, if they sleep while they wait. The CPU
//     time of ranks with GPUs says nothing, since a waiting rank spins.
//   - [Late] needs heartbeats that are written before the collective that ends a step. It compares
//     no ranks of different nodes, so clocks need not agree.
//   - [Pace] and [Cadence] need ranks that do not wait for each other, with heartbeats or with
//     lines of output.
//
// A slow link makes all ranks wait alike, so none is named. testdata/signals records the precision
// of each signal in simulated data, tensor and pipeline parallel jobs.
//
// A rank is compared with its own past, relative to the other ranks, from the time when the job
// became steady: pipeline stages are unequal by design, GPUs of one kind differ in power by some
// percent, and clocks differ. The watch learns this in about a minute of steady steps, and names no
// rank meanwhile. It finds a straggler that appears later within 15 s if steps take at most 2 s,
// and within ten steps if they take longer. Without heartbeats it finds the straggler within 30 s,
// but a longer evaluation may then look like a slow rank. A rank that was slow from the beginning
// is named under three conditions: it or its node is the only slow one; it sticks out by a quarter;
// and it is neither the first nor the last, where pipelines have more work. Changes of some percent
// in an hour count as normal.
//
// The watch ignores slowness that lasts less than about three in ten seconds, and times in which
// nearly all ranks wait or make no steps, as in a checkpoint or an evaluation. While one rank
// delays all others by far, the watch does not judge the others. If more than half of the ranks
// stick out, or more than a quarter on several nodes, they are not stragglers, and after a minute
// their values count as normal. If there are two equal stragglers, neither costs anything alone.
//
// The package reads no clock. A tick takes O(ranks) time, and each rank has bounded memory.
package straggler

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// Place says where the ranks of a job run.
type Place struct {
	// Names are the names of the nodes. Node is the index in Names of each rank's node.
	Names []string
	Node  []int
	// Every is the interval of samples; a second if 0. All delays grow with it.
	Every time.Duration
}

// Sample is an agent's measurement of a rank. Unknown values are NaN, or the zero time.
type Sample struct {
	Rank int
	// Power is the mean since the last sample as a part of the limit, 0 to 1. Use is the part of
	// the time in which a kernel ran.
	Power, Use float64
	// CPU is the number of CPUs in use.
	CPU float64
	// Step is the step of the newest heartbeat, which was written at Beat by the node's clock.
	Step int64
	Beat time.Time
	// Lines counts the lines of output so far.
	Lines float64
}

// Nothing returns a sample in which all values are unknown.
func Nothing(rank int) Sample {
	return Sample{Rank: rank, Power: math.NaN(), Use: math.NaN(), CPU: math.NaN(), Lines: math.NaN()}
}

// Watch finds stragglers in samples. Only one goroutine uses it.
type Watch struct {
	place Place
	homes [][]int // ranks by node
	// width is the length of a slot: at least a second, and about a third of a step.
	width    time.Duration
	now, end time.Time
	sense    [signals]sense
	power    power
	beats    beats
	lines    lines
	// odd holds the stretches of time in which ranks stick out, by rank. crowd counts the slots in
	// which too many ranks do so.
	odd      []episode
	crowd    int
	findings []Finding
	// together has the signals by which each node sticks out as a whole, as bits.
	together []uint16
}

// New returns a Watch of a job. It fails if a rank has no node.
func New(p Place) (*Watch, error) {
	n := len(p.Node)
	w := &Watch{place: p, odd: make([]episode, n), homes: make([][]int, len(p.Names))}
	w.together = make([]uint16, len(p.Names))
	w.width = w.every()
	ranks := make([]int, n)
	for rank, node := range p.Node {
		if node < 0 || node >= len(p.Names) {
			return nil, fmt.Errorf("watch for stragglers: rank %d is on node %d of %d; number nodes from 0", rank, node, len(p.Names))
		}
		w.homes[node], ranks[rank] = append(w.homes[node], rank), rank
	}
	for s := range w.sense {
		w.sense[s] = sense{Signal: Signal(s), scheme: schemes[s], layout: layout{ranks, w.homes, p.Node, w.odd}}
	}
	w.power.draw = sense{layout: layout{ranks: ranks}, scheme: scheme{keep: schemes[Busy].keep}}
	w.power.use = w.power.draw
	return w, nil
}

// Take takes a sample, with its time by the clock of Tick. It ignores ranks that do not exist.
func (w *Watch) Take(now time.Time, s Sample) {
	if s.Rank < 0 || s.Rank >= len(w.odd) {
		return
	}
	s.Power, s.CPU = sane(s.Power, 2), sane(s.CPU, maxCPUs)
	w.takeBusy(now, s)
	w.takeBeat(s)
	w.takeLines(s)
}

// maxCPUs is more than the number of CPUs of any node.
const maxCPUs = 1 << 16

// sane returns a possible value, or NaN.
func sane(v, most float64) float64 {
	if v >= 0 && v <= most {
		return v
	}
	return math.NaN()
}

// Tick ends the slots whose time is over. Call it about every second.
func (w *Watch) Tick(now time.Time) {
	w.now = now
	// A slot ends when the samples that reach into it have arrived.
	over := now.Add(-w.every())
	if w.end.IsZero() || over.Sub(w.end) > maxGap*w.width {
		w.end = now.Add(w.width)
	}
	if over.Before(w.end) {
		return
	}
	w.end = w.end.Add(w.width)
	w.close()
	w.judge()
}

// every is the interval of samples.
func (w *Watch) every() time.Duration { return cmp.Or(w.place.Every, time.Second) }

// maxGap is the number of missed slots that Tick makes up for.
const maxGap = 8

// close ends a slot of all signals.
func (w *Watch) close() {
	w.closeBeats()
	w.closeBusy()
	w.closeLines()
}

// Findings returns the stragglers, the costliest first. The caller must not change them.
func (w *Watch) Findings() []Finding { return w.findings }

// clears reports whether a signal in which no rank sticks out proves that no rank is slow. Equal
// heartbeats and lines of ranks that wait for each other prove nothing: heartbeats may be written
// after the collective in which all ranks wait.
func (w *Watch) clears(s Signal) bool {
	switch s {
	case Late:
		return false
	case Pace, Cadence:
		return w.beats.loose()
	}
	return true
}

// Ratio returns how many times longer than the median the worst straggler takes: 1 without
// stragglers, NaN if unknown.
func (w *Watch) Ratio() float64 {
	if len(w.findings) == 0 && !slices.ContainsFunc(w.sense[:], func(s sense) bool { return s.knows() && w.clears(s.Signal) }) {
		return math.NaN()
	}
	worst := 1.0
	for _, f := range w.findings {
		worst = max(worst, 1+f.Slower)
	}
	return worst
}
