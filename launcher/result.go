package launcher

import (
	"time"

	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/launcher/report"
)

// Decision is one step of a job, with its reason in words.
type Decision struct {
	At     time.Time
	Reason string
	// News is what a person wants to know at once: a failure, a loss, a stop.
	News bool
	// Failure is how the attempt of the job, or of the node or rank that restarts by itself, began
	// to fail, if this was decided for that. What it says of the GPU and the step may be missing.
	Failure *report.Failure
	// Result is how the job ended, in the last that a Watch tells; nil otherwise.
	Result *report.Result
}

func decisionOf(d wire.Decision) Decision {
	return Decision{At: d.At, Reason: d.Reason, News: d.News, Failure: d.Failure}
}

// each keeps nil nil.
func each[A, B any](in []A, f func(A) B) []B {
	if in == nil {
		return nil
	}
	out := make([]B, len(in))
	for i, a := range in {
		out[i] = f(a)
	}
	return out
}
