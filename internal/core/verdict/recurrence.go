package verdict

import (
	"fmt"
	"time"

	"github.com/golaunch/golaunch/launcher/report"
)

const (
	// Repeats is how many failures of one signature in a row, without progress, are a bug.
	Repeats = 3
	// Progress is how long an attempt must have lived to count as progress when the program does not say how far it came: long
	// enough to have written a checkpoint, so that a job that fails now and then is never stopped for it.
	Progress = 10 * time.Minute
	// Brief is for how long an attempt that says nothing of why it failed may have lived at most to count: one that ends at once does so for the
	// same reason each time, while what a silent one that has worked for longer died of is not known.
	Brief = 10 * time.Second
)

// Recurrence is how often the same failure has come in a row. The zero value is the beginning of a job.
type Recurrence struct {
	Signature string
	Count     int
	// Step is how far the job had come when it was last counted.
	Step int64
}

// Next takes the failure that ended an attempt. It gives back the verdict on it, turned into Stop when it is the third in a row
// that is the same at the same progress, and from Stop into Restart when the attempt made progress before the first two. A node or
// anything outside of the job that fails, the echo of another failure, and what is not recognised, says nothing on stderr and has not ended at once, neither
// count nor end a row.
func (r Recurrence) Next(e Evidence, own ...Rule) (Recurrence, report.Verdict) {
	v := Judge(e, own...)
	silent := v.Cause == Unknown && e.lastWords() == ""
	if v.Cause == "" || silent && (e.Lived <= 0 || e.Lived >= Brief) || v.Victim || v.Action == report.ActionReplace || v.Action == report.ActionWait {
		return r, v
	}
	sig := Signature(e, own...)
	if sig != r.Signature || r.further(e) {
		r = Recurrence{Signature: sig}
	}
	r.Count++
	r.Step = max(r.Step, e.Step)
	switch {
	case r.Count >= Repeats && v.Action == report.ActionRestart:
		v.Action = report.ActionStop
		v.Remedy = fmt.Sprintf("it has come %d times in a row without progress: a restart does not mend it; %s", r.Count, v.Remedy)
	case r.Count < Repeats && v.Action == report.ActionStop && e.Lived >= Progress && v.Cause != Quit:
		v.Action = report.ActionRestart
	}
	return r, v
}

// further says whether the attempt got beyond where the one before it failed.
func (r Recurrence) further(e Evidence) bool {
	if e.Step > 0 {
		return e.Step > r.Step
	}
	return e.Lived >= Progress
}
