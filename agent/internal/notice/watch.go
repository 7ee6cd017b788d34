package notice

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/agent/internal/ranks"
)

// dirWatch tells of new files in a directory (inotify(7)).
type dirWatch struct {
	file *os.File
	// changed receives a value after a change, and is closed when file is closed.
	changed chan struct{}
}

func watchDir(dir string) (*dirWatch, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("inotify: %w", err)
	}
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_CREATE|unix.IN_MOVED_TO); err != nil {
		return nil, errors.Join(fmt.Errorf("watch %s: %w", dir, err), unix.Close(fd))
	}
	w := &dirWatch{file: os.NewFile(uintptr(fd), "inotify"), changed: make(chan struct{}, 1)}
	go func() {
		defer close(w.changed)
		for buf := make([]byte, 4<<10); ; {
			if _, err := w.file.Read(buf); err != nil {
				return // the file was closed
			}
			select {
			case w.changed <- struct{}{}:
			default:
			}
		}
	}()
	return w, nil
}

// ready waits until a rank is ready or has ended. It returns false if over is closed first.
func (w *dirWatch) ready(r ranks.Rank, over <-chan struct{}) bool {
	for {
		if _, err := os.Lstat(r.Output.NoticeFile() + ReadySuffix); err == nil {
			return true
		}
		select {
		case <-w.changed:
		case <-r.Reported: // wait for the report of the rank's exit, so that a rank that succeeded does not count as stopped
			return true
		case <-over:
			return false
		}
	}
}
