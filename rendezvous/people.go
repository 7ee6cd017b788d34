package rendezvous

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/golaunch/golaunch/internal/job"
)

// speaker calls functions in order, in a goroutine of its own, for an owner who must never wait for a terminal, a pipe or a disk.
type speaker struct {
	mu     sync.Mutex
	queue  []func()
	idle   chan struct{}
	missed int
	// overrun tells how many were not called, because those before took too long.
	overrun func(missed int)
}

// maxSpoken bounds what waits.
const maxSpoken = 4096

func newSpeaker(overrun func(missed int)) *speaker {
	s := &speaker{idle: make(chan struct{}, 1), overrun: overrun}
	return s
}

// say has f called, unless too much waits already. It never waits.
func (s *speaker) say(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) >= maxSpoken {
		s.missed++
		return
	}
	if s.queue == nil {
		s.queue = []func(){}
		go s.run()
	}
	s.queue = append(s.queue, f)
}

// run calls what waits, and ends when nothing does.
func (s *speaker) run() {
	for {
		s.mu.Lock()
		queue, missed := s.queue, s.missed
		if len(queue) == 0 && missed == 0 {
			s.queue = nil
			s.mu.Unlock()
			select {
			case s.idle <- struct{}{}:
			default: // nobody has looked since
			}
			return
		}
		s.queue, s.missed = []func(){}, 0
		s.mu.Unlock()
		for _, f := range queue {
			f()
		}
		if missed > 0 {
			s.overrun(missed)
		}
	}
}

// finish waits until all was called, for as long as the limit, and says whether it was.
func (s *speaker) finish(limit time.Duration) bool {
	late := time.NewTimer(limit)
	defer late.Stop()
	for {
		s.mu.Lock()
		idle := s.queue == nil
		s.mu.Unlock()
		if idle {
			return true
		}
		select {
		case <-s.idle:
		case <-late.C:
			return false
		}
	}
}

// maxJournal bounds the events of a job that are written for people, in bytes.
const maxJournal = 64 << 20

// eventLine is one event of a job, for people.
type eventLine struct {
	Time   time.Time `json:"time"`
	Event  string    `json:"event"`
	Reason string    `json:"reason,omitempty"`
	Detail any       `json:"detail"`
}

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
	out  *speaker
	warn func(error)
}

// newJournal is nil for a writer that is nil.
func newJournal(w io.Writer, warn func(error)) *journal {
	if w == nil {
		return nil
	}
	j := &journal{w: w, warn: warn}
	j.out = newSpeaker(func(int) { j.end(errors.New("the disk does not keep up")) })
	return j
}

func (j *journal) add(l eventLine) {
	if j != nil {
		j.out.say(func() { j.write(l) })
	}
}

func (j *journal) write(l eventLine) {
	if j.over {
		return
	}
	b, err := json.Marshal(l)
	if j.size += len(b) + 1; err == nil && j.size > maxJournal {
		err = fmt.Errorf("it has reached its limit of %d MiB", maxJournal>>20)
	}
	if err == nil {
		_, err = j.w.Write(append(b, '\n'))
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
	if j != nil && !j.out.finish(endLimit) {
		j.warn(errors.New("the end of the journal is not written: the disk hangs"))
	}
}

// endLimit bounds the wait for what is to be read or kept when a coordinator ends.
const endLimit = 2 * time.Second
