// Package log keeps a coordinator's log: what must outlive the coordinator, in the order in which it happened.
//
// A [Storage] says who keeps it: nobody, for a job that ends with its coordinator; a [File], for a coordinator that is started again;
// or other nodes. Whoever it is, a [Log] has everything that follows from an entry wait until that is kept. It is bounded: now and
// then a snapshot of the state takes the place of all entries before.
package log

import (
	"errors"
	"fmt"
	"time"
)

// Storage keeps the log. Its methods do not wait, and are called one round at a time: not again before done was.
type Storage interface {
	// Keep keeps what the round has, and then calls done, from any goroutine.
	Keep(r Round, done func(error))
	// Confirm calls done when it is certain that nobody else kept the log when it was called.
	Confirm(done func(error))
	// Shared says that somebody else may come to keep the log in the place of this coordinator, which must then not lengthen a lease before
	// it has made sure.
	Shared() bool
}

// Round is what is kept together.
type Round struct {
	// Snapshot, if there is one, takes the place of all that was kept before.
	Snapshot []byte
	// Entries follow it. Durable says that one of them must outlive the end of the machine's power.
	Entries [][]byte
	Durable bool
	// Firm says that what was kept before stands if this cannot be kept: nothing was done that follows from it. Otherwise nothing is left,
	// since it would mislead.
	Firm bool
}

// Config is what a Log must know. All functions but Post are called in the owner's goroutine.
type Config struct {
	// Storage is nil when nobody keeps the log.
	Storage Storage
	// Post has a function run in the owner's goroutine, from any other; it is false when that has ended.
	Post func(func()) bool
	// Snapshot is the whole state, with all entries that were appended.
	Snapshot func() []byte
	// Warn hears what people should know.
	Warn func(error)
	// Lost hears that this coordinator does not keep the log any more, and must do nothing that others see.
	Lost func(error)
}

// Log is the owner's side of it. Its methods are for the owner's goroutine.
type Log struct {
	Config
	next round
	// now is the round that is being kept, if busy.
	now  round
	busy bool
	// number counts the rounds. It tells a round that was given up from the present one.
	number int
	// grown is the size of the entries since the newest snapshot, and last that of the snapshot, in bytes.
	grown, last int
	// broken says that a file does not keep the log at the moment, because of trouble; nothing waits for it then.
	broken  bool
	trouble error
	lost    bool
}

// round collects a Round, and what waits for it.
type round struct {
	Round
	size int
	held []func()
}

func (r *round) empty() bool { return len(r.Entries) == 0 && r.Snapshot == nil && len(r.held) == 0 }

// Limits on a log that is kept: when a snapshot is made, how long a file may take for a round, how much may wait for it in bytes, and how
// long it is until one is tried again that could not be written.
const (
	minGrown = 4 << 20
	maxSize  = 64 << 20
	retry    = 30 * time.Second
)

// MaxWrite is how long what follows from an entry waits for a file. A server of NFS may restart in less. Tests change it.
var MaxWrite = 30 * time.Second

// New returns a log that goes on where the storage's past ends; past is the size of that in bytes.
func New(c Config, past int) *Log { return &Log{Config: c, grown: past} }

// Append adds an entry, which is the log's own from then on.
func (l *Log) Append(entry []byte, durable bool) {
	if l.Storage == nil || l.broken || l.lost {
		return
	}
	l.next.Entries = append(l.next.Entries, entry)
	l.next.Durable = l.next.Durable || durable
	l.next.size += len(entry)
	l.grown += len(entry)
	if l.next.size > maxSize && l.busy && !l.Storage.Shared() {
		l.late(l.number)
	}
}

// Then does something that others can see once all is kept that was appended before.
func (l *Log) Then(f func()) {
	switch {
	case l.lost:
	case l.Storage == nil, l.broken:
		f()
	case l.Storage.Shared(), len(l.next.Entries) > 0, l.next.Snapshot != nil:
		l.next.held = append(l.next.held, f)
	case l.busy:
		l.now.held = append(l.now.held, f)
	default:
		f()
	}
}

// Vouch does what lengthens a lease: it waits only where somebody else may have come to keep the log.
func (l *Log) Vouch(f func()) {
	if l.Storage != nil && l.Storage.Shared() {
		l.Then(f)
	} else if !l.lost {
		f()
	}
}

// Move has another storage keep the log from now on, from a snapshot on.
func (l *Log) Move(s Storage) {
	l.Storage, l.broken = s, false
	l.Compact()
}

// Compact has a snapshot take the place of all that was appended.
func (l *Log) Compact() {
	if l.Storage == nil || l.broken || l.lost {
		return
	}
	s := l.Snapshot()
	l.next.Snapshot, l.next.Entries, l.next.Durable, l.next.size = s, nil, true, len(s)
	l.grown, l.last = 0, len(s)
}

// Flush begins to keep what was appended, unless a round is under way, whose end does so. The owner calls it when it has nothing else to
// do, so that one round is for all that came meanwhile.
func (l *Log) Flush() {
	if l.busy || l.lost || l.next.empty() {
		return
	}
	if l.grown > max(minGrown, 2*l.last) {
		l.Compact()
	}
	l.now, l.next, l.busy = l.next, round{}, true
	l.number++
	number := l.number
	var limit *time.Timer
	done := func(err error) { l.Post(func() { l.kept(number, limit, err) }) }
	if l.Storage.Shared() {
		if len(l.now.Entries) == 0 && l.now.Snapshot == nil {
			l.Storage.Confirm(done)
			return
		}
	} else {
		limit = time.AfterFunc(MaxWrite, func() { l.Post(func() { l.late(number) }) })
	}
	l.Storage.Keep(l.now.Round, done)
}

// kept ends a round.
func (l *Log) kept(number int, limit *time.Timer, err error) {
	if limit != nil {
		limit.Stop()
	}
	if number != l.number || !l.busy { // it was released
		return
	}
	l.busy = false
	held := l.now.held
	l.now = round{}
	switch {
	case err == nil && l.broken: // it was late, and entries are missing: a snapshot has them
		l.mend()
	case err == nil:
	case l.Storage.Shared():
		l.lost, l.next = true, round{}
		l.Lost(err)
		return
	default:
		held = append(held, l.fail(err)...)
		time.AfterFunc(retry, func() { l.Post(l.mend) })
	}
	l.Flush() // before anything else, which must not overtake what is to be kept
	run(held)
}

func run(held []func()) {
	for _, f := range held {
		f()
	}
}

// errSlow is why a file is not waited for.
var errSlow = errors.New("the disk does not keep up")

// late gives up waiting for a file. What it is writing may still come to be there.
func (l *Log) late(number int) {
	if !l.busy || number != l.number || l.broken {
		return
	}
	held := append(l.now.held, l.fail(errSlow)...)
	l.now.held = nil
	run(held)
}

// fail goes on without a log: what is done must not wait for a disk for ever. It returns what waited.
func (l *Log) fail(err error) []func() {
	if !l.broken {
		l.broken, l.trouble = true, err
		l.Warn(fmt.Errorf("the coordinator's log is not kept at the moment: %w; jobs go on, but end with this coordinator until it is again", err))
	}
	held := l.next.held
	l.next = round{}
	return held
}

// mend begins the log anew with a snapshot, after it was broken.
func (l *Log) mend() {
	if !l.broken || l.busy || l.lost {
		return
	}
	l.broken = false
	l.Compact()
	l.Then(func() {
		if !l.broken {
			l.Warn(errors.New("the coordinator's log is kept again"))
		}
	})
	l.Flush()
}

// Trouble is why the log is not kept at the moment; nil when it is.
func (l *Log) Trouble() error {
	if l.broken {
		return l.trouble
	}
	return nil
}

// Release keeps nothing from now on. What waits is done at once, or never where somebody else may keep the log by now.
func (l *Log) Release(do bool) {
	held := append(l.now.held, l.next.held...)
	l.now, l.next, l.Storage, l.busy = round{}, round{}, nil, false
	if l.lost = l.lost || !do; do {
		run(held)
	}
}

// Busy says that something is not kept yet.
func (l *Log) Busy() bool { return !l.lost && (l.busy || !l.next.empty()) }
