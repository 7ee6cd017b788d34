package report

import "time"

// Decision is one step of a job, with its reason in words.
type Decision struct {
	At     time.Time
	Reason string
	// News says that a person wants to know the decision at once: a failure, a loss, a stop.
	News bool
	// Failure is the failure that caused the decision, or nil. It is the first failure in the
	// attempt of the job, or of the node or rank that restarts by itself. Its GPU and Step may be
	// missing.
	Failure *Failure
	// Result is how the job ended, in the last decision of a watch; nil in all others.
	Result *Result
}
