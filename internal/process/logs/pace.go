package logs

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/process/console"
)

const (
	// readBarEvery is how often a progress bar is read. People cannot see more updates.
	readBarEvery = 100 * time.Millisecond
	// checksPerRead is how often, between two reads, the pump checks whether the pipe fills up: a
	// full pipe would delay the rank.
	checksPerRead = 4
	// busyWithin is how soon after the last read a spliced stream must have more output for pacing
	// to begin.
	busyWithin = 10 * time.Millisecond
)

// pacing is what a pump knows about the speed of its stream.
type pacing struct {
	size int // the size of the pipe
	// overwrites says that the output of the last read ends in a line that overwrites itself, and
	// that this read emptied the pipe.
	overwrites bool
	// moved is when an exact pump last read or waited. filled is when the pump last found the pipe
	// full.
	moved, filled time.Time
}

// pace leaves the updates of a progress bar in the pipe for a while. Reading one update costs the
// pump, the file and all followers as much as reading a hundred. Waking the pump ends the pause.
func (p *pump) pace() {
	if !p.pacing.overwrites || time.Since(p.pacing.filled) < readBarEvery {
		return
	}
	p.pacing.overwrites = false
	defer func() { p.pacing.moved = time.Now() }()
	step := readBarEvery / checksPerRead
	if p.pacing.size < pipeSize {
		step = max(step*time.Duration(p.pacing.size)/pipeSize, time.Millisecond)
	}
	for end := time.Now().Add(readBarEvery); time.Now().Before(end); {
		select {
		case <-p.woken:
			return
		case <-time.After(step):
		}
		if held, err := unix.IoctlGetInt(p.fd, unix.TIOCINQ); err != nil || held > p.pacing.size/2 {
			p.pacing.filled = time.Now()
			return
		}
	}
}

// noteBusy begins the pacing of a spliced stream that had more output soon after the last read.
func (p *pump) noteBusy(n int) {
	p.pacing.overwrites = n < console.MaxRead && time.Since(p.pacing.moved) < busyWithin
	p.pacing.moved = time.Now()
}
