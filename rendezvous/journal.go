package rendezvous

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/golaunch/golaunch/internal/job"
)

// maxJournal bounds a journal in bytes.
const maxJournal = 64 << 20

// entry is one line of a journal: an event of a job, or one of the two below.
type entry struct {
	Time   time.Time `json:"time"`
	Event  string    `json:"event"`
	Reason string    `json:"reason,omitempty"`
	Detail any       `json:"detail"`
}

// What a journal has beside the events: its first line in a store, and its last.
const (
	eventSubmission = "submission"
	eventResult     = "result"
)

func eventName(ev job.Event) string {
	return strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", ev), "job."))
}

// journal records what happens to a job. After the first error it records no more: a journal with holes would mislead. It belongs
// to one goroutine, and can be closed twice.
type journal interface {
	add(entry)
	close()
}

// writer writes entries within the bound of a journal.
type writer struct {
	w    io.Writer
	size int
}

func (j *writer) write(e entry) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if j.size += len(b) + 1; j.size > maxJournal {
		return fmt.Errorf("it has reached its limit of %d MiB", maxJournal>>20)
	}
	_, err = j.w.Write(append(b, '\n'))
	return err
}

// backgroundJournal writes from a goroutine of its own, so that a slow disk holds up nobody for long.
type backgroundJournal struct {
	entries chan entry
	done    chan struct{}
	warn    func(error)
	full    bool
}

// background is a journal for people, which no later coordinator needs. It begins with what is past; w may be nil.
func background(w io.Writer, past []byte, warn func(error)) journal {
	if w == nil {
		return noJournal{}
	}
	entries := make(chan entry, 1024)
	j := &backgroundJournal{entries: entries, done: make(chan struct{}), warn: warn}
	go func() {
		defer close(j.done)
		out := writer{w: w, size: len(past)}
		_, err := w.Write(past)
		for e := range entries {
			if err == nil {
				err = out.write(e)
			}
			if err != nil {
				warn(fmt.Errorf("the journal ends here, the job goes on: %w", err))
				break
			}
		}
		for range entries {
		}
	}()
	return j
}

// add waits for a second at most, and only once.
func (j *backgroundJournal) add(e entry) {
	if j.full {
		return
	}
	select {
	case j.entries <- e:
		return
	default:
	}
	limit := time.NewTimer(time.Second)
	defer limit.Stop()
	select {
	case j.entries <- e:
	case <-limit.C:
		j.full = true
		j.warn(errors.New("the journal ends here, the job goes on: the disk does not keep up"))
	}
}

// close waits for what is still to be written, but not for a disk that hangs.
func (j *backgroundJournal) close() {
	if j.entries == nil {
		return
	}
	close(j.entries)
	j.entries, j.full = nil, true
	limit := time.NewTimer(2 * time.Second)
	defer limit.Stop()
	select {
	case <-j.done:
	case <-limit.C:
		j.warn(errors.New("the end of the journal is not written: the disk hangs"))
	}
}

// fileJournal writes each entry before add returns.
type fileJournal struct {
	writer
	file *os.File
	// failed is called, once, when the journal ends before its job.
	failed func(error)
}

func newFileJournal(f *os.File, size int, failed func(error)) *fileJournal {
	return &fileJournal{writer{f, size}, f, failed}
}

func (j *fileJournal) add(e entry) {
	if j.file == nil {
		return
	}
	if err := j.write(e); err != nil {
		j.close()
		j.failed(err)
	}
}

func (j *fileJournal) close() {
	if j.file != nil {
		_ = j.file.Close() // every write was checked
		j.file = nil
	}
}

type noJournal struct{}

func (noJournal) add(entry) {}
func (noJournal) close()    {}
