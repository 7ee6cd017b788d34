package audience

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/replica"
	"github.com/golaunch/golaunch/internal/process/asyncwriter"
	"github.com/golaunch/golaunch/internal/wire/jsonout"
)

// maxSize bounds a journal, in bytes.
const maxSize = 64 << 20

// These are the names of lines that are not events of the job itself. eventSubmission is the first
// line of a journal, and eventResult is the last line.
const (
	eventSubmission = "submission"
	eventResult     = "result"
	// eventStart has what is known about the newest start. The journal has another such line when
	// more is known.
	eventStart = "start"
)

// eventName returns the name of an event in the journal. A renamed type keeps its name there.
func eventName(ev job.Event) string {
	switch ev.(type) {
	case job.Submitted:
		return "submitted"
	case job.Joined:
		return "joined"
	case job.Lost:
		return "lost"
	case job.Freed:
		return "freed"
	case job.Rejoined:
		return "rejoined"
	case job.Draining:
		return "draining"
	case job.Ready:
		return "ready"
	case job.Catching:
		return "catching"
	case job.Prepared:
		return "prepared"
	case job.Reached:
		return "reached"
	case job.Started:
		return "started"
	case job.Met:
		return "met"
	case job.Stalled:
		return "stalled"
	case job.Stepped:
		return "stepped"
	case job.Saved:
		return "saved"
	case job.Exited:
		return "exited"
	case job.Stopped:
		return "stopped"
	case job.Elapsed:
		return "elapsed"
	case job.TimedOut:
		return "timedout"
	case job.Queued:
		return "queued"
	case job.Cancel:
		return "cancel"
	default:
		return ""
	}
}

// journal writes in a goroutine of its own. It ends with the first error, because a journal with
// holes would mislead. A nil journal writes nothing.
type journal struct {
	w     io.Writer
	size  int
	ended bool
	out   *asyncwriter.Writer
	warn  func(error)
}

// newJournal returns nil if w is nil.
func newJournal(w io.Writer, warn func(error)) *journal {
	if w == nil {
		return nil
	}
	j := &journal{w: w, warn: warn}
	j.out = asyncwriter.New(func(int) { j.end(errors.New("the disk does not keep up")) })
	return j
}

// Submitted begins the journal.
func (a *Audience) Submitted(at time.Time, s replica.Submission) {
	a.journal.add(jsonout.Event{Time: at, Event: eventSubmission, Detail: s})
}

// Stepped writes a step of a job into the journal, and the result if the job ends.
func (a *Audience) Stepped(at time.Time, s replica.Step) {
	j := a.journal
	if j == nil || s.Event == nil {
		return
	}
	j.add(jsonout.Event{Time: at, Event: eventName(s.Event), Reason: s.Reason, Detail: s.Event})
	if s.Start != nil {
		j.add(jsonout.Event{Time: at, Event: eventStart, Detail: s.Start})
	}
	if s.Ends {
		for _, a := range s.Actions {
			if end, ok := a.(job.Finish); ok {
				j.add(jsonout.Event{Time: at, Event: eventResult, Detail: end.Result})
			}
		}
	}
}

func (j *journal) add(e jsonout.Event) {
	if j != nil {
		j.out.Say(func() { j.write(e) })
	}
}

func (j *journal) write(e jsonout.Event) {
	if j.ended {
		return
	}
	b, err := jsonout.Line(&e)
	if j.size += len(b); err == nil && j.size > maxSize {
		err = fmt.Errorf("it has reached its limit of %d MiB", maxSize>>20)
	}
	if err == nil {
		_, err = j.w.Write(b)
	}
	if err != nil {
		j.end(err)
	}
}

func (j *journal) end(err error) {
	if !j.ended {
		j.ended = true
		j.warn(fmt.Errorf("the journal ends here, the job goes on: %w", err))
	}
}

// close waits until all events are written, but does not wait for a disk that hangs.
func (j *journal) close() {
	if j != nil && !j.out.Finish(asyncwriter.Patience) {
		j.warn(errors.New("the end of the journal is not written: the disk hangs"))
	}
}
