package logs

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/process/console"
)

const (
	// barEvery is how often a line is read that overwrites itself, as a progress bar does: who looks at it sees no more.
	barEvery = 100 * time.Millisecond
	// barSteps is how often the pump looks meanwhile whether the pipe fills up, which would hold up the rank.
	barSteps = 4
	// busyWithin is how soon after a read the next one comes of a stream whose text is not looked at, before that is paced.
	busyWithin = 10 * time.Millisecond
)

// pace leaves in the pipe, for a while, what a bar writes: each update that is read alone costs the pump, the file, and all who follow it as
// much as a hundred do. Whoever wakes the pump ends that.
func (p *pump) pace() {
	if !p.overwrites || time.Since(p.filled) < barEvery {
		return
	}
	p.overwrites = false
	defer func() { p.moved = time.Now() }()
	step := barEvery / barSteps
	if p.size < pipeSize {
		step = max(step*time.Duration(p.size)/pipeSize, time.Millisecond)
	}
	for end := time.Now().Add(barEvery); time.Now().Before(end); {
		select {
		case <-p.woken:
			return
		case <-time.After(step):
		}
		if held, err := unix.IoctlGetInt(p.fd, unix.TIOCINQ); err != nil || held > p.size/2 {
			p.filled = time.Now()
			return
		}
	}
}

// busy has a stream paced that goes into its file unseen, when there was more to read at once.
func (p *pump) busy(n int) {
	p.overwrites = n < console.MaxRead && time.Since(p.moved) < busyWithin
	p.moved = time.Now()
}
