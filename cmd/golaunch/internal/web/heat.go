package web

import (
	"math"
	"time"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/units"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
	"github.com/golaunch/golaunch/launcher/report"
)

// meters are the quantities that a heat map can show.
var meters = map[string]func(report.Usage) float64{
	"step_time": func(u report.Usage) float64 { return u.StepTime },
	"gpu_use":   func(u report.Usage) float64 { return u.GPUUse },
	"power":     func(u report.Usage) float64 { return u.GPUPower },
	"cpus":      func(u report.Usage) float64 { return u.CPUs },
}

// heat is a map of ranks over time. It covers finished slots only, so that it changes once a slot.
type heat struct {
	Meter string `json:"meter"`
	// From is when the first slot began. There are Slots slots of Slot seconds each.
	From  moment `json:"from"`
	Slot  real   `json:"slot"`
	Slots int    `json:"slots"`
	// Rows are ranks, or groups of Each ranks; a group shows its rank furthest from the median.
	Rows int `json:"rows"`
	Each int `json:"each"`
	// Cells has a byte for each slot of each row, row by row: 0 is unknown, 1 is Low or less, and
	// 255 is High or more.
	Cells []byte `json:"cells"`
	Low   real   `json:"low"`
	High  real   `json:"high"`
	// Least, Median and Most are the values of all ranks in each slot.
	Least  []real `json:"least"`
	Median []real `json:"median"`
	Most   []real `json:"most"`
}

// A heat map has slots of this length, at most so many slots, and at most so many rows.
const (
	slot     = 5 * time.Second
	maxSlots = 120
	maxRows  = 512
)

// newHeat makes the map of ranks, which are sorted.
func newHeat(ranks []*view.Rank, meter string) heat {
	first, last := slots(ranks)
	h := heat{
		Meter: meter, From: when(time.Unix(0, first*int64(slot))), Slot: real(slot.Seconds()), Slots: int(last - first),
		Each: max(1, (len(ranks)+maxRows-1)/maxRows), Least: []real{}, Median: []real{}, Most: []real{},
	}
	h.Rows = (len(ranks) + h.Each - 1) / h.Each
	grid := make([][]float64, len(ranks))
	for i, r := range ranks {
		grid[i] = row(r, meters[meter], first, h.Slots)
	}
	h.summarise(grid)
	h.scale()
	h.paint(grid)
	return h
}

// slots returns the first slot with a sample that the map covers, and the slot that has not ended.
func slots(ranks []*view.Rank) (first, last int64) {
	first = math.MaxInt64
	for _, r := range ranks {
		if n := len(r.Samples); n > 0 {
			last = max(last, r.Samples[n-1].At.UnixNano()/int64(slot))
			first = min(first, r.Samples[0].At.UnixNano()/int64(slot))
		}
	}
	return max(last-maxSlots, min(first, last)), last
}

// row returns the mean of a rank's values in each slot.
func row(r *view.Rank, meter func(report.Usage) float64, first int64, slots int) []float64 {
	sums, counts := make([]float64, slots), make([]float64, slots)
	for _, s := range r.Samples {
		at := s.At.UnixNano()/int64(slot) - first
		if v := meter(s.Usage); at >= 0 && at < int64(slots) && !math.IsNaN(v) {
			sums[at] += v
			counts[at]++
		}
	}
	for i := range sums {
		sums[i] /= counts[i] // without samples it is NaN
	}
	return sums
}

func (h *heat) summarise(grid [][]float64) {
	column := make([]float64, 0, len(grid))
	for at := range h.Slots {
		column = column[:0]
		least, most := math.NaN(), math.NaN()
		for _, row := range grid {
			if v := row[at]; !math.IsNaN(v) {
				column = append(column, v)
				if !(least <= v) {
					least = v
				}
				if !(most >= v) {
					most = v
				}
			}
		}
		h.Least, h.Median, h.Most = append(h.Least, real(least)), append(h.Median, real(units.Median(column))), append(h.Most, real(most))
	}
}

// scale chooses the values of the lightest and the darkest colour. One slow step, such as the
// first, must not make all others look alike, and noise of a few percent must stay faint.
func (h *heat) scale() {
	low, high := math.NaN(), math.NaN()
	var medians []float64
	for i := range h.Slots {
		if v := float64(h.Median[i]); !math.IsNaN(v) {
			medians = append(medians, v)
		}
		if v := float64(h.Least[i]); !(low <= v) && !math.IsNaN(v) {
			low = v
		}
		if v := float64(h.Most[i]); !(high >= v) && !math.IsNaN(v) {
			high = v
		}
	}
	switch usual := units.Median(medians); h.Meter {
	case "gpu_use":
		low, high = 0, 1
	case "step_time":
		low, high = min(low, 0.9*usual), max(1.1*usual, min(high, 4*usual))
	default:
		low, high = min(low, 0.9*usual), max(high, 1.1*usual)
	}
	h.Low, h.High = real(low), real(high)
}

func (h *heat) paint(grid [][]float64) {
	h.Cells = make([]byte, h.Rows*h.Slots)
	low, high := float64(h.Low), float64(h.High)
	for y := range h.Rows {
		group := grid[y*h.Each : min(len(grid), (y+1)*h.Each)]
		for x := range h.Slots {
			if v := furthest(group, x, float64(h.Median[x])); !math.IsNaN(v) {
				h.Cells[y*h.Slots+x] = byte(1 + math.Round(254*max(0, min(1, (v-low)/max(high-low, 1e-12)))))
			}
		}
	}
}

// furthest is the value furthest from the median.
func furthest(group [][]float64, at int, median float64) float64 {
	far := math.NaN()
	for _, row := range group {
		if v := row[at]; !math.IsNaN(v) && !(math.Abs(far-median) >= math.Abs(v-median)) {
			far = v
		}
	}
	return far
}
