package tcpstore

import (
	"bytes"
	"container/list"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// conn is a client. While it has not read a reply, no more of it is read.
type conn struct {
	loop *loop
	fd   int
	peer netip.AddrPort
	// numbering has the requests by their first byte; nil until the client has shown which version
	// it speaks.
	numbering []byte
	// pid is the process ID of its ping.
	pid uint32

	// held is what has come of an incomplete request; need is the length at which it is worth
	// scanning again.
	held    []byte
	need    int
	scanner scanner
	// unsent are the parts of replies that the client has not read, and lag is what they cost.
	unsent [][]byte
	lag    int
	// booked is what the client takes of the budget.
	booked int

	// due is the deadline of the request or reply under way, and late the client's place in that
	// order; nil if there is none.
	due time.Time
	// came is when it connected, and silent its place among those that have sent nothing; nil for
	// others.
	came   time.Time
	silent *list.Element
	late   *list.Element

	// proxyLink is not nil if the client is a proxy.
	proxyLink *proxyLink
	// number is the store's name for a client of a proxy. asked says that the store has yet to
	// reply, dirty that it may not have executed all requests without a reply; pending is what they
	// cost.
	number       uint32
	asked, dirty bool
	pending      int
	// stalled says that the store reads too slowly, and muted that the client is not watched
	// meanwhile for events.
	stalled, muted bool
	events         uint32

	// wait is what it waits for. Once answered it stays until the next request.
	wait     *waiter
	answered bool
}

const (
	// firstChunk is the most memory, in bytes, that a long request gets before its bytes arrive,
	// whatever length it claims. Each further chunk is at most growth times what has arrived.
	firstChunk = 2 * readBuffer
	growth     = 4
	// enoughOut is how many bytes of replies are collected before they are sent.
	enoughOut = 256 << 10
)

// readable reads once, so that no client delays the others.
func (c *conn) readable() error {
	if c.busy() {
		return c.mute()
	}
	into, own, err := c.room()
	if err != nil {
		return err
	}
	have := len(c.held)
	n, err := unix.Read(c.fd, into[have:])
	switch {
	case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
		return nil
	case err != nil || n <= 0:
		return c.disconnectError(err)
	}
	c.markSpoken()
	return c.proceed(into[:have+n], own)
}

// room returns the buffer to read into, behind what is held. It is the client's own if the request
// needs more than the loop's buffer.
func (c *conn) room() (into []byte, own bool, err error) {
	if c.need <= readBuffer {
		copy(c.loop.buffer[:], c.held)
		return c.loop.buffer[:], false, nil
	}
	size := max(firstChunk, growth*len(c.held))
	if !c.scanner.shape.list { // need does not cover the next field of a list
		size = chunk(c.need, size)
	}
	if len(c.held) == cap(c.held) || cap(c.held) < min(size, firstChunk) {
		grown := make([]byte, len(c.held), size)
		copy(grown, c.held)
		c.held = grown
		err = c.book()
	}
	return c.held[:cap(c.held)], true, err
}

// chunk repeatedly divides need by growth until it is within the limit. The last chunk is then
// exactly what is needed, not a few bytes more than the one before, and all chunks together are
// less than 1.4 times need.
func chunk(need, limit int) int {
	for need > limit {
		need = (need + growth - 1) / growth
	}
	return need
}

// proceed answers the complete requests in data, and holds the rest.
func (c *conn) proceed(data []byte, own bool) error {
	at := 0
	for at < len(data) && len(c.unsent) == 0 && !c.busy() {
		n, err := c.request(data[at:])
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

// hold keeps what remains of the data. anew says that a request before it was answered.
func (c *conn) hold(rest []byte, own, anew bool) error {
	switch {
	case len(rest) == 0:
		c.held = nil
	case !own:
		c.held = append(c.held[:0], rest...)
	case anew:
		c.held = bytes.Clone(rest) // a stored value may have the memory
	default:
		c.held = rest
	}
	if anew && len(c.unsent) == 0 {
		c.clearDeadline()
	}
	if len(c.held) > 0 && !c.asked && !c.stalled {
		c.setDeadline()
	}
	return c.book()
}

// book makes the budget match what the client has the store hold.
func (c *conn) book() error {
	n := cap(c.held) + c.lag + c.pending
	err := c.loop.table.budget.take(n - c.booked)
	if err == nil {
		c.booked = n
	}
	return err
}

// setDeadline requires the client to finish a request or read a reply in time.
func (c *conn) setDeadline() {
	if c.late == nil {
		c.due = time.Now().Add(c.loop.options.Patience)
		c.late = c.loop.late.PushBack(c)
	}
}

// markSpoken removes the client from those that have sent nothing.
func (c *conn) markSpoken() {
	if c.silent != nil {
		c.loop.silent.Remove(c.silent)
		c.silent = nil
	}
}

func (c *conn) clearDeadline() {
	if c.late != nil {
		c.loop.late.Remove(c.late)
		c.late = nil
	}
}

func (c *conn) deadlineError() error {
	if len(c.unsent) > 0 {
		return fmt.Errorf("it read nothing of a reply for %v", c.loop.options.Patience)
	}
	return fmt.Errorf("a request did not end within %v", c.loop.options.Patience)
}

// disconnectError is why the connection ended; err is nil after an orderly end.
func (c *conn) disconnectError(err error) error {
	switch {
	case len(c.held) > 0:
		return fmt.Errorf("%w within a request", ErrVanished)
	case c.wait != nil && !c.answered:
		return fmt.Errorf("%w while it waited for %q", ErrVanished, visible(c.wait.slots[0].key))
	case err == nil || errors.Is(err, unix.ECONNRESET):
		return errClosed
	}
	return fmt.Errorf("its connection broke: %w", err)
}

// hello finds out from the first bytes which version a client speaks, and returns the length of the
// greeting.
func (c *conn) hello(b []byte) (n int) {
	c.need = 0
	switch n = c.proxyHello(b); {
	case n > 0 || c.need > 0:
	case b[0] != opValidate:
		c.numbering = legacy
	case len(b) < greeting:
		c.need = greeting
	case binary.LittleEndian.Uint32(b[1:]) != magic:
		c.numbering = legacy
	default:
		c.numbering, n = modern, greeting
	}
	return n
}

// proxyHello recognizes a proxy by its first bytes. A proxy of another version is refused like any
// unknown client.
func (c *conn) proxyHello(b []byte) (n int) {
	switch {
	case b[0] != proxyGreeting[0] || c.loop.uplink != nil:
	case len(b) < len(proxyGreeting):
		c.need = len(proxyGreeting)
	case string(b[:len(proxyGreeting)]) == proxyGreeting:
		c.becomeProxy()
		n = len(proxyGreeting)
	}
	return n
}

// request answers the first request in b, if it is complete, and returns its length.
func (c *conn) request(b []byte) (n int, err error) {
	if c.numbering == nil {
		n = c.hello(b)
		c.loop.changed = c.loop.changed || c.numbering != nil
		if n > 0 || c.numbering == nil {
			return n, nil
		}
	}
	if int(b[0]) >= len(c.numbering) || c.numbering[b[0]] == opValidate {
		return 0, fmt.Errorf("it sent %d, which is no request", b[0])
	}
	op := c.numbering[b[0]]
	if c.scanner.at == 0 {
		c.scanner.begin(op)
	}
	if c.need, err = c.scanner.scan(b); err != nil || c.need > 0 {
		return 0, err
	}
	n = c.scanner.at
	c.scanner = scanner{}
	c.endWait(op)
	switch a := args(b[1:n]); {
	case c.loop.uplink != nil:
		return n, c.loop.uplink.take(c, op, a)
	case c.proxyLink != nil:
		return n, c.relay(op, a)
	default:
		return n, handlers[op](c, a)
	}
}

// endWait ends the wait of a client that sends a request: torch 1.13 has no other way to give up. A
// client that cancels a wait that is over does not take what it waited for.
func (c *conn) endWait(op byte) {
	w := c.wait
	if w == nil {
		return
	}
	taken := c.answered && op != opCancelWait
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
