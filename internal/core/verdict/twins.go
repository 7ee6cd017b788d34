package verdict

import "time"

// Twins knows the failures of a node whose evidence was reported, so that ranks that fail in the
// same way need not report theirs. If a gang fails as a whole, each rank has a traceback, and all
// ranks of a node have the same one. The zero Twins knows none.
type Twins struct {
	// only is the first failure. People wait for it, so its signature is not computed before there
	// is another one.
	only *failed
	// ended has the end of the first failure with each signature.
	ended map[string]time.Time
}

type failed struct {
	Evidence
	at time.Time
}

// Known says that evidence shows no more, by the built-in rules, than an earlier failure that is
// known. Otherwise the failure is known from now on.
func (t *Twins) Known(e Evidence, at time.Time) bool {
	if t.only == nil {
		t.only = &failed{e, at}
		return false
	}
	if t.ended == nil {
		t.ended = map[string]time.Time{signed(t.only.Evidence): t.only.at}
		t.only.Evidence = Evidence{}
	}
	sig := signed(e)
	first, known := t.ended[sig]
	if known && !at.Before(first) {
		return true
	}
	t.ended[sig] = at
	return false
}

// signed returns the signature together with what the verdict does.
func signed(e Evidence) string {
	v := Judge(e)
	words := Signature(e) + " " + string(v.Action)
	if v.Victim {
		words += " victim"
	}
	return words
}
