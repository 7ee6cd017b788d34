package logs

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/internal/process/console"
)

// move waits for output and puts it into the file before it leaves the pipe, so that a process that
// takes the pipe over continues at the right byte. Output that cannot be spliced is read and
// written.
func (p *pump) move() error {
	conn, err := p.in.SyscallConn()
	if err != nil {
		return err
	}
	n := 0
	var readErr error
	err = conn.Read(func(fd uintptr) bool {
		n, readErr = p.take(int(fd), console.MaxRead)
		return !errors.Is(readErr, unix.EAGAIN)
	})
	switch {
	case err != nil:
		return err
	case readErr == nil && n == 0:
		return io.EOF
	case readErr == nil:
		p.noteBusy(n)
	case errors.Is(readErr, unix.EINTR):
		return nil
	}
	return readErr
}

// splice moves up to limit bytes from a pipe to the file with splice(2). Even if a signal ends this
// process in the middle, exactly the written bytes have left the pipe (fs/splice.c,
// iter_file_splice_write). The error is io.EOF once the pipe has no writer, EAGAIN if the pipe is
// empty, and errNoSplice at the limit of the log, after an error or on an unsuitable file system.
// It does not report the cause of errNoSplice, since the following write fails for the same cause.
func (l *logFile) splice(pipe, limit int) (int, error) {
	if l.gap > 0 {
		return 0, errNoSplice
	}
	if l.f == nil {
		if l.f, _ = l.open(); l.f == nil {
			return 0, errNoSplice
		}
	}
	if l.limit > 0 {
		if limit = min(limit, int(max(0, l.limit-l.kept))); limit == 0 {
			return 0, errNoSplice
		}
	}
	n, err := unix.Splice(pipe, nil, int(l.f.Fd()), nil, limit, unix.SPLICE_F_NONBLOCK)
	switch {
	case n > 0:
		l.kept += n
		if l.wrote != nil {
			l.wrote()
		}
		return int(n), nil
	case err == nil:
		return 0, io.EOF
	case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
		return 0, err
	}
	return 0, errNoSplice
}

var errNoSplice = errors.New("it cannot be spliced")

// openExact opens a file to write at its end. It does not open the file in append mode, because
// splice(2) refuses that mode. The existing bytes count towards the limit.
func (l *logFile) openExact(root *safefile.Root, name string) (*os.File, error) {
	f, err := openLog(root, name)
	if err != nil {
		return nil, err
	}
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_SETFL, flags&^unix.O_APPEND)
	}
	if err == nil {
		l.kept, err = f.Seek(0, io.SeekEnd)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// readTail reads the end of a log file.
func (r *Rank) readTail(s console.Stream) *tail {
	t := &tail{}
	if r.dir.root == nil {
		return t
	}
	f, err := r.dir.root.OpenFile(r.file(s.String()+".log"), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return t // nothing was written
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil {
		end := make([]byte, min(tailBytes, info.Size()))
		n, _ := f.ReadAt(end, info.Size()-int64(len(end)))
		t.write(end[:n])
	}
	return t
}
