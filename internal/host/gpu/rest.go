package gpu

import (
	"fmt"
	"time"
)

const (
	// tolerated is how many failures in a row count as chance.
	tolerated = 5
	// pause is how long a driver that keeps failing, or is missing, is left alone.
	pause = time.Minute
)

// rest says until when a driver is left alone, so that a driver that hangs or is missing costs
// nothing. The zero rest is for a working driver.
type rest struct {
	failures int
	until    time.Time
	// why is the last failure, or nil if there is no driver.
	why error
}

// failed counts a failure.
func (r rest) failed(now time.Time, why error) rest {
	r = rest{failures: r.failures + 1, why: why}
	if r.failures >= tolerated {
		r.until = now.Add(pause)
	}
	return r
}

// absent returns the rest for a missing driver.
func absent(now time.Time) rest { return rest{until: now.Add(pause)} }

// at reports whether to leave the driver alone at a time, and why.
func (r rest) at(now time.Time) (resting bool, why error) {
	left := r.until.Sub(now)
	if left <= 0 {
		return false, nil
	}
	if r.why != nil {
		why = fmt.Errorf("GPUs are not read for another %v, after %d failures in a row: %w", left.Round(time.Second), r.failures, r.why)
	}
	return true, why
}
