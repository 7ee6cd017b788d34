package verdict

import (
	"time"

	"github.com/golaunch/golaunch/launcher/report"
)

// Twins knows the failures of a node whose evidence was reported. Ranks that fail in the same way
// need not report their evidence. If a whole gang fails, each rank has a traceback, and it is the
// same for all ranks of a node. The zero Twins knows no failures.
type Twins struct {
	// only is the first failure. People wait for its report, so its signature is computed only when
	// a second failure comes.
	only *report.Failure
	// ended has the end of the first failure with each signature.
	ended map[string]time.Time
}

// Known reports whether a failure shows, by the built-in rules, no more than an earlier known
// failure. If it shows more, the failure is known from now on.
func (t *Twins) Known(f report.Failure) bool {
	if t.only == nil {
		t.only = &f
		return false
	}
	if t.ended == nil {
		t.ended = map[string]time.Time{signed(*t.only): t.only.At}
		*t.only = report.Failure{}
	}
	sig := signed(f)
	first, known := t.ended[sig]
	if known && !f.At.Before(first) {
		return true
	}
	t.ended[sig] = f.At
	return false
}

// signed returns the signature together with the action and the victim mark of the verdict.
func signed(f report.Failure) string {
	v := Judge(f)
	words := Signature(f) + " " + string(v.Action)
	if v.Victim {
		words += " victim"
	}
	return words
}
