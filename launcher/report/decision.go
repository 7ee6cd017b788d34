package report

import "time"

// Decision is one step of a job, with its reason in words.
type Decision struct {
	At     time.Time
	Reason string
	// News is what a person wants to know at once: a failure, a loss, a stop.
	News bool
	// Failure is how the attempt of the job, or of the node or rank that restarts by itself, began
	// to fail, if that caused the decision. What it says of the GPU and the step may be missing.
	Failure *Failure
	// Result is how the job ended, in the last decision that a watch tells; nil otherwise.
	Result *Result
}
