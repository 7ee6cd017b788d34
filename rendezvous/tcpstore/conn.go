package tcpstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/rendezvous/tcpstore/internal/protocol"
	"github.com/golaunch/golaunch/rendezvous/tcpstore/internal/sockets"
)

// conn is a client. Until the client has read its reply, the store reads no further requests from
// it.
type conn struct {
	loop *loop
	fd   int
	peer netip.AddrPort
	// numbering maps the first byte of a request to the request. It is nil until the client has
	// shown its version.
	numbering []byte
	// pid is the process ID in the client's ping.
	pid     uint32
	request protocol.Incoming
	reply   unread
	// booked is the client's share of the budget.
	booked int
	times  times
	watch  sockets.Watch

	// proxyLink is not nil if the client is a proxy. upstream is used only if this store is a
	// proxy.
	proxyLink *proxyLink
	upstream  upstream

	// wait is what the client waits for. After the answer, wait stays until the next request.
	wait     *waiter
	answered bool
}

// enoughOut is how many bytes of replies are collected before they are sent.
const enoughOut = 256 << 10

// readable reads from the client once only, so that no client delays the others.
func (c *conn) readable() error {
	if c.busy() {
		return c.loop.poller.Mute(c.fd, &c.watch)
	}
	into, own := c.request.Room(c.loop.buffer[:])
	if err := c.book(); err != nil {
		return err
	}
	have := len(c.request.Held)
	n, err := unix.Read(c.fd, into[have:])
	switch {
	case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
		return nil
	case err != nil || n <= 0:
		return c.disconnectError(err)
	}
	c.loop.deadlines.markSpoken(c)
	return c.proceed(into[:have+n], own)
}

// proceed answers the complete requests in data, and keeps the rest. own says that data is in the
// client's own buffer.
func (c *conn) proceed(data []byte, own bool) error {
	at := 0
	for at < len(data) && len(c.reply.unsent) == 0 && !c.busy() {
		n, err := c.next(data[at:])
		if err != nil {
			return errors.Join(err, c.flush())
		}
		if at += n; n == 0 || c.loop.out.size > enoughOut {
			if err := c.flush(); err != nil || n == 0 {
				break
			}
		}
	}
	if err := c.flush(); err != nil {
		return err
	}
	return c.hold(data[at:], own, at > 0)
}

// hold keeps the rest of the data until the client sends more. anew says that a request before the
// rest was answered.
func (c *conn) hold(rest []byte, own, anew bool) error {
	c.request.Hold(rest, own, anew)
	if anew && len(c.reply.unsent) == 0 {
		c.loop.deadlines.clear(c)
	}
	if len(rest) > 0 && !c.upstream.asked && !c.upstream.stalled {
		c.loop.deadlines.set(c)
	}
	return c.book()
}

// book takes from the budget the memory that the store holds for the client, or gives back the
// difference.
func (c *conn) book() error {
	n := cap(c.request.Held) + c.reply.lag + c.upstream.pending
	err := c.loop.table.budget.take(n - c.booked)
	if err == nil {
		c.booked = n
	}
	return err
}

func (c *conn) deadlineError() error {
	if len(c.reply.unsent) > 0 {
		return fmt.Errorf("it read nothing of a reply for %v", c.loop.options.Patience)
	}
	return fmt.Errorf("a request did not end within %v", c.loop.options.Patience)
}

// disconnectError returns why the connection ended. err is nil after an orderly end.
func (c *conn) disconnectError(err error) error {
	switch {
	case len(c.request.Held) > 0:
		return fmt.Errorf("%w within a request", ErrVanished)
	case c.wait != nil && !c.answered:
		return fmt.Errorf("%w while it waited for %q", ErrVanished, visible(c.wait.slots[0].key))
	case err == nil || errors.Is(err, unix.ECONNRESET):
		return errClosed
	}
	return fmt.Errorf("its connection broke: %w", err)
}

// hello finds out the client's version from its first bytes, and returns the length of the
// greeting.
func (c *conn) hello(b []byte) (n int) {
	c.request.Need = 0
	switch n = c.proxyHello(b); {
	case n > 0 || c.request.Need > 0:
	case b[0] != protocol.OpValidate:
		c.numbering = legacy
	case len(b) < protocol.Greeting:
		c.request.Need = protocol.Greeting
	case binary.LittleEndian.Uint32(b[1:]) != protocol.Magic:
		c.numbering = legacy
	default:
		c.numbering, n = modern, protocol.Greeting
	}
	return n
}

// proxyHello recognizes a proxy by its first bytes. It refuses a proxy of another version like any
// unknown client.
func (c *conn) proxyHello(b []byte) (n int) {
	switch {
	case b[0] != protocol.ProxyGreeting[0] || c.loop.uplink != nil:
	case len(b) < len(protocol.ProxyGreeting):
		c.request.Need = len(protocol.ProxyGreeting)
	case string(b[:len(protocol.ProxyGreeting)]) == protocol.ProxyGreeting:
		c.becomeProxy()
		n = len(protocol.ProxyGreeting)
	}
	return n
}

// next answers the first request in b, if it is complete, and returns its length.
func (c *conn) next(b []byte) (n int, err error) {
	if c.numbering == nil {
		n = c.hello(b)
		c.loop.changed = c.loop.changed || c.numbering != nil
		if n > 0 || c.numbering == nil {
			return n, nil
		}
	}
	if int(b[0]) >= len(c.numbering) || c.numbering[b[0]] == protocol.OpValidate {
		return 0, fmt.Errorf("it sent %d, which is no request", b[0])
	}
	op := c.numbering[b[0]]
	if n, err = c.request.Scan(op, b); n == 0 {
		return 0, err
	}
	c.endWait(op)
	switch a := protocol.Args(b[1:n]); {
	case c.loop.uplink != nil:
		return n, c.loop.uplink.take(c, op, a)
	case c.proxyLink != nil:
		return n, c.relay(op, a)
	default:
		return n, handlers[op](c, a)
	}
}

// endWait ends the wait of a client that sends another request. In torch 1.13 a client can give up
// a wait only in this way. If a client cancels a wait that is already over, the client does not
// take the value for which it waited.
func (c *conn) endWait(op byte) {
	w := c.wait
	if w == nil {
		return
	}
	taken := c.answered && op != protocol.OpCancelWait
	c.loop.changed = c.loop.changed || !c.answered
	c.wait, c.answered = nil, false
	if c.loop.uplink != nil {
		c.loop.uplink.leave(w, taken)
	} else if taken {
		c.loop.table.budget.give(w.cost())
	} else {
		c.loop.release(c.loop.table.leave(w))
	}
}
