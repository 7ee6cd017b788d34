package wire

import (
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// Update is one message to a client about a job. Exactly one field is set.
type Update struct {
	Decision *report.Decision
	// Granted are the placement groups of a reservation.
	Granted *placement.Plan
	// Result is the last update.
	Result *report.Result
}
