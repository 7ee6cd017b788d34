package rendezvous

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/process/asyncwriter"
	"github.com/golaunch/golaunch/internal/wire/jsonout"
)

// maxJournal bounds the events of a job that are written for people, in bytes.
const maxJournal = 64 << 20

// What the events of a job have beside its own: the first line, and the last.
const (
	eventSubmission = "submission"
	eventResult     = "result"
)

func eventName(ev job.Event) string {
	return strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", ev), "job."))
}

// journal writes the events of the only job for people. After the first error it writes no more: one with holes would mislead.
type journal struct {
	w    io.Writer
	size int
	over bool
	out  *asyncwriter.Speaker
	warn func(error)
}

// newJournal is nil for a writer that is nil.
func newJournal(w io.Writer, warn func(error)) *journal {
	if w == nil {
		return nil
	}
	j := &journal{w: w, warn: warn}
	j.out = asyncwriter.New(func(int) { j.end(errors.New("the disk does not keep up")) })
	return j
}

func (j *journal) add(l jsonout.Event) {
	if j != nil {
		j.out.Say(func() { j.write(l) })
	}
}

func (j *journal) write(l jsonout.Event) {
	if j.over {
		return
	}
	b, err := jsonout.Line(&l)
	if j.size += len(b); err == nil && j.size > maxJournal {
		err = fmt.Errorf("it has reached its limit of %d MiB", maxJournal>>20)
	}
	if err == nil {
		_, err = j.w.Write(b)
	}
	if err != nil {
		j.end(err)
	}
}

func (j *journal) end(err error) {
	if !j.over {
		j.over = true
		j.warn(fmt.Errorf("the journal ends here, the job goes on: %w", err))
	}
}

// finish waits for what is not written yet, but not for a disk that hangs.
func (j *journal) finish() {
	if j != nil && !j.out.Finish(asyncwriter.Patience) {
		j.warn(errors.New("the end of the journal is not written: the disk hangs"))
	}
}
