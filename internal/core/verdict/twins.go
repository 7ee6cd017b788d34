package verdict

import (
	"time"

	"github.com/golaunch/golaunch/launcher/report"
)

// Twins knows the failures of a node whose evidence was reported, so that ranks that fail in the
// same way need not report theirs. If a gang fails as a whole, each rank has a traceback, and all
// ranks of a node have the same one. The zero Twins knows none.
type Twins struct {
	// only is the first failure. People wait for it, so its signature is not computed before there
	// is another one.
	only *report.Failure
	// ended has the end of the first failure with each signature.
	ended map[string]time.Time
}

// Known says that a failure shows no more, by the built-in rules, than an earlier one that is
// known. Otherwise the failure is known from now on.
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

// signed returns the signature together with what the verdict does.
func signed(f report.Failure) string {
	v := Judge(f)
	words := Signature(f) + " " + string(v.Action)
	if v.Victim {
		words += " victim"
	}
	return words
}
