package logs

import (
	"io"
	"os"
	"reflect"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// sink is what a lane writes to: a descriptor, or any writer.
type sink struct {
	w    io.Writer
	file os.FileInfo // nil unless w is a file
	fd   int         // -1 unless w is a file
	tty  bool
	// pipe is the capacity of a pipe in bytes, else 0.
	pipe int
	// outq is the ioctl that tells how many bytes the reader has not taken yet.
	outq  uint
	wrote atomic.Int64
	// left is how many lines of an entry have not been written yet: all until show has begun.
	left atomic.Int64
}

func newSink(w io.Writer) *sink {
	s := &sink{w: w, fd: -1, outq: unix.TIOCOUTQ}
	f, ok := w.(*os.File)
	if !ok {
		return s
	}
	info, err := f.Stat()
	if err != nil {
		return s
	}
	// SyscallConn, because Fd may switch the descriptor to blocking mode under whoever shares it.
	conn, err := f.SyscallConn()
	if err != nil || conn.Control(func(fd uintptr) { s.fd = int(fd) }) != nil {
		return s
	}
	s.file = info
	if _, err := unix.IoctlGetTermios(s.fd, unix.TCGETS); err == nil {
		s.tty = true
	}
	if info.Mode()&os.ModeNamedPipe != 0 {
		s.pipe, _ = unix.FcntlInt(uintptr(s.fd), unix.F_GETPIPE_SZ, 0)
		s.outq = fionread
	}
	return s
}

// same reports whether both write to the same place, where two writers would tear each other's lines.
func (s *sink) same(o *sink) bool {
	if s.file != nil && o.file != nil {
		return os.SameFile(s.file, o.file)
	}
	return s.file == nil && o.file == nil && reflect.ValueOf(s.w).Comparable() && s.w == o.w
}

// write writes all of b, which is not counted in left.
func (s *sink) write(b []byte) error { return s.put(b, func([]byte) {}) }

// show writes all of b, an entry.
func (s *sink) show(b []byte) error {
	return s.put(b, func(shown []byte) { s.left.Add(-count(shown)) })
}

// put counts the bytes piece by piece, so that a reader who moves is seen to move.
func (s *sink) put(b []byte, put func([]byte)) error {
	for len(b) > 0 {
		n, err := s.push(b[:min(len(b), s.room())])
		s.wrote.Add(int64(n))
		put(b[:n])
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// room is the size of a write that a reader who takes one page lets through: the space left in a pipe, all of a buffer for
// a regular file or a device such as /dev/null, one page for terminals and sockets.
func (s *sink) room() int {
	switch {
	case s.fd < 0:
		return maxBuffer
	case s.pipe > 0:
		held, err := unix.IoctlGetInt(s.fd, s.outq)
		if err != nil {
			return page
		}
		return max(page, (s.pipe-held-page)&^(page-1))
	case s.tty || s.file.Mode()&os.ModeSocket != 0:
		return page
	}
	return maxBuffer
}

const (
	page = 4096
	// fionread asks how many bytes a pipe holds, at either end.
	fionread = unix.TIOCINQ
)

// push is write(2). It goes round os.File, which ends the program when descriptor 1 or 2 has no reader any more, and bears a
// descriptor that another process made non-blocking.
func (s *sink) push(b []byte) (int, error) {
	if s.fd < 0 {
		return s.w.Write(b)
	}
	for {
		n, err := unix.Write(s.fd, b)
		switch err {
		case unix.EINTR:
		case unix.EAGAIN:
			if _, err := unix.Poll([]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLOUT}}, -1); err != nil && err != unix.EINTR {
				return 0, err
			}
		default:
			return max(n, 0), err
		}
	}
}

// taken is how many bytes the reader has taken so far, less what the pipe held before: it changes when the reader moves.
func (s *sink) taken() int64 {
	n := s.wrote.Load()
	if s.fd < 0 {
		return n
	}
	if held, err := unix.IoctlGetInt(s.fd, s.outq); err == nil {
		n -= int64(held)
	}
	return n
}
