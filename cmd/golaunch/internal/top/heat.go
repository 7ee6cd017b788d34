package top

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/alert"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/units"
	"github.com/golaunch/golaunch/launcher/report"
)

// measure is a quantity that the heat map can show.
type measure struct {
	name string
	of   func(*report.Usage) float64
	// scale is the range of the colours, by the job's norms.
	scale func(alert.Norms) (low, high float64)
	show  func(float64) string
}

// measures lists all measures, the most important first: the time of a step shows a rank whose step
// does not end, since the rank gets hotter.
var measures = []measure{
	{"time of a step", paceOf, func(n alert.Norms) (float64, float64) { return 0.85 * n.StepTime, 1.65 * n.StepTime }, units.StepSeconds},
	{"GPU use", useOf, func(alert.Norms) (float64, float64) { return 0, 1 }, units.Percent},
	{"GPU power", powerOf, func(n alert.Norms) (float64, float64) { return 0.4 * n.PowerLimit, n.PowerLimit }, units.Watts},
	{"age of the heartbeat", beatAgeOf, func(n alert.Norms) (float64, float64) { return 0, n.Late() }, units.Age},
	{"CPUs in use", cpusOf, func(n alert.Norms) (float64, float64) { return 0, max(1, n.CPUs) }, units.Tenths},
	{"memory", memoryOf, func(n alert.Norms) (float64, float64) { return 0, n.Memory }, units.Size},
}

// measured is the selected measure, or the next one with known values.
func (s *screen) measured(ranks []*Rank) (measure, bool) {
	for i := range measures {
		m := measures[(s.measure+i)%len(measures)]
		if slices.ContainsFunc(ranks[:min(len(ranks), 64)], func(r *Rank) bool { return units.Known(m.of(&r.Now)) }) {
			s.measure = (s.measure + i) % len(measures)
			return m, true
		}
	}
	return measure{}, false
}

// heatRanks are the ranks of the heat map: of the shown place, or of the selected job or node.
func (s *screen) heatRanks() []*Rank {
	at := s.current()
	switch {
	case s.rows.ranks != nil:
		return s.rows.ranks
	case at.job == "" && at.node == "":
		at = s.chosen()
	}
	return s.picture.ranks(at)
}

// heat has a line for each rank, the worst first, and a column for each span of time, the newest on
// the right. For a single rank it has a line for each measure.
func (s *screen) heat(l *look, height int) (string, []string) {
	ranks := s.heatRanks()
	if s.current().rank >= 0 && len(ranks) == 1 {
		return s.heatOfRank(l, ranks[0])
	}
	m, some := s.measured(ranks)
	if !some {
		return "heat map", []string{l.paint(dim, cut("  nothing was measured of the ranks here", s.width, l.ellipsis))}
	}
	s.heatTop = max(0, min(s.heatTop, len(ranks)-height))
	seen := ranks[s.heatTop:min(len(ranks), s.heatTop+height)]
	label := len(fmt.Sprint(slices.MaxFunc(seen, func(a, b *Rank) int { return a.Rank.Rank - b.Rank.Rank }).Rank.Rank)) + 2
	cells := max(1, s.width-label-9)
	value := max(0, min(8, s.width-label-cells))
	w := s.timespan(seen, cells)
	of := s.norms(seen[0])
	low, high := m.scale(of)
	var lines []string
	for _, r := range seen {
		name := l.paint(roleOf(r.Level), fit(fmt.Sprint("r", r.Rank.Rank), label, false, ""))
		lines = append(lines, name+l.strip(r, m, low, high, w)+fit(m.show(m.of(&r.Now)), value, true, l.ellipsis))
	}
	return fmt.Sprintf("%s, %s, %s: %s %s to %s %s", m.name, units.Plural(len(ranks), "rank"), w, l.heat[0], m.show(low), l.heat[heats-1], m.show(high)), lines
}

func (s *screen) norms(r *Rank) alert.Norms {
	if j := s.picture.Job(r.Job); j != nil {
		return j.Norms
	}
	return alert.Norms{}
}

// heatOfRank shows all measures of a rank.
func (s *screen) heatOfRank(l *look, r *Rank) (string, []string) {
	const label = 21
	w := s.timespan([]*Rank{r}, max(1, s.width-label-9))
	var lines []string
	for _, m := range measures {
		if !units.Known(m.of(&r.Now)) {
			continue
		}
		low, high := m.scale(s.norms(r))
		lines = append(lines, fit(m.name, label, false, l.ellipsis)+l.strip(r, m, low, high, w)+fit(m.show(m.of(&r.Now)), 8, true, l.ellipsis))
	}
	if s.width < 2*label {
		for i := range lines {
			lines[i] = ""
		}
	}
	return "this rank, " + w.String(), lines
}

// timespan is the time that a heat map covers, divided into cells, until an end.
type timespan struct {
	end time.Time
	all time.Duration
	n   int
}

func (w timespan) String() string { return fmt.Sprintf("last %.0f min", w.all.Minutes()) }

// at is when a cell begins.
func (w timespan) at(cell int) time.Time {
	return w.end.Add(-w.all * time.Duration(w.n-cell) / time.Duration(w.n))
}

// everySample is the longest time between samples in normal operation.
const everySample = 5 * time.Second

// timespan covers all samples, in steps that are easy to read.
func (s *screen) timespan(ranks []*Rank, cells int) timespan {
	now := s.picture.State.At
	oldest := now
	for _, r := range ranks {
		if len(r.Samples) > 0 && r.Samples[0].At.Before(oldest) {
			oldest = r.Samples[0].At
		}
	}
	all := time.Minute
	for _, longer := range []time.Duration{2 * time.Minute, 5 * time.Minute, 10 * time.Minute} {
		if now.Sub(oldest) > all {
			all = longer
		}
	}
	return timespan{now, all, cells}
}

// strip is a measure of a rank over time. Unknown cells are empty.
func (l *look) strip(r *Rank, m measure, low, high float64, w timespan) string {
	var b strings.Builder
	was, run := -2, ""
	flush := func() {
		if was >= 0 {
			run = l.paint(heat0+role(was), run)
		}
		b.WriteString(run)
		run = ""
	}
	for i := range w.n {
		level := heatLevel(w.value(r.Samples, m, i), low, high)
		if level != was {
			flush()
			was = level
		}
		if level < 0 {
			run += " "
		} else {
			run += l.heat[level]
		}
	}
	flush()
	return b.String()
}

// value is the mean of the samples in a cell, or the last value before it unless that is too old.
func (w timespan) value(samples []report.Sample, m measure, cell int) float64 {
	from, to := w.at(cell), w.at(cell+1)
	end, _ := slices.BinarySearchFunc(samples, to, func(s report.Sample, t time.Time) int { return btoi(s.At.After(t))*2 - 1 })
	sum, n := 0.0, 0
	for i := end - 1; i >= 0; i-- {
		if before := samples[i].At.Before(from); before && (n > 0 || samples[i].At.Add(3*everySample).Before(to)) {
			break
		} else if v := m.of(&samples[i].Usage); units.Known(v) {
			sum, n = sum+v, n+1
			if before {
				break
			}
		}
	}
	if n == 0 {
		return math.NaN()
	}
	return sum / float64(n)
}

// heatLevel is the level of a value between low and high; -1 if the value is unknown.
func heatLevel(v, low, high float64) int {
	if !units.Known(v) {
		return -1
	}
	if !(high > low) {
		return 0
	}
	return int(min(max((v-low)/(high-low)*heats, 0), heats-1))
}
