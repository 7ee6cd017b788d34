package console

import (
	"io"
	"os"
	"reflect"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// sink is what a printer writes to: a descriptor, or any other writer.
type sink struct {
	w    io.Writer
	file os.FileInfo // nil unless w is a file
	fd   int         // -1 unless w is a file
	tty  bool
	// pipe is the capacity of a pipe in bytes, else 0.
	pipe int
	// outq is the ioctl for the number of bytes that the reader has not taken yet.
	outq  uint
	wrote atomic.Int64
	// left is the number of lines of an entry that are still to be written.
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
	// Fd might switch the descriptor to blocking mode, which all processes that share it would see.
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
		s.outq = unix.TIOCINQ
	}
	return s
}

// same reports whether both sinks write to the same place, where two writers would mix lines.
func (s *sink) same(o *sink) bool {
	if s.file != nil && o.file != nil {
		return os.SameFile(s.file, o.file)
	}
	return s.file == nil && o.file == nil && reflect.ValueOf(s.w).Comparable() && s.w == o.w
}

// write writes all of b without counting its lines in left.
func (s *sink) write(b []byte) error { return s.put(b, func([]byte) {}) }

// show writes an entry and counts left down.
func (s *sink) show(b []byte) error {
	return s.put(b, func(shown []byte) { s.left.Add(-countLines(shown)) })
}

// put writes and counts b piece by piece, so that taken changes while a slow reader reads.
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

// room is how many bytes may be written at once if the write is to end when the reader has taken a
// page: the space left in a pipe, a whole buffer for a regular file or a device such as /dev/null,
// one page for terminals and sockets.
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

const page = 4096

// push is write(2). Unlike os.File, it does not end the program when descriptor 1 or 2 has lost its
// reader, and it copes with a descriptor that another process made non-blocking.
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

// taken is the number of bytes that the reader has taken, less the number of bytes that the pipe
// held before. It changes whenever the reader reads.
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
