// Package log keeps a coordinator's log: what must outlive the coordinator, in the order in which
// it happened.
//
// A [Storage] keeps the entries. It is a [File] if the coordinator may be started again, or a group
// of voters on several nodes. A job that ends with its coordinator needs no storage. A [Log] delays
// the consequences of an entry until the entry is kept. The log is bounded: now and then a snapshot
// of the state replaces all earlier entries.
package log

import (
	"errors"
	"fmt"
	"time"
)

// Storage keeps the log. Its methods do not block. Each call is for one round, and the next call
// follows only after done was called.
type Storage interface {
	// Keep keeps a round and then calls done, from any goroutine.
	Keep(r Round, done func(error))
	// Confirm calls done once it is certain that no other process had taken over the log when
	// Confirm was called.
	Confirm(done func(error))
	// Shared says that another process may take over the log from this coordinator. This
	// coordinator must then make sure that it still keeps the log before it lengthens a lease.
	Shared() bool
}

// Round is a batch of changes that are kept together.
type Round struct {
	// Snapshot, if not nil, replaces everything that was kept before.
	Snapshot []byte
	// Entries follow the snapshot. Durable says that one of them must survive a power failure.
	Entries [][]byte
	Durable bool
	// Firm says that the log before this round stays valid if the round cannot be kept, because no
	// consequence of the round has happened. Without Firm, the storage removes the log after a
	// failure, because an incomplete log would mislead a later coordinator.
	Firm bool
}

// Config is what a Log needs. All functions but Post are called in the owner's goroutine.
type Config struct {
	// Storage is nil if the log is not kept.
	Storage Storage
	// Post makes the owner's goroutine run a function. Other goroutines may call it. It returns
	// false if the owner's goroutine has ended.
	Post func(func()) bool
	// Snapshot returns the whole state after all appended entries.
	Snapshot func() []byte
	// Warn gets what users should know.
	Warn func(error)
	// Lost is called when this coordinator does not keep the log any more. The coordinator must
	// then do nothing that others can see.
	Lost func(error)
}

// Log is the owner's side of the log. Its methods may be called in the owner's goroutine only.
type Log struct {
	Config
	next round
	// now is the round that is being kept. It is valid while busy is set.
	now  round
	busy bool
	// number counts the rounds. It distinguishes the present round from one that was given up.
	number int
	// grown is the size of the entries since the newest snapshot, and last the size of that
	// snapshot, in bytes.
	grown, last int
	// broken says that the file cannot keep the log at the moment, and trouble says why. Nothing
	// waits for the file then.
	broken  bool
	trouble error
	lost    bool
}

// round is a Round under construction, with the calls that wait for it.
type round struct {
	Round
	size int
	held []func()
}

func (r *round) empty() bool { return len(r.Entries) == 0 && r.Snapshot == nil && len(r.held) == 0 }

// These are limits of a log. A snapshot is made after minGrown bytes at the earliest. At most
// maxSize bytes wait for a slow file. After a failed write, the next try follows after retry.
const (
	minGrown = 4 << 20
	maxSize  = 64 << 20
	retry    = 30 * time.Second
)

// MaxWrite bounds how long the consequences of an entry wait for a file. It is longer than a
// restart of an NFS server takes. Tests change MaxWrite.
var MaxWrite = 30 * time.Second

// New returns a log that continues after the storage's past. past is the size of that past in
// bytes.
func New(c Config, past int) *Log { return &Log{Config: c, grown: past} }

// Append adds an entry. The log owns the entry from then on.
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

// Then calls f once everything appended before the call is kept. It is for functions whose effects
// others can see.
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

// Vouch calls f, which lengthens a lease. If another process may have taken over the log, Vouch
// waits until that is ruled out.
func (l *Log) Vouch(f func()) {
	if l.Storage != nil && l.Storage.Shared() {
		l.Then(f)
	} else if !l.lost {
		f()
	}
}

// Move makes another storage keep the log from now on, beginning with a snapshot.
func (l *Log) Move(s Storage) {
	l.Storage, l.broken = s, false
	l.Compact()
}

// Compact replaces everything that was appended with a snapshot.
func (l *Log) Compact() {
	if l.Storage == nil || l.broken || l.lost {
		return
	}
	s := l.Snapshot()
	l.next.Snapshot, l.next.Entries, l.next.Durable, l.next.size = s, nil, true, len(s)
	l.grown, l.last = 0, len(s)
}

// Flush begins to keep what was appended. If a round is under way, this happens at the end of that
// round. The owner calls Flush when it has nothing else to do, so that one round contains all
// entries since the previous round.
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
	if number != l.number || !l.busy { // the round was released
		return
	}
	l.busy = false
	held := l.now.held
	l.now = round{}
	switch {
	case err == nil && l.broken:
		// The write was late, and the file lacks later entries. A snapshot contains them.
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
	l.Flush() // first, so that the held functions do not delay the next round
	run(held)
}

func run(held []func()) {
	for _, f := range held {
		f()
	}
}

// errSlow says why the log no longer waits for a file.
var errSlow = errors.New("the disk does not keep up")

// late gives up waiting for a file, which may still finish its write.
func (l *Log) late(number int) {
	if !l.busy || number != l.number || l.broken {
		return
	}
	held := append(l.now.held, l.fail(errSlow)...)
	l.now.held = nil
	run(held)
}

// fail continues without a log, because a coordinator must not wait forever for a disk. It returns
// the calls that waited.
func (l *Log) fail(err error) []func() {
	if !l.broken {
		l.broken, l.trouble = true, err
		l.Warn(fmt.Errorf("the coordinator's log cannot be written at the moment: %w; jobs go on, but until it can, they end with this coordinator", err))
	}
	held := l.next.held
	l.next = round{}
	return held
}

// mend starts the log again, with a snapshot, after the log was broken.
func (l *Log) mend() {
	if !l.broken || l.busy || l.lost {
		return
	}
	l.broken = false
	l.Compact()
	l.Then(func() {
		if !l.broken {
			l.Warn(errors.New("the coordinator's log can be written again"))
		}
	})
	l.Flush()
}

// Trouble says why the log is not kept at the moment. It is nil if the log is kept.
func (l *Log) Trouble() error {
	if l.broken {
		return l.trouble
	}
	return nil
}

// Release stops keeping the log. If do is set, it runs the waiting functions at once. Otherwise
// they never run, because another process may have taken over the log.
func (l *Log) Release(do bool) {
	held := append(l.now.held, l.next.held...)
	l.now, l.next, l.Storage, l.busy = round{}, round{}, nil, false
	if l.lost = l.lost || !do; do {
		run(held)
	}
}

// Busy says that something is not kept yet.
func (l *Log) Busy() bool { return !l.lost && (l.busy || !l.next.empty()) }
