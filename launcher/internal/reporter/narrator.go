package reporter

import (
	"strings"
	"sync"
	"time"
)

// passing is how long a state must last before the narrator prints it. So a launch that takes
// milliseconds prints nothing.
const passing = 200 * time.Millisecond

// narrator prints decisions for people: failures, losses and stops at once, and other states after
// they have lasted for the time passing.
type narrator struct {
	say func(format string, args ...any)

	mu sync.Mutex
	// waiting is the timer of a state that has not lasted long enough yet.
	waiting *time.Timer
	// last is the text that was printed last.
	last string
}

func (n *narrator) tell(reason string, news bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.forget()
	if news {
		n.tellNow(reason)
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(passing, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.waiting == timer {
			n.tellNow(reason)
		}
	})
	n.waiting = timer
}

func (n *narrator) tellNow(reason string) {
	n.last = reason
	n.say("%s", reason)
}

// told reports whether the last printed text begins with what.
func (n *narrator) told(what string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.HasPrefix(n.last, what)
}

func (n *narrator) forget() {
	if n.waiting != nil {
		n.waiting.Stop()
		n.waiting = nil
	}
}

// end drops a state that has not lasted long enough yet, since the report of the job's end follows.
func (n *narrator) end() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.forget()
}
