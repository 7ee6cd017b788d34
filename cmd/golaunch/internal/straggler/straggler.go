// Package straggler tells which ranks of a job are slow, rather than waiting for others, and what they cost.
//
// In a synchronous job every rank is as slow as the slowest: all end their steps at the same time, and those who wait spin. So the time
// of a step says nothing of who is slow. What does is what a rank does of its own in a step, against its own past and its peers. A
// [Watch] is told what agents see of any program, without a change of its code, and says nothing where it is not told enough:
//
//   - [Busy] needs the power of the GPUs, and their utilization for a rank whose GPU idles while the host is late. A rank that waits in
//     NCCL draws about a third of what one draws that computes; the one that all wait for draws on. A GPU that has become slow because
//     it is hot draws less, and is known by [Dim]: the job has become slower by the same time. Ranks without GPUs have their CPU time,
//     if they sleep while they wait. CPU time of ranks with GPUs says nothing, since who waits spins.
//   - [Late] needs heartbeats that are written before the collective which ends a step. Only ranks of one node are compared, so that
//     clocks need not agree.
//   - [Arrival] needs barriers at a store in nearly every step. It is all on one clock.
//   - [Behind] needs the counts of collectives of NCCL's RAS service. A look every few seconds finds only what is slower by a third or
//     more, after minutes.
//   - [Pace] and [Cadence] need ranks that do not wait for each other, with heartbeats or with lines of output.
//
// golaunch itself has what agents sample for all of them but two, and never asks for these. Programs meet at the store when they start
// and make groups, but not in their steps: no backend of torch does, so that there is no order of arrival that would tell who is slow.
// And NCCL's RAS service is asked only about a job in trouble: each look has all ranks of the job answer through one of them, and some
// versions of NCCL have crashed when asked. Who has barriers in every step, or counts of collectives that cost nothing, calls
// [Watch.Arrive] and [Watch.Look].
//
// Arrivals and counts name all who compute together with the slow one, as its tensor parallel group; where power is known too, it
// tells them apart. A slow link makes everybody wait alike: nobody is named. testdata/signals has how precise each is, in worlds of
// data, tensor and pipeline parallel jobs.
//
// A rank is compared with what it was itself, relative to its peers, when the job had become steady: pipeline stages are unequal by
// design, GPUs of one kind differ in power by some percent, and clocks are set apart. Nobody is named in about a minute of steady steps,
// in which that is learned. What comes new after it is found within 15 s where steps are not longer than 2 s, and within ten steps where
// they are; without heartbeats within 30 s, and an evaluation that lasts longer may then look like a slow rank. What was so from the
// beginning is only named where it is one rank or one node, sticks out by a quarter, and is neither the first nor the last, which
// pipelines make heavier; where peers are known, these are not spared. Changes of some percent in an hour are taken to be normal.
//
// What lasts less than about three of ten seconds is not named; nor is a time in which nearly all wait or make no steps, for a
// checkpoint or an evaluation. Where one holds up all by far, others are not judged. What makes more than half of the ranks stick out, or
// more than a quarter on several nodes, is no straggler, and is usual after a minute. Of two equal stragglers neither costs anything
// alone.
//
// All is arithmetic on what is told: no clock is read. A tick costs O(ranks), and a rank has a bounded memory.
package straggler

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// Place is where the ranks of a job are.
type Place struct {
	// Names are the nodes', and Node is the index in Names of each rank's.
	Names []string
	Node  []int
	// Every is how often agents take samples; a second if it is 0. All takes as many times longer.
	Every time.Duration
}

// Sample is what an agent saw of a rank. What is not known is NaN, or zero for a time.
type Sample struct {
	Rank int
	// Power is the mean since the sample before, as a part of the limit, 0 to 1, and Use the part of time in which any kernel ran.
	Power, Use float64
	// CPU is how many CPUs the rank used.
	CPU float64
	// Step is the newest of its heartbeat, which was written at Beat by the clock of its node.
	Step int64
	Beat time.Time
	// Lines counts those of its output so far.
	Lines float64
}

// Nothing is a sample in which nothing is known.
func Nothing(rank int) Sample {
	return Sample{Rank: rank, Power: math.NaN(), Use: math.NaN(), CPU: math.NaN(), Lines: math.NaN()}
}

// Watch decides from samples who is slow. One goroutine owns it.
type Watch struct {
	place Place
	homes [][]int // ranks by node
	// width is how long a slot takes: at least a second, and half a step.
	width    time.Duration
	now, end time.Time
	sense    [signals]sense
	power    power
	beats    beats
	lines    lines
	// odd are the stretches of time in which ranks stick out, by rank, and crowd for how many slots too many have.
	odd      []episode
	crowd    int
	findings []Finding
	// together are the signals by which nodes stick out as a whole, as bits.
	together []uint16
}

// New watches a job. It fails if a rank is nowhere.
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
		w.sense[s] = sense{Signal: Signal(s), scheme: schemes[s], ranks: ranks, homes: w.homes, node: p.Node, odd: w.odd}
	}
	w.power.draw = sense{ranks: ranks, scheme: scheme{keep: schemes[Busy].keep}}
	w.power.use = w.power.draw
	return w, nil
}

// Take takes a sample that came at a time by the clock that Tick is told. One of a rank that does not exist is ignored.
func (w *Watch) Take(now time.Time, s Sample) {
	if s.Rank < 0 || s.Rank >= len(w.odd) {
		return
	}
	s.Power, s.CPU = sane(s.Power, 2), sane(s.CPU, maxCPUs)
	w.takeBusy(now, s)
	w.takeBeat(s)
	w.takeLines(s)
}

// maxCPUs is more than a node has.
const maxCPUs = 1 << 16

// sane is a value that may be measured, or NaN.
func sane(v, most float64) float64 {
	if v >= 0 && v <= most {
		return v
	}
	return math.NaN()
}

// Tick ends the slots of time that are over. It wants to be called about every second.
func (w *Watch) Tick(now time.Time) {
	w.now = now
	// A slot ends when the samples that reach into it have come.
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

// every is how often samples are taken.
func (w *Watch) every() time.Duration { return cmp.Or(w.place.Every, time.Second) }

// maxGap is how many slots without a tick are made up for.
const maxGap = 8

// close ends a slot of all signals that go by time.
func (w *Watch) close() {
	w.closeBeats()
	w.closeBusy()
	w.closeLines()
}

// Findings are who is slow now, the dearest first. They are not to be changed.
func (w *Watch) Findings() []Finding { return w.findings }

// clears says that nobody is slow where a signal has nobody stick out. That those who wait for each other beat and write alike says
// nothing: heartbeats may come after the collective that all wait in.
func (w *Watch) clears(s Signal) bool {
	switch s {
	case Late:
		return false
	case Pace, Cadence:
		return w.beats.loose()
	}
	return true
}

// Ratio is how many times longer than the median the worst straggler takes: 1 when nobody is slow, NaN when nothing can be said.
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
