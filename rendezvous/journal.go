package rendezvous

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/golaunch/golaunch/internal/job"
)

// maxJournal bounds a journal in bytes.
const maxJournal = 64 << 20

// journal writes decisions from a goroutine of its own, so that a slow disk holds up nobody for long. After the first error it
// writes no more: a journal with holes would mislead.
type journal struct {
	lines chan Decision
	done  chan struct{}
	warn  func(error)
	full  bool
}

// line is one line of the journal.
type line struct {
	Time   time.Time `json:"time"`
	Event  string    `json:"event"`
	Reason string    `json:"reason,omitempty"`
	Detail job.Event `json:"detail"`
}

func newJournal(w io.Writer, warn func(error)) *journal {
	if w == nil {
		return nil
	}
	j := &journal{lines: make(chan Decision, 1024), done: make(chan struct{}), warn: warn}
	go func() {
		defer close(j.done)
		if err := j.write(w); err != nil {
			warn(fmt.Errorf("the journal ends here, the job goes on: %w", err))
			for range j.lines {
			}
		}
	}()
	return j
}

func (j *journal) write(w io.Writer) error {
	size := 0
	for d := range j.lines {
		name := strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", d.Event), "job."))
		b, err := json.Marshal(line{d.At, name, d.Reason, d.Event})
		if err != nil {
			return err
		}
		if size += len(b) + 1; size > maxJournal {
			return fmt.Errorf("it has reached its limit of %d MiB", maxJournal>>20)
		}
		if _, err := w.Write(append(b, '\n')); err != nil {
			return err
		}
	}
	return nil
}

// add waits for a second at most, and only once. It is called by one goroutine.
func (j *journal) add(d Decision) {
	if j == nil || j.full {
		return
	}
	select {
	case j.lines <- d:
		return
	default:
	}
	limit := time.NewTimer(time.Second)
	defer limit.Stop()
	select {
	case j.lines <- d:
	case <-limit.C:
		j.full = true
		j.warn(errors.New("the journal ends here, the job goes on: the disk does not keep up"))
	}
}

// close waits for what is still to be written, but not for a disk that hangs.
func (j *journal) close() {
	if j == nil {
		return
	}
	close(j.lines)
	limit := time.NewTimer(2 * time.Second)
	defer limit.Stop()
	select {
	case <-j.done:
	case <-limit.C:
		j.warn(errors.New("the end of the journal is not written: the disk hangs"))
	}
}
