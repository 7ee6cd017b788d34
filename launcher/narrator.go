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

	mu      sync.Mutex
	waiting *time.Timer
	ended   bool
}

func (n *narrator) tell(d Decision) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.waiting != nil {
		n.waiting.Stop()
	}
	if news(d.Event) {
		n.say("%s", d.Reason)
		return
	}
	n.waiting = time.AfterFunc(passing, func() { n.tellLate(d.Reason) })
}

func news(ev job.Event) bool {
	switch ev := ev.(type) {
	case job.Exited:
		return !ev.Exit.OK()
	case job.Lost, job.Cancel, job.TimedOut:
		return true
	}
	return false
}

func (n *narrator) tellLate(reason string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.ended {
		n.say("%s", reason)
	}
}

// end silences what has not lasted yet: the report follows.
func (n *narrator) end() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ended = true
}
