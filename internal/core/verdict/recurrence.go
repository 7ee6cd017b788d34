package verdict

import (
	"fmt"
	"time"

	"github.com/golaunch/golaunch/launcher/report"
)

const (
	// Repeats is how many failures in a row with the same signature, without progress, count as a
	// bug.
	Repeats = 3
	// Progress is how long an attempt must have lived to count as progress if the program does not
	// report its steps. It is long enough to have written a checkpoint, so a job that fails now and
	// then is never stopped for that.
	Progress = 10 * time.Minute
	// Brief is the limit for failures that say nothing: such a failure counts only if the attempt
	// lived for less than Brief. Attempts that end at once end for the same reason each time. An
	// attempt that lived longer may have failed for any reason.
	Brief = 10 * time.Second
)

// Recurrence is how often the same failure has occurred in a row. The zero value is the beginning
// of a job.
type Recurrence struct {
	Signature string
	Count     int
	// Step is the step that the job had reached when the failure was last counted.
	Step int64
}

// Next takes the failure that ended an attempt, and returns the verdict on it. Restart becomes Stop
// if the same failure has come [Repeats] times in a row without progress. Stop becomes Restart if
// the failure has come fewer times in a row and the attempt lived for [Progress], except if a user
// left the debugger. Some failures neither count nor interrupt such a row: a failure of a node or
// of anything else outside the job, the echo of another failure, and an unrecognized failure that
// says nothing on stderr and did not come at once.
func (r Recurrence) Next(f report.Failure, own ...Rule) (Recurrence, report.Verdict) {
	v := Judge(f, own...)
	silent := v.Cause == Unknown && lastWords(f) == ""
	if v.Cause == "" || silent && (f.Lived <= 0 || f.Lived >= Brief) || v.Victim || v.Action == report.ActionReplace || v.Action == report.ActionWait {
		return r, v
	}
	sig := Signature(f, own...)
	if sig != r.Signature || r.further(f) {
		r = Recurrence{Signature: sig}
	}
	r.Count++
	r.Step = max(r.Step, f.Step)
	switch {
	case r.Count >= Repeats && v.Action == report.ActionRestart:
		v.Action = report.ActionStop
		v.Remedy = fmt.Sprintf("it happened %d times in a row without progress: a restart does not help; %s", r.Count, v.Remedy)
	case r.Count < Repeats && v.Action == report.ActionStop && f.Lived >= Progress && v.Cause != Quit:
		v.Action = report.ActionRestart
	}
	return r, v
}

// further reports whether the attempt got beyond the point where the attempt before failed.
func (r Recurrence) further(f report.Failure) bool {
	if f.Step > 0 {
		return f.Step > r.Step
	}
	return f.Lived >= Progress
}
