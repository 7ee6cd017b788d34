package rendezvous

import (
	"encoding/json"
	"fmt"
	"io"
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
// to the coordinator's goroutine, and can be closed twice.
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

// diskJournal is a journal that the disk writes.
type diskJournal struct {
	disk *disk
	over bool
	// failed hears, once and from any goroutine, why the journal ends before its job.
	failed func(error)
	// sync has the disk keep it over the end of the machine's power, shut and remove end it; out and ended belong, as they do, to the
	// disk's goroutine.
	sync         func() error
	shut, remove func()
	out          writer
	ended        bool
}

func nothing() {}

// people is a journal for people, which no later coordinator needs. It begins with what is past; w may be nil.
func (d *disk) people(w io.Writer, past []byte) journal {
	if w == nil {
		return noJournal{}
	}
	j := &diskJournal{disk: d, sync: func() error { return nil }, shut: nothing, remove: nothing, out: writer{w, len(past)}, failed: func(err error) {
		d.warn(fmt.Errorf("the journal ends here, the job goes on: %w", err))
	}}
	d.write(func() {
		if _, err := w.Write(past); err != nil {
			j.fail(err)
		}
	})
	return j
}

func (j *diskJournal) add(e entry) {
	switch {
	case j.over:
	case j.disk.hangs:
		j.over = true
		j.failed(errSlowDisk)
		j.disk.write(j.discard)
	default:
		j.disk.write(func() { j.put(e) })
	}
}

func (j *diskJournal) close() {
	if !j.over {
		j.over = true
		j.disk.write(j.shut)
	}
}

func (j *diskJournal) put(e entry) {
	if j.ended {
		return
	}
	if err := j.write(e); err != nil {
		j.fail(err)
	}
}

// write keeps the beginning and the end of a job at all costs: without the first it would be forgotten, and without the other run again.
// Of what is between, no rank is left when a machine has lost its power for as long as it takes to start it.
func (j *diskJournal) write(e entry) error {
	err := j.out.write(e)
	if err == nil && (e.Event == eventSubmission || e.Event == eventResult) {
		err = j.sync()
	}
	return err
}

func (j *diskJournal) fail(err error) {
	j.failed(err)
	j.discard()
}

func (j *diskJournal) discard() {
	j.ended = true
	j.shut()
	j.remove()
}

type noJournal struct{}

func (noJournal) add(entry) {}
func (noJournal) close()    {}
