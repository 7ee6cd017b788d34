package saves

import "time"

// hurry says that the ranks will be stopped, and by when.
type hurry struct {
	until time.Time
	// seen is called once the checkpoints in flight are reported, or at the time of limit. looked
	// says that the processes were looked at since the hurry began.
	seen   func()
	limit  time.Time
	looked bool
}

// seenLimit bounds the wait for the first look at the processes, and for a file server that must
// say whether all nodes share it.
const seenLimit = 3 * time.Second

// Hurry announces that the ranks will be stopped at a deadline at the latest. From then on the
// watch looks every second, and a checkpoint counts as complete only once it is written to disk.
// Hurry calls seen once the checkpoints in flight are reported. It does not wait.
func (w *Watch) Hurry(until time.Time, seen func()) {
	h := hurry{until: until, seen: seen, limit: time.Now().Add(seenLimit)}
	select {
	case w.hurry <- h:
	default: // the watch has not received the previous announcement yet, which suffices
	}
}

func (w *Watch) hasten(h hurry) {
	if w.hurried.seen != nil { // the previous call is not answered yet, and gets the same answer
		w.hurried.seen()
	}
	w.hurried = h
}

// answer calls seen once the checkpoints in flight are reported.
func (w *Watch) answer(now time.Time) {
	h := &w.hurried
	if h.seen == nil || now.Before(h.limit) && (!h.looked || w.untold()) {
		return
	}
	h.seen()
	h.seen = nil
}

// untold reports whether a checkpoint in flight is not reported.
func (w *Watch) untold() bool {
	for _, f := range w.flights {
		if !f.told && !f.missed {
			return true
		}
	}
	return false
}
