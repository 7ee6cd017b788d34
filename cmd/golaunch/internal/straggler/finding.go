package straggler

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/units"
)

// Finding is a slow node, or slow ranks of a node.
type Finding struct {
	Node  string
	Ranks []int
	// Whole is true if the whole node is slow: three quarters of its ranks are slow, and there are
	// other nodes.
	Whole bool
	// Slower is how much longer than the median the rank takes for its part of a step, relative to
	// its past: 0.12 means 12 %. For several ranks it is the value of the slowest rank, and for a
	// node the median. If it comes from the power of the GPU, it may be wrong by up to a quarter.
	Slower float64
	// Since is when the slowness began, within some seconds. Start is true if the job was slow from
	// its beginning.
	Since time.Time
	Start bool
	// Cost is the part of its time that the job would save if these ranks, and no others, became as
	// fast as the rest; NaN if unknown, as when ranks do not wait for each other. It is at most
	// Slower/(1+Slower).
	Cost float64
	// Signals are the signals that show the slowness, the most exact first.
	Signals []Signal
	// Confidence is from 0 to 1: 0.5 if one signal just reaches its limit, and more if the signal
	// is stronger or others agree. It is at most 0.6 if the job was slow from its beginning. It
	// orders findings, and is not a probability.
	Confidence float64
}

// Worth is the least Cost of a finding that is worth reporting if samples come no more often than
// every 5 s. Such findings are about as precise as findings from a sample every second; findings of
// less Cost are not.
const Worth = 0.02

// Sentence describes the finding to people.
func (f Finding) Sentence(now time.Time) string {
	who := f.Node
	if !f.Whole {
		who += " " + units.Ranks("r", f.Ranks)
	}
	text := fmt.Sprintf("%s: %.0f %% slower than the median %s", who, 100*f.Slower, f.lasting(now))
	switch {
	case f.Cost >= 0.005:
		text += fmt.Sprintf("; without it the job would be %.0f %% faster", 100*f.Cost)
	case f.Cost == f.Cost:
		text += "; without it alone the job would be no faster"
	}
	var why []string
	for _, s := range f.Signals {
		why = append(why, s.String())
	}
	return text + " (" + strings.Join(why, ", and ") + ")"
}

func (f Finding) lasting(now time.Time) string {
	if f.Start {
		return "since the job began"
	}
	switch d := max(now.Sub(f.Since), time.Second); {
	case d < 2*time.Minute:
		return fmt.Sprintf("for %.0f s", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("for %.0f min", d.Minutes())
	default:
		return fmt.Sprintf("for %.0f h", d.Hours())
	}
}

// order lists the signals, the most exact first.
var order = [...]Signal{Busy, Pace, Late, Dim, Cadence}

// beside is the part of the worst rank's Slower from which on another rank is named too. It is far
// below 1, since ranks that wait for the worst rank seem faster than they are.
const beside = 0.4

// report makes one finding for each node with ranks that stick out.
func (w *Watch) report(slump float64) {
	// A rank that works while others wait explains a slower job better than a GPU that draws less.
	worst, explained := 0.0, false
	for r, e := range w.odd {
		if e.on() {
			worst, explained = max(worst, w.slower(r, slump)), explained || e.by != 1<<Dim
		}
	}
	for node, ranks := range w.homes {
		var odd []int
		for _, r := range ranks {
			e := w.odd[r]
			if by := w.slower(r, slump); e.on() && by > 0 && by >= beside*worst && !(explained && e.by == 1<<Dim) {
				odd = append(odd, r)
			}
		}
		if len(odd) > 0 {
			whole := len(w.homes) > 1 && len(odd) > 1 && 4*len(odd) >= 3*len(ranks)
			w.findings = append(w.findings, w.find(node, odd, whole, slump))
		}
	}
	slices.SortStableFunc(w.findings, func(a, b Finding) int { return cmp.Compare(b.Slower, a.Slower) })
	// Without the worst straggler, the job would still wait for the next straggler.
	for i := range w.findings {
		f := &w.findings[i]
		switch {
		case i > 0 && f.Cost == f.Cost:
			f.Cost = 0
		case i == 0 && len(w.findings) > 1:
			f.Cost *= 1 - w.findings[1].Slower/f.Slower
		}
	}
}

func (w *Watch) find(node int, odd []int, whole bool, slump float64) Finding {
	slices.SortFunc(odd, func(a, b int) int { return cmp.Compare(w.slower(b, slump), w.slower(a, slump)) })
	worst := odd[0]
	if whole {
		worst = odd[len(odd)/2]
	}
	e := w.odd[worst]
	f := Finding{Node: w.place.Names[node], Ranks: odd, Whole: whole, Slower: w.slower(worst, slump), Since: e.since, Start: e.start}
	slices.Sort(f.Ranks)
	f.Cost = w.cost(e, f.Slower, slump)
	doubt := 1.0
	for _, s := range order {
		if !e.has(s) {
			continue
		}
		f.Signals = append(f.Signals, s)
		doubt *= w.limitOf(s) / max(math.Abs(w.excessOf(s, worst)), w.limitOf(s)) / 2
	}
	f.Confidence = 1 - doubt
	if f.Start {
		f.Confidence = min(f.Confidence, 0.6)
	}
	return f
}

// slower returns how much slower a rank is by its most exact signal.
func (w *Watch) slower(r int, slump float64) float64 {
	for _, s := range order {
		if !w.odd[r].has(s) {
			continue
		}
		by := w.excessOf(s, r)
		switch s {
		case Dim:
			return slump
		case Late: // a part of the whole step, while other signals measure a part of the remaining step
			return by / max(1-by, 0.1)
		}
		return by
	}
	return 0
}

// excessOf returns the excess of a rank. The rank's longest stretch counts too, but adds at most
// half of the excess outside the stretch. The result is 0 if the excess is unknown now, as in a
// pause.
func (w *Watch) excessOf(s Signal, r int) float64 {
	if s == Dim {
		return sure(float64(w.sense[Busy].full[r]))
	}
	a, b := float64(w.sense[s].excess[r]), float64(w.sense[s].full[r])
	return max(0, sure(min(b, max(1.5*a, a+0.02))))
}

// sure returns v, or 0 if unknown.
func sure(v float64) float64 {
	if math.IsNaN(v) {
		return 0
	}
	return v
}

func (w *Watch) limitOf(s Signal) float64 {
	if s == Dim {
		s = Busy
	}
	return w.sense[s].limit
}
