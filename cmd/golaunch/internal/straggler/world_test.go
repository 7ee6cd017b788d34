package straggler

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// scene is a kind of worlds: the available signals, and the special properties.
type scene struct {
	name   string
	told   told
	kinds  []string
	within float64 // seconds within which a straggler must be found
	change func(*world)
	bar    bool    // precision and recall must be 0.95
	least  float64 // the least cost of a finding that counts
}

var all = told{power: true, use: true, beats: true}

// flat has ranks that wait for each other at the end of a step and nowhere else.
func flat(w *world) { w.tp, w.pp, w.stage = 1, 1, []float64{1} }

func single(w *world) {
	flat(w)
	w.fault.whole = false
}

func apart(w *world) {
	flat(w)
	w.apart, w.save.every, w.eval.every, w.step = true, 0, 0, min(w.step, 1)
}

var scenes = []scene{
	{"power, use, heartbeats", all, []string{"gpu", "host"}, 15, nil, true, 0},
	{"the same, clocks seconds apart", all, []string{"gpu", "host"}, 15, apartClocks, true, 0},
	{"the same, a third of nodes mute", told{power: true, use: true, beats: true, missing: 0.33}, []string{"gpu", "host"}, 15, nil, true, 0},
	{"the same, sampled every 5 s", all, []string{"gpu", "host"}, 75, func(w *world) { w.sampled = 5; w.fault.from += 300 }, false, 0},
	{"the same, of what costs 2 % or more", all, []string{"gpu", "host"}, 120, func(w *world) { w.sampled = 5; w.fault.from += 300 }, true, Worth},
	{"the same, steps of 5 to 12 s", all, []string{"gpu", "host"}, 90, long, true, 0},
	{"the same, slow from the beginning", all, []string{"gpu"}, 240, beginning, false, 0},
	{"the same, throttled by heat", all, []string{"hot"}, 20, atLeast4, false, 0},
	{"the same, slow links", all, []string{"link"}, 15, nil, false, 0},
	{"power, use", told{power: true, use: true}, []string{"gpu", "host"}, 30, nil, false, 0},
	{"power", told{power: true}, []string{"gpu"}, 30, nil, false, 0},
	{"CPU time, without GPUs", told{cpu: true}, []string{"gpu"}, 30, nil, false, 0},
	{"heartbeats before the collective", told{beats: true, early: true}, []string{"gpu", "host"}, 15, single, true, 0},
	{"heartbeats after the collective", told{beats: true}, []string{"gpu", "host"}, 15, nil, false, 0},
	{"heartbeats of ranks that do not wait", told{beats: true}, []string{"gpu", "host"}, 15, apart, true, 0},
	{"lines of ranks that do not wait", told{lines: true}, []string{"gpu", "host"}, 150, apart, false, 0},
	{"the same lines, counted every 5 s", told{lines: true}, []string{"gpu", "host"}, 750, seldom, false, 0},
}

func long(w *world) { w.step, w.fault.from = max(6*w.step, 5), w.fault.from+300 }

func apartClocks(w *world) {
	for n := range w.skew {
		w.skew[n] *= 20
	}
}

// seldom has lines that are counted every 5 s, of ranks that become slow when the usual values are
// known.
func seldom(w *world) {
	apart(w)
	w.sampled = 5
	w.fault.from += 900
}

// beginning has ranks that are slow from the first step on, by more than pipeline stages or GPUs of
// one kind differ.
func beginning(w *world) {
	atLeast4(w)
	w.fault.from, w.fault.by = 0, 0.5+w.fault.by/2
}

// atLeast4 has at least four nodes: one node is then less than half of the job.
func atLeast4(w *world) {
	w.nodes = max(w.nodes, 4)
	w.furnish()
}

var layouts = [][4]int{ // nodes, ranks on each node, tensor and pipeline parallel ranks
	{2, 8, 1, 1},
	{2, 8, 8, 1},
	{2, 4, 1, 2},
	{4, 8, 1, 1},
	{4, 8, 8, 1},
	{4, 8, 4, 2},
	{4, 8, 2, 4},
	{8, 8, 1, 1},
	{8, 8, 8, 2},
	{8, 4, 1, 4},
	{16, 8, 1, 1},
	{16, 8, 8, 4},
}

// make makes a world of a scene by its number. A third of the worlds have no straggler.
func (s scene) make(number int) *world { return s.of(number, layouts[number%len(layouts)]) }

func (s scene) of(number int, l [4]int) *world {
	r := rand.New(rand.NewPCG(uint64(number), 7))
	w := &world{
		Rand: r, nodes: l[0], per: l[1], tp: l[2], pp: l[3], step: 0.2 + 1.2*r.Float64(), comm: 0.03 + 0.1*r.Float64(),
		noise: 0.02 + 0.02*r.Float64(),
		micro: 8, idle: 0.1 + 0.06*r.Float64(), wait: 0.22 + 0.14*r.Float64(), drift: 0.01, sampled: 1, startup: 20 + 30*r.Float64(),
		told: s.told, hiccups: 20000,
	}
	w.save = phase{150 + r.IntN(100), 3 + 20*r.Float64(), r.IntN(2) == 0}
	w.eval = phase{120 + r.IntN(200), 5 + 20*r.Float64(), r.IntN(2) == 0}
	for range w.pp {
		w.stage = append(w.stage, 1)
	}
	w.stage[0] += 0.05 * r.Float64()
	w.stage[w.pp-1] += 0.15 * r.Float64()
	w.fault = fault{from: 150 + 60*r.Float64(), by: 0.1 + 0.4*r.Float64()*r.Float64()}
	if r.IntN(3) > 0 {
		w.fault.kind, w.fault.whole = s.kinds[r.IntN(len(s.kinds))], r.IntN(3) == 0
	}
	for range w.nodes {
		w.skew = append(w.skew, 0.3*(r.Float64()-0.5))
	}
	w.furnish()
	if s.change != nil {
		s.change(w)
	}
	w.pick()
	return w
}

// furnish gives each node a clock, and each rank a GPU.
func (w *world) furnish() {
	for len(w.skew) < w.nodes {
		w.skew = append(w.skew, 0)
	}
	full := 0.7 + 0.28*w.Float64()
	for len(w.full) < w.ranks() {
		w.full = append(w.full, full*(1+0.03*w.NormFloat64()))
	}
}

// pick says which ranks become slow.
func (w *world) pick() {
	f := &w.fault
	switch {
	case f.kind == "" || f.kind == "link":
	case f.whole:
		n := w.IntN(w.nodes)
		if f.from == 0 { // the first and the last stage of a pipeline have more work
			n = 1 + w.IntN(w.nodes-2)
		}
		for i := range w.per {
			f.ranks = append(f.ranks, n*w.per+i)
		}
	default:
		f.ranks = []int{1 + w.IntN(w.ranks()-2)}
	}
}

// outcome is the result of a world.
type outcome struct {
	hurt, hit bool
	took      float64
	wrong     []string
	// slower and cost are the errors of the finding at the end.
	slower, cost float64
}

func (s scene) play(number int) (o outcome) {
	w := s.make(number)
	f := w.fault
	o.hurt = len(f.ranks) > 0
	o.slower, o.cost = math.NaN(), math.NaN()
	seen := map[string]bool{}
	slowFrom := 0
	c := w.run(f.from+s.within+60, func(c *clock, now float64) {
		to := c.to
		for _, found := range to.Findings() {
			if found.Cost < s.least {
				continue
			}
			inside := now >= f.from && !slices.ContainsFunc(found.Ranks, func(r int) bool { return !slices.Contains(f.ranks, r) })
			key := fmt.Sprint(found.Node, found.Ranks)
			if !inside && !seen[key] {
				seen[key] = true
				o.wrong = append(o.wrong, fmt.Sprintf("world %d, %.0f s after: %s", number, now-f.from, found.Sentence(at(now))))
			}
			if inside && found.Whole == f.whole {
				if !o.hit && c.slow <= s.within {
					o.hit, o.took = true, min(now-f.from, c.slow)
				}
				o.slower, o.cost = found.Slower, found.Cost
			}
		}
	})
	for i, sum := 0, w.startup; i < len(c.times); i++ {
		if sum += c.times[i]; sum < f.from {
			slowFrom = i
		}
	}
	o.slower = math.Abs(o.slower - f.by)
	switch {
	case slowFrom == 0 && len(c.times) > 0:
		o.cost = math.NaN()
	case o.hurt && len(c.times) > slowFrom+10:
		o.cost = math.Abs(o.cost - (1 - middle(c.times[:slowFrom])/middle(c.times[len(c.times)-8:])))
	}
	return o
}

func middle(all []float64) float64 {
	return slices.Sorted(slices.Values(all))[len(all)/2]
}

// score has the results of all worlds of a scene.
type score struct {
	worlds, hurt, hit, wrong int
	took, slower, cost       []float64
	why                      []string
}

func (s scene) score(worlds int) (sum score) {
	for i := range worlds {
		o := s.play(i)
		sum.worlds++
		sum.wrong += len(o.wrong)
		sum.why = append(sum.why, o.wrong...)
		if o.hurt {
			sum.hurt++
		}
		if o.hit {
			sum.hit++
			sum.took = append(sum.took, o.took)
			if o.slower == o.slower {
				sum.slower = append(sum.slower, 100*o.slower)
			}
			if o.cost == o.cost {
				sum.cost = append(sum.cost, 100*o.cost)
			}
		} else if o.hurt {
			sum.why = append(sum.why, fmt.Sprintf("world %d missed", i))
		}
	}
	return sum
}

func (s score) precision() float64 { return ratio(s.hit, s.hit+s.wrong) }

func (s score) recall() float64 { return ratio(s.hit, s.hurt) }

func ratio(part, whole int) float64 { return float64(part) / float64(whole) }

// quantile returns a quantile of numbers, or a dash.
func quantile(all []float64, q float64) string {
	if len(all) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f", slices.Sorted(slices.Values(all))[int(q*float64(len(all)-1))])
}

func decimal(v float64) string {
	if v != v {
		return "-"
	}
	return fmt.Sprintf("%.2f", v)
}

// row is a line of the table.
func (s score) row(name string) string {
	return fmt.Sprintf("%-38s %4d %4d %4d %4d %9s %6s %6s %6s %6s %6s\n", name, s.worlds, s.hurt, s.hit, s.wrong, decimal(s.precision()),
		decimal(s.recall()), quantile(s.took, 0.5), quantile(s.took, 0.95), quantile(s.slower, 0.5), quantile(s.cost, 0.5))
}

const head = "                                       made hurt  hit false precision recall  50 %   95 %  slower   cost\n"

// perScene is the number of worlds of each kind; half as many are made where precision and recall
// need not be 0.95. Under the race detector there are few worlds, and there is no table.
const perScene = 96

func (s scene) worlds() int {
	if s.bar {
		return perScene
	}
	return perScene / 2
}

// TestSignals plays worlds of each kind, and compares the findings of each set of signals with
// testdata/signals. The columns are: the worlds; the worlds with a straggler; the worlds in which
// it was found in time; wrong findings; the seconds of training until half of the stragglers and
// nearly all were found; and the median error of Slower and Cost, in percentage points. Run with
// -rewrite to accept a change.
func TestSignals(t *testing.T) {
	if raced {
		for _, s := range scenes {
			s.score(perScene / 32)
		}
		return
	}
	scores := make([]score, len(scenes))
	t.Run("worlds", func(t *testing.T) {
		for i, s := range scenes {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				scores[i] = s.score(s.worlds())
				for _, why := range scores[i].why {
					t.Log(why)
				}
				if p, r := scores[i].precision(), scores[i].recall(); s.bar && (p < 0.95 || r < 0.95) {
					t.Errorf("precision %.3f, recall %.3f, want 0.95", p, r)
				}
			})
		}
	})
	datadriven.RunTest(t, "testdata/signals", func(t *testing.T, d *datadriven.TestData) string {
		var table strings.Builder
		table.WriteString(head)
		for i, s := range scenes {
			table.WriteString(scores[i].row(s.name))
		}
		return table.String()
	})
}

// TestDay plays a day of jobs that save, evaluate and hiccup, and have no straggler.
func TestDay(t *testing.T) {
	for _, l := range [][4]int{{2, 8, 1, 1}, {4, 4, 2, 2}} {
		t.Run(fmt.Sprint(l), func(t *testing.T) {
			t.Parallel()
			s := scene{told: all, kinds: []string{""}}
			w := s.of(3, l)
			w.fault, w.hiccups = fault{from: math.Inf(1)}, 100_000
			w.save = phase{900, 40, true}
			w.eval = phase{2000, 120, false}
			hours := 24.0
			if raced {
				hours = 0.5
			}
			wrong := 0
			w.run(hours*3600, func(c *clock, now float64) {
				for _, f := range c.to.Findings() {
					wrong++
					t.Logf("%.0f s: %s", now, f.Sentence(at(now)))
				}
			})
			if wrong > 0 {
				t.Errorf("named a rank in %d seconds, want none", wrong)
			}
		})
	}
}
