package launcher

import (
	"sync"
	"time"

	"github.com/golaunch/golaunch/internal/job"
)

// passing is how long a state must last to be worth a line: a launch of milliseconds says nothing on its way.
const passing = 200 * time.Millisecond

// narrator tells decisions to people: a failure, a loss and a stop at once; anything else once it has lasted.
type narrator struct {
	say func(format string, args ...any)

	mu sync.Mutex
	// waiting is the timer of the state that has not lasted yet.
	waiting *time.Timer
}

func (n *narrator) tell(d Decision) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.forget()
	if news(d.Event) {
		n.say("%s", d.Reason)
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(passing, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.waiting == timer {
			n.say("%s", d.Reason)
		}
	})
	n.waiting = timer
}

func (n *narrator) forget() {
	if n.waiting != nil {
		n.waiting.Stop()
		n.waiting = nil
	}
}

func news(ev job.Event) bool {
	switch ev := ev.(type) {
	case job.Exited:
		return !ev.Exit.OK()
	case job.Lost, job.Cancel:
		return true
	default:
		return false
	}
}

// end silences what has not lasted yet: the report follows.
func (n *narrator) end() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.forget()
}
