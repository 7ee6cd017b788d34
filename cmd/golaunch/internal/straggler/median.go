package straggler

import (
	"math"
	"slices"
)

// maxDraw is the largest number of ranks from which a median is computed. If a job has more ranks,
// the median's error is a thirtieth of the spread of the ranks.
const maxDraw = 1023

// stride is the distance between the ranks that draw takes. Because it is odd, draw takes ranks at
// all places on nodes of 2, 4 or 8 ranks.
func stride(n int) int {
	if n <= maxDraw {
		return 1
	}
	return (n/maxDraw + 1) | 1
}

// draw returns at most maxDraw known values of ranks, spread evenly. It reuses into.
func draw(ranks []int, value []float32, into []float32) []float32 {
	into = into[:0]
	for i, step := 0, stride(len(ranks)); i < len(ranks); i += step {
		if v := value[ranks[i]]; known(v) {
			into = append(into, v)
		}
	}
	return into
}

// median returns the lower median; NaN if there are no values. So for two ranks, the lower value is
// the median. It sorts values.
func median(values []float32) float32 {
	if len(values) == 0 {
		return nan
	}
	slices.Sort(values)
	return values[(len(values)-1)/2]
}

// spread estimates the standard deviation from the median distance to a center. It changes values.
func spread(values []float32, center float32) float64 {
	for i, v := range values {
		values[i] = max(v-center, center-v)
	}
	return 1.4826 * float64(median(values))
}

// beyond returns the number of standard deviations that none of n normal values exceeds in a day of
// slots.
func beyond(n int) float64 { return math.Sqrt(2*math.Log(float64(max(n, 2)))) + 2.5 }

var nan = float32(math.NaN())

func known(v float32) bool { return v == v }
