package gpu

import (
	"fmt"
	"time"
)

const (
	// tolerated is how many failures in a row are taken for chance.
	tolerated = 5
	// pause is for how long a driver is left alone that fails again and again, or is not there.
	pause = time.Minute
)

// rest is when a driver is left alone, so that one that hangs, or is not there, costs nothing. The zero rest is of one that works.
type rest struct {
	failures int
	until    time.Time
	// why is the newest failure, nil when there is no driver.
	why error
}

// failed takes a failure, after which the driver may be left alone.
func (r rest) failed(now time.Time, why error) rest {
	r = rest{failures: r.failures + 1, why: why}
	if r.failures >= tolerated {
		r.until = now.Add(pause)
	}
	return r
}

// absent is of a driver that is not there.
func absent(now time.Time) rest { return rest{until: now.Add(pause)} }

// at says whether the driver is left alone at a time, and of what failures.
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
