package samples

const (
	// lateAfter is the least number of seconds without a heartbeat that is worth a word, and lateSteps how many steps it is where these are
	// long.
	lateAfter, lateSteps = 30, 10
)

// Late is after how many seconds without a heartbeat a rank is said to make no progress, whose steps take so many; NaN where that is not known.
func Late(stepTime float64) float64 {
	if stepTime > 0 {
		return max(lateAfter, lateSteps*stepTime)
	}
	return lateAfter
}
