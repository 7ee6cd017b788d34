package endpoint

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Forward copies between a program on this machine and a worker until one of them is done. The
// program may send descriptors of memory, at most one with a message. For each descriptor, the
// worker gets a blob with the same content, after all earlier messages and before the last byte of
// the message. An error is about such a descriptor, and ends the connection. There is no error if
// the connection itself ends.
func Forward(program *net.UnixConn, s *Stream) (err error) {
	both(program, s, func() {
		if err = forward(program, s); !errors.Is(err, errMemory) {
			err = nil
		}
	}, func() {
		// The wrappers avoid ReadFrom and WriteTo of the ends, which have buffers of their own.
		_, _ = io.CopyBuffer(struct{ io.Writer }{program}, struct{ io.Reader }{s}, make([]byte, buffer))
	})
	return err
}

// both runs both directions between two connections until one direction ends.
func both(a, b net.Conn, there, back func()) {
	done := make(chan struct{}, 2)
	for _, pass := range []func(){there, back} {
		go func() {
			pass()
			done <- struct{}{}
		}()
	}
	<-done
	// The last bytes are on their way, because a write returns when the kernel or TLS has them.
	a.Close()
	b.Close()
	<-done
}

// errMemory is about a descriptor that came with a message.
var errMemory = errors.New("memory of the controller's program cannot be passed on")

// forward copies to the worker.
func forward(program *net.UnixConn, s *Stream) error {
	buf, beside := make([]byte, buffer), make([]byte, unix.CmsgSpace(4))
	for {
		n, more, flags, _, err := program.ReadMsgUnix(buf, beside)
		if err != nil {
			return err
		}
		if more == 0 && flags&unix.MSG_CTRUNC == 0 {
			_, err = s.Write(buf[:n])
		} else {
			var f *os.File
			if f, err = descriptor(beside[:more]); err == nil {
				err = forwardWith(f, buf[:n], s)
				f.Close() // the program may use the memory again from now on
			}
		}
		if err != nil {
			return err
		}
	}
}

// forwardWith sends text, and a blob before the last byte of the text. The kernel ends a read at
// the message with the descriptor, so the last byte belongs to that message. A separate message,
// such as the cancellation of a call, does not wait for the blob of the next one.
func forwardWith(f *os.File, text []byte, s *Stream) error {
	b, err := shared(f)
	if err != nil {
		return err
	}
	last := len(text) - 1
	if _, err := s.Write(text[:last]); err != nil {
		return err
	}
	if err := s.Send(b); errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it ends before its %d bytes do", errMemory, b.Size)
	} else if err != nil {
		return err
	}
	_, err = s.Write(text[last:])
	return err
}

// descriptor returns the only descriptor that came with a message.
func descriptor(beside []byte) (*os.File, error) {
	var fds []int
	messages, err := unix.ParseSocketControlMessage(beside)
	for i := range messages {
		some, bad := unix.ParseUnixRights(&messages[i])
		fds, err = append(fds, some...), errors.Join(err, bad)
	}
	if err == nil && len(fds) == 1 {
		return os.NewFile(uintptr(fds[0]), "segment"), nil
	}
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
	if len(fds) == 0 {
		return nil, errors.Join(err, fmt.Errorf("%w: there is no descriptor for it here; raise the limit on open files (ulimit -n)", errMemory))
	}
	return nil, errors.Join(err, fmt.Errorf("%w: %d descriptors with a message, and one at most", errMemory, len(fds)))
}

// lengthBits is how many bits of a segment's offset are the length. The other bits count the
// segment's uses.
const lengthBits = 44

// shared is the content of a segment: the memory that is sent with a frame
// (python/golaunch/wire.py). The sender may reuse the memory when no other process has it open. The
// file offset contains the length, and differs at each use. With offset 0, the content is the whole
// segment, which is used only once.
func shared(f *os.File) (Blob, error) {
	var at unix.Stat_t
	fd := int(f.Fd())
	offset, err := unix.Seek(fd, 0, unix.SEEK_CUR)
	if err == nil {
		err = unix.Fstat(fd, &at)
	}
	if err == nil && at.Mode&unix.S_IFMT != unix.S_IFREG {
		err = errors.New("it is not shared memory")
	}
	if err != nil {
		return Blob{}, fmt.Errorf("%w: %w", errMemory, err)
	}
	size := at.Size
	if offset != 0 {
		size = offset & (1<<lengthBits - 1)
	}
	return Blob{ID: ID{at.Dev, at.Ino, uint64(offset)}, Size: size, Content: f}, nil
}
