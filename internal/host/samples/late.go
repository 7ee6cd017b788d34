package samples

const (
	// lateAfter is the least number of seconds without a heartbeat that is worth a message.
	// lateSteps is the number of steps, if those take longer.
	lateAfter, lateSteps = 30, 10
)

// Late is after how many seconds without a heartbeat a rank counts as making no progress. stepTime
// is NaN if unknown.
func Late(stepTime float64) float64 {
	if stepTime > 0 {
		return max(lateAfter, lateSteps*stepTime)
	}
	return lateAfter
}
