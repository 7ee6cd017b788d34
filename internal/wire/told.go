package wire

import (
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// Decision is an event that changed something.
type Decision struct {
	At time.Time
	// Event is nil for a client, which is told only the reason.
	Event  job.Event
	Reason string
	// News says that people want to know at once, as of a failure, a loss or a stop.
	News bool
	// Failure is how an attempt of a unit began to fail, if it did.
	Failure *report.Failure
}

// Update is one message to a client about a job. Exactly one field is set.
type Update struct {
	Decision *Decision
	// Granted are the placement groups of a reservation.
	Granted *placement.Plan
	// Result is the last update.
	Result *report.Result
}
