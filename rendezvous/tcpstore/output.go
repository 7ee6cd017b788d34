package tcpstore

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/rendezvous/tcpstore/internal/protocol"
)

// output collects replies, so that one system call can send the replies to requests that have
// arrived together. It does not copy values.
type output struct {
	parts [][]byte
	// scratch has the short replies. whole says that the last part is the end of scratch.
	scratch []byte
	whole   bool
	size    int
}

const (
	// maxVectors is the kernel's limit on the parts of one system call (UIO_MAXIOV).
	maxVectors = 1024
	// copied is the length up to which output does copy values, because a separate part would cost
	// the kernel more.
	copied = 64
	// perPart is the overhead of a part, in bytes.
	perPart = 24
	// maxScratch is how much scratch memory is kept for later replies.
	maxScratch = 64 << 10
)

func (o *output) bytes(p ...byte) {
	o.scratch = append(o.scratch, p...)
	o.size += len(p)
	n := len(p)
	if last := len(o.parts) - 1; o.whole {
		n += len(o.parts[last])
		o.parts = o.parts[:last]
	}
	o.parts = append(o.parts, o.scratch[len(o.scratch)-n:])
	o.whole = true
}

func (o *output) int(n int64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(n))
	o.bytes(b[:]...)
}

func (o *output) frame(f protocol.Frame) {
	if len(f) <= copied {
		o.bytes(f...)
		return
	}
	o.parts = append(o.parts, f)
	o.size += len(f)
	o.whole = false
}

// message writes a message for a proxy: a header, and then the output of write. If write
// fails, message drops its output.
func (o *output) message(kind byte, write func() error) error {
	head, parts, size := []byte{protocol.HeadLength - 1: 0}, len(o.parts), o.size
	head[0] = kind
	o.parts, o.whole = append(o.parts, head), false
	err := write()
	if err != nil {
		clear(o.parts[parts:])
		o.parts, o.size, o.whole = o.parts[:parts], size, false
		return err
	}
	binary.LittleEndian.PutUint64(head[1:], uint64(o.size-size))
	o.size += protocol.HeadLength
	return nil
}

// unread are the replies that a client has not read yet, in parts. lag is their cost in the budget.
type unread struct {
	unsent [][]byte
	lag    int
}

// add appends parts. memory is the size of the memory that they use.
func (u *unread) add(parts [][]byte, memory int) {
	u.unsent, u.lag = append(u.unsent, parts...), u.lag+memory+perPart*len(parts)
}

// begin starts with the parts that could not be sent to a client at once.
func (u *unread) begin(rest [][]byte, memory int) {
	u.unsent, u.lag = rest, memory+perPart*cap(rest)
}

// flush sends the replies collected for a client.
func (c *conn) flush() error {
	o := &c.loop.out
	if len(o.parts) == 0 {
		return nil
	}
	err := c.deliver(o.parts, cap(o.scratch))
	if err != nil || len(c.reply.unsent) > 0 || cap(o.scratch) > maxScratch {
		*o = output{}
		return err
	}
	clear(o.parts)
	*o = output{parts: o.parts[:0], scratch: o.scratch[:0]}
	return nil
}

// deliver sends as much as the client takes at once, and keeps the rest for later. The budget then
// counts the memory of the rest for the client.
func (c *conn) deliver(parts [][]byte, memory int) error {
	if len(c.reply.unsent) > 0 {
		c.reply.add(parts, memory)
		return c.book()
	}
	rest, err := c.write(parts)
	if err != nil || len(rest) == 0 {
		return err
	}
	c.reply.begin(rest, memory)
	c.loop.deadlines.set(c)
	return errors.Join(c.book(), c.loop.poller.Watch(c.fd, &c.watch, unix.EPOLLOUT))
}

// writable sends more of the unsent data. Once all is sent, it continues with the requests that the
// client has sent meanwhile.
func (c *conn) writable() error {
	rest, err := c.write(c.reply.unsent)
	if err != nil {
		return err
	}
	c.loop.deadlines.clear(c)
	if c.reply.unsent = rest; len(rest) > 0 {
		c.loop.deadlines.set(c)
		return nil
	}
	c.reply = unread{}
	if err := c.loop.poller.Watch(c.fd, &c.watch, unix.EPOLLIN); err != nil {
		return err
	}
	return c.proceed(c.request.Held, true)
}

// write returns the parts that the client did not take.
func (c *conn) write(parts [][]byte) (rest [][]byte, err error) {
	for len(parts) > 0 {
		var n int
		if len(parts) == 1 {
			n, err = unix.Write(c.fd, parts[0])
		} else {
			n, err = unix.Writev(c.fd, parts[:min(len(parts), maxVectors)])
		}
		switch {
		case errors.Is(err, unix.EAGAIN):
			return parts, nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return nil, fmt.Errorf("%w before its reply: %w", ErrVanished, err)
		}
		parts = skip(parts, n)
	}
	return nil, nil
}

// skip drops the first n bytes.
func skip(parts [][]byte, n int) [][]byte {
	for ; n > 0 && n >= len(parts[0]); parts = parts[1:] {
		n -= len(parts[0])
	}
	if n > 0 {
		parts[0] = parts[0][n:]
	}
	return parts
}
