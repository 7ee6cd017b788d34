package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/job"
)

// readySuffix is what a rank adds to the name of its notice for the file by which it says that it is ready.
const readySuffix = ".ready"

// notice is what a rank finds in GOLAUNCH_NOTICE_FILE; docs/failures.md is its contract.
type notice struct {
	// Deadline is when the rank is stopped at the latest.
	Deadline time.Time `json:"deadline"`
	Why      string    `json:"why"`
}

// heed gives a notice to the ranks of a unit when it comes, and reports when all are ready or have ended; none comes after over.
func (u *unit) heed(ranks []rank, over <-chan struct{}) {
	var n job.Notice
	select {
	case n = <-u.notices:
	case <-over:
		return
	}
	watch, err := watchDir(filepath.Dir(ranks[0].output.NoticeFile()))
	if err != nil {
		u.agent.Warn(fmt.Errorf("the ranks cannot be told that they have %v to get ready (%s): %w", n.Within, n.Why, err))
		return
	}
	defer watch.close()
	if err := u.notify(ranks, n); err != nil {
		u.agent.Warn(fmt.Errorf("the ranks cannot be told that they have %v to get ready (%s): %w", n.Within, n.Why, err))
		return
	}
	for _, r := range ranks {
		if !watch.ready(r, over) {
			return
		}
	}
	u.report(job.Ready{Node: n.Node, Unit: n.Unit, Attempt: n.Attempt})
}

// notify writes the notice where each rank looks for it, whole or not at all, and then sends the signal that the task names. A rank that
// has one from an agent before this one keeps that: its time runs. If all have, they had the signal too.
func (u *unit) notify(ranks []rank, n job.Notice) error {
	text, err := json.Marshal(notice{Deadline: time.Now().Add(n.Within).UTC(), Why: n.Why})
	if err != nil {
		return err
	}
	told := true
	for _, r := range ranks {
		path := r.output.NoticeFile()
		if _, err := os.Lstat(path); err == nil {
			continue
		}
		told = false
		if err := os.WriteFile(path+".new", append(text, '\n'), 0o600); err != nil {
			return err
		}
		if err := os.Rename(path+".new", path); err != nil {
			return errors.Join(err, os.Remove(path+".new"))
		}
	}
	if sig := u.share.work.Task.NoticeSignal; sig != 0 && !told {
		u.signal(sig)
	}
	return nil
}

// dirWatch tells of files that come into a directory (inotify(7)).
type dirWatch struct {
	file *os.File
	// came is sent to after each change, and closed when nothing more is heard.
	came chan struct{}
}

func watchDir(dir string) (*dirWatch, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("inotify: %w", err)
	}
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_CREATE|unix.IN_MOVED_TO); err != nil {
		return nil, errors.Join(fmt.Errorf("watch %s: %w", dir, err), unix.Close(fd))
	}
	w := &dirWatch{file: os.NewFile(uintptr(fd), "inotify"), came: make(chan struct{}, 1)}
	go func() {
		defer close(w.came)
		for buf := make([]byte, 4<<10); ; {
			if _, err := w.file.Read(buf); err != nil {
				return // it was closed
			}
			select {
			case w.came <- struct{}{}:
			default: // what came before has not been looked at yet
			}
		}
	}()
	return w, nil
}

func (w *dirWatch) close() { w.file.Close() }

// ready waits until a rank has said that it is ready, or has ended. It is false when the unit has ended.
func (w *dirWatch) ready(r rank, over <-chan struct{}) bool {
	for {
		if _, err := os.Lstat(r.output.NoticeFile() + readySuffix); err == nil {
			return true
		}
		select {
		case <-w.came:
		case <-r.told: // not before it is known how it ended: one that was done is none that is stopped
			return true
		case <-over:
			return false
		}
	}
}
