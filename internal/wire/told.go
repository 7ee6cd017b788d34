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
	// Event is nil for a client, which is told the reason alone.
	Event  job.Event
	Reason string
	// News is what a person wants to know at once: a failure, a loss, a stop.
	News bool
	// Failure is how an attempt of a unit began to fail, if it did.
	Failure *report.Failure
}

// Update is one thing that a client is told of a job; just one field is set.
type Update struct {
	Decision *Decision
	// Granted are the placement groups of a reservation.
	Granted *placement.Plan
	// Result is the last update.
	Result *report.Result
}
