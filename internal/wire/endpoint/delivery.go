package endpoint

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// A worker has at most maxUnreadBytes and maxUnreadCount of blobs as unread descriptors, or one
// blob of any size. It must have read everything before it gets the next blob. A Python controller
// has the same limits for each of its workers.
const (
	maxUnreadBytes = 64 << 20
	maxUnreadCount = 16
)

// delivery connects one worker with its controller.
type delivery struct {
	e          *Endpoint
	key        string
	worker     *net.UnixConn
	controller net.Conn
	over       chan struct{}
	// in and buf are for the direction to the worker.
	in  *bufio.Reader
	buf []byte
	// beside is the blob whose descriptor is sent with the next byte. bytes and count are the size
	// and the number of the blobs that were sent since the worker last had nothing unread.
	beside *blob
	bytes  int64
	count  int
}

// deliver copies between worker and controller until one of them is done.
func (e *Endpoint) deliver(key string, w *net.UnixConn, c net.Conn) {
	d := &delivery{
		e: e, key: key, worker: w, controller: c, over: make(chan struct{}), in: bufio.NewReaderSize(c, 16<<10), buf: make([]byte, buffer),
	}
	e.blobs.join(d)
	defer e.blobs.leave(d)
	back := func() {
		d.toController()
		close(d.over) // ends a wait for the worker or for a blob
	}
	both(w, c, func() {
		defer func() {
			if d.beside != nil {
				e.blobs.unpin(d, d.beside, false)
			}
		}()
		_ = d.toWorker() // the other side sees the end of its connection
	}, back)
}

// toController copies to the controller. No descriptors are passed in this direction: with a plain
// read, the kernel closes them.
func (d *delivery) toController() {
	buf := make([]byte, headSize+buffer)
	for {
		n, err := d.worker.Read(buf[headSize:])
		if n > 0 {
			putHead(buf, chunkBytes, n)
			if _, err := d.controller.Write(buf[:headSize+n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// toWorker copies to the worker.
func (d *delivery) toWorker() error {
	for {
		kind, size, err := readHead(d.in)
		switch {
		case err != nil:
			return err
		case kind == chunkBytes:
			err = d.pass(size)
		case (kind == chunkBeside || kind == chunkInline) && size == refSize && d.beside == nil:
			err = d.blob(kind == chunkInline)
		default:
			err = errChunk
		}
		if err != nil {
			return err
		}
	}
}

// pass copies bytes as they come.
func (d *delivery) pass(size int) error {
	for size > 0 {
		n, err := d.in.Read(d.buf[:min(size, len(d.buf))])
		text := d.buf[:n]
		if size -= n; n > 0 && d.beside != nil {
			sent, err := d.send(text)
			if err != nil {
				return err
			}
			text = text[sent:]
		}
		if len(text) > 0 {
			if _, err := d.worker.Write(text); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// send sends a descriptor with the first byte of text, and as much of the text as the worker's
// socket takes.
func (d *delivery) send(text []byte) (int, error) {
	x := d.beside
	n, _, err := d.worker.WriteMsgUnix(text, unix.UnixRights(int(x.file.Fd())), nil)
	if errors.Is(err, unix.ETOOMANYREFS) {
		d.e.o.Warn(errors.New("a worker cannot be given an object: too many descriptors are on their way to workers; raise the agent's limit on open files (ulimit -n)"))
	}
	if n > 0 {
		d.bytes, d.count = d.bytes+x.size, d.count+1
	}
	d.beside = nil
	d.e.blobs.unpin(d, x, n > 0)
	return n, err
}

// blob gives the worker a blob: its bytes now, or its descriptor with the next byte.
func (d *delivery) blob(inline bool) error {
	var ref [refSize]byte
	if _, err := io.ReadFull(d.in, ref[:]); err != nil {
		return err
	}
	number := func(i int) uint64 { return binary.LittleEndian.Uint64(ref[8*i:]) }
	size := int64(number(3))
	if size < 0 {
		return errChunk
	}
	x, err := d.e.blobs.pin(d, ID{number(0), number(1), number(2)}, size)
	if err != nil {
		return err
	}
	err = d.fetch(x, inline)
	if err == nil && !inline {
		d.beside = x
		return nil
	}
	if err == nil {
		_, err = io.CopyBuffer(struct{ io.Writer }{d.worker}, struct{ io.Reader }{io.NewSectionReader(x.file, 0, x.size)}, d.buf)
	}
	d.e.blobs.unpin(d, x, err == nil)
	return err
}

// fetch makes a blob available, once the worker may get it.
func (d *delivery) fetch(x *blob, inline bool) error {
	if !inline && d.count > 0 && (d.count >= maxUnreadCount || d.bytes+x.size > maxUnreadBytes) {
		if err := awaitRead(d.worker); err != nil {
			return err
		}
		d.bytes, d.count = 0, 0
	}
	here, err := d.e.blobs.fill(d, x, func(f *os.File) error {
		if err := d.answer(chunkWant); err != nil {
			return err
		}
		n, err := io.CopyBuffer(io.NewOffsetWriter(f, 0), struct{ io.Reader }{io.LimitReader(d.in, x.size)}, d.buf)
		if err == nil && n < x.size {
			err = io.ErrUnexpectedEOF
		}
		return err
	})
	if err == nil && here {
		err = d.answer(chunkHave)
	}
	return err
}

func (d *delivery) answer(kind byte) error {
	head := make([]byte, headSize)
	putHead(head, kind, 0)
	_, err := d.controller.Write(head)
	return err
}

// receive returns memory that the function come has filled.
func (d *delivery) receive(size int64, come func(*os.File) error) (*os.File, error) {
	f, err := newMemory()
	if err == nil {
		if err = come(f); err == nil {
			err = seal(f)
		}
		if err == nil {
			return f, nil
		}
		f.Close()
	}
	var no unix.Errno
	if errors.As(err, &no) && (no == unix.EMFILE || no == unix.ENFILE || no == unix.ENOMEM || no == unix.ENOSPC) {
		d.e.o.Warn(fmt.Errorf("an object of %d bytes for workers here cannot be held: %w; give the node more memory, or the agent more open files (ulimit -n)", size, err))
	}
	return nil, err
}

// awaitRead waits until a worker has read everything that was sent to it. After each read, the
// kernel signals that there is room, and says how much is unread.
func awaitRead(worker *net.UnixConn) error {
	raw, err := worker.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Write(func(fd uintptr) bool {
		var unread int
		unread, failed = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
		// The kernel may still report 1 unread byte after the worker has read everything. For any
		// unread message it reports hundreds.
		return failed != nil || unread <= 1
	})
	return errors.Join(err, failed)
}
