package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/core/job"
)

// readySuffix is what a rank adds to the name of its notice for the file by which it says that it is ready.
const readySuffix = ".ready"

// notice is what a rank finds in GOLAUNCH_NOTICE_FILE; docs/failures.md is its contract.
type notice struct {
	// Deadline is when the rank is stopped at the latest.
	Deadline time.Time `json:"deadline"`
	Why      string    `json:"why"`
}

// noticeMargin is how much sooner an end must be to be news: the same end, told twice, differs by what the messages took.
const noticeMargin = time.Second

func (n notice) sooner(than notice) bool { return n.Deadline.Add(noticeMargin).Before(than.Deadline) }

// forewarn takes a notice for the ranks, which hear of the earliest end.
func (u *unit) forewarn(o job.Notice) {
	n := notice{Deadline: time.Now().Add(o.Within).UTC(), Why: o.Why}
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.notice.Deadline.IsZero() && !n.sooner(u.notice) {
		return
	}
	u.notice = n
	select {
	case u.noticed <- struct{}{}:
	default: // what came before has not been told yet, and will not be
	}
}

// giveNotice gives each notice to the ranks of a unit, and reports when all are ready or have ended; none comes after over.
func (u *unit) giveNotice(ranks []rank, over <-chan struct{}) {
	for watched := false; ; {
		select {
		case <-u.noticed:
		case <-over:
			return
		}
		u.mu.Lock()
		n := u.notice
		u.mu.Unlock()
		var err error
		if !watched {
			err = u.awaitReady(ranks, over)
			watched = err == nil
		}
		if err == nil {
			err = u.notify(ranks, n)
		}
		if err != nil {
			u.agent.Warn(fmt.Errorf("the ranks cannot be told that they must be ready by %v (%s): %w", n.Deadline, n.Why, err))
		}
	}
}

// awaitReady reports when all ranks are ready; it returns as soon as it would see that.
func (u *unit) awaitReady(ranks []rank, over <-chan struct{}) error {
	at := ranks[0].output.NoticeFile()
	if at == "" {
		return errors.New("the job has no files")
	}
	watch, err := watchDir(filepath.Dir(at))
	if err != nil {
		return err
	}
	go func() {
		defer watch.close()
		for _, r := range ranks {
			if !watch.ready(r, over) {
				return
			}
		}
		u.report(job.Ready{Node: u.agent.session.Node.Name, Unit: u.order.Unit, Attempt: u.order.Attempt})
	}()
	return nil
}

// notify writes the notice where each rank looks for it, whole or not at all, and then sends the signal that the task names. A rank that
// has one of an end that is no later, perhaps from an agent before this one, keeps that. If all have, they had the signal too.
func (u *unit) notify(ranks []rank, n notice) error {
	text, err := json.Marshal(n)
	if err != nil {
		return err
	}
	told := true
	for _, r := range ranks {
		if old, err := readNotice(r.output.NoticeFile()); err == nil && !n.sooner(old) {
			continue
		}
		told = false
		if err := r.output.Notify(append(text, '\n')); err != nil {
			return err
		}
	}
	if sig := u.share.work.Task.NoticeSignal; sig != 0 && !told {
		u.signal(sig)
	}
	return nil
}

// readNotice is what a rank was told before.
func readNotice(path string) (n notice, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0) // whatever the rank has put there
	if err != nil {
		return n, err
	}
	defer f.Close()
	err = json.NewDecoder(io.LimitReader(f, maxNotice)).Decode(&n)
	return n, err
}

// maxNotice bounds what is read of a file that the rank may have written over, in bytes.
const maxNotice = 64 << 10

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
