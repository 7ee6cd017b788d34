package verdict

import "time"

// Twins knows the failures of a node whose evidence was reported, so that it is not for ranks that fail in the same way: of a gang that
// fails as a whole, each rank has a traceback, and all of a node have the same one. The zero Twins knows none.
type Twins struct {
	// only is the first failure, whose signature nobody needs before there is another: it is the one that is waited for.
	only *failed
	// ended has for each signature when the first with it did.
	ended map[string]time.Time
}

type failed struct {
	Evidence
	at time.Time
}

// Known says that evidence shows, by the built-in rules, no more than that of a failure which is known and was not later. Otherwise it is known
// from now on.
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

// signed tells apart what a verdict does, beside the signature.
func signed(e Evidence) string {
	v := Judge(e)
	words := Signature(e) + " " + string(v.Action)
	if v.Victim {
		words += " victim"
	}
	return words
}
