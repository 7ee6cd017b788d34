// Package notice tells ranks that they will be stopped.
package notice

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/agent/internal/ranks"
)

// ReadySuffix follows the name of a rank's notice file. By creating the file with this name, the
// rank says that it is ready.
const ReadySuffix = ".ready"

// Notice is what a rank finds in GOLAUNCH_NOTICE_FILE, as docs/failures.md describes.
type Notice struct {
	// Deadline is when the rank is stopped at the latest.
	Deadline time.Time `json:"deadline"`
	Why      string    `json:"why"`
}

// margin is how much earlier a deadline must be to count as a new one. If the same end is announced
// twice, the deadlines differ by the time that messages take.
const margin = time.Second

func (n Notice) sooner(than Notice) bool { return n.Deadline.Add(margin).Before(than.Deadline) }

// Notices announces the end of an attempt to its ranks. The earliest deadline counts.
type Notices struct {
	mu     sync.Mutex
	newest Notice
	// changed has a value while the newest notice is undelivered.
	changed chan struct{}
}

// New returns Notices without an announcement.
func New() *Notices { return &Notices{changed: make(chan struct{}, 1)} }

// Add announces an end to the ranks, unless an earlier end was announced.
func (ns *Notices) Add(within time.Duration, why string) {
	n := Notice{Deadline: time.Now().Add(within).UTC(), Why: why}
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if !ns.newest.Deadline.IsZero() && !n.sooner(ns.newest) {
		return
	}
	ns.newest = n
	select {
	case ns.changed <- struct{}{}:
	default: // n replaces an undelivered notice
	}
}

// Receiver says how the ranks of an attempt are notified.
type Receiver struct {
	Ranks []ranks.Rank
	// Signal tells the ranks to read their notice.
	Signal func()
	// Told is called after each notice. It must not wait.
	Told func(deadline time.Time)
	// Ready is called when all ranks are ready or have ended.
	Ready func()
	Warn  func(error)
}

// Deliver gives each notice to the ranks, until over is closed.
func (ns *Notices) Deliver(to Receiver, over <-chan struct{}) {
	for watched := false; ; {
		select {
		case <-ns.changed:
		case <-over:
			return
		}
		ns.mu.Lock()
		n := ns.newest
		ns.mu.Unlock()
		var err error
		if !watched {
			err = to.awaitReady(over)
			watched = err == nil
		}
		if err == nil {
			err = to.write(n)
		}
		if err != nil {
			to.Warn(fmt.Errorf("cannot tell the ranks that they must be ready by %v (%s): %w", n.Deadline, n.Why, err))
		}
		to.Told(n.Deadline)
	}
}

// awaitReady calls Ready when all ranks are ready. It returns once the watch has begun, before
// Ready is called.
func (to Receiver) awaitReady(over <-chan struct{}) error {
	at := to.Ranks[0].Output.NoticeFile()
	if at == "" {
		return errors.New("the job has no files")
	}
	watch, err := watchDir(filepath.Dir(at))
	if err != nil {
		return err
	}
	go func() {
		defer watch.file.Close()
		for _, r := range to.Ranks {
			if !watch.ready(r, over) {
				return
			}
		}
		to.Ready()
	}()
	return nil
}

// write replaces each rank's notice file, and then signals the ranks. It does not replace a notice
// with an earlier deadline, perhaps from an earlier agent. If all ranks have such a notice, they
// were already signalled.
func (to Receiver) write(n Notice) error {
	text, err := json.Marshal(n)
	if err != nil {
		return err
	}
	known := true
	for _, r := range to.Ranks {
		if old, err := Read(r.Output.NoticeFile()); err == nil && !n.sooner(old) {
			continue
		}
		known = false
		if err := r.Output.Notify(append(text, '\n')); err != nil {
			return err
		}
	}
	if !known {
		to.Signal()
	}
	return nil
}

// maxNotice bounds what is read of a notice file, in bytes: a rank may have overwritten it.
const maxNotice = 64 << 10

// Read reads a notice file. The rank may have put any kind of file in its place.
func Read(path string) (n Notice, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return n, err
	}
	defer f.Close()
	err = json.NewDecoder(io.LimitReader(f, maxNotice)).Decode(&n)
	return n, err
}
