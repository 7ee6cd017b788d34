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

// conn is a client. While it has not taken a reply, no more of it is read.
type conn struct {
	loop *loop
	fd   int
	peer netip.AddrPort
	// numbering has the requests by their first bytes; nil before the client has shown which it speaks.
	numbering []byte
	// pid is what its ping said.
	pid uint32

	// held is what came of a request that is not there as a whole, and of those behind it; need is how much there must be of it
	// to go on.
	held    []byte
	need    int
	scanner scanner
	// unsent is what the client has not taken of its replies, and lag what that costs.
	unsent [][]byte
	lag    int
	// booked is what held and unsent take of the budget.
	booked int

	// due is when the client is too late with the request or reply at hand, and late its place among those; nil if there is none.
	due time.Time
	// came is when it connected, and silent its place among those that have said nothing since; nil for others.
	came   time.Time
	silent *list.Element
	late   *list.Element

	// link is what there is of a proxy; nil for another client.
	link *link
	// number is what the store calls a client of a proxy's. It is asked while the store has yet to reply to it, and dirty while it may not
	// have done all that has no reply. pending is what that costs.
	number       uint32
	asked, dirty bool
	pending      int
	// stalled says that the store is slow to take what clients ask for, and muted that the client is not watched, for events, meanwhile.
	stalled, muted bool
	events         uint32

	// wait is what it waits for. Once answered it stays there until the next request.
	wait     *waiter
	answered bool
}

const (
	// firstChunk is the most that a long request gets, in bytes, before they have come, whatever length it claims; each next chunk is
	// at most growth times what came.
	firstChunk = 2 * readBuffer
	growth     = 4
	// enoughOut is how many bytes of replies are collected before they are sent.
	enoughOut = 256 << 10
)

// readable reads once, so that no client keeps the others waiting.
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
		return c.gone(err)
	}
	c.spoke()
	return c.proceed(into[:have+n], own)
}

// room is where to read to: what is held comes first. It is the client's own memory for a request that needs more than the loop's.
func (c *conn) room() (into []byte, own bool, err error) {
	if c.need <= readBuffer {
		copy(c.loop.buffer[:], c.held)
		return c.loop.buffer[:], false, nil
	}
	size := max(firstChunk, growth*len(c.held))
	if !c.scanner.shape.list { // of a list, need is not even where its next field ends
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

// chunk is the largest of need, a part of it, a part of that and so on that is within a limit. So the last chunk is what is needed, and not a few bytes
// more than the one before it: all chunks together are less than 1.4 times that.
func chunk(need, limit int) int {
	for need > limit {
		need = (need + growth - 1) / growth
	}
	return need
}

// proceed answers the whole requests in data, and holds the rest.
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

// hold keeps what is left of what was read. It began anew if a request before it was answered.
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
		c.onTime()
	}
	if len(c.held) > 0 && !c.asked && !c.stalled {
		c.owe()
	}
	return c.book()
}

// book has the budget match what the client makes the store hold.
func (c *conn) book() error {
	n := cap(c.held) + c.lag + c.pending
	err := c.loop.table.budget.take(n - c.booked)
	if err == nil {
		c.booked = n
	}
	return err
}

// owe says that the client must do something in time.
func (c *conn) owe() {
	if c.late == nil {
		c.due = time.Now().Add(c.loop.options.Patience)
		c.late = c.loop.late.PushBack(c)
	}
}

// spoke takes the client from those that have said nothing.
func (c *conn) spoke() {
	if c.silent != nil {
		c.loop.silent.Remove(c.silent)
		c.silent = nil
	}
}

func (c *conn) onTime() {
	if c.late != nil {
		c.loop.late.Remove(c.late)
		c.late = nil
	}
}

func (c *conn) tooLate() error {
	if len(c.unsent) > 0 {
		return fmt.Errorf("it took nothing of a reply for %v", c.loop.options.Patience)
	}
	return fmt.Errorf("a request did not end within %v", c.loop.options.Patience)
}

// gone is why the connection ended; nil is an orderly end.
func (c *conn) gone(err error) error {
	switch {
	case len(c.held) > 0:
		return fmt.Errorf("%w within a request", ErrVanished)
	case c.wait != nil && !c.answered:
		return fmt.Errorf("%w while it waited for %q", ErrVanished, visible(c.wait.spots[0].key))
	case err == nil || errors.Is(err, unix.ECONNRESET):
		return errGone
	}
	return fmt.Errorf("its connection broke: %w", err)
}

// hello tells by its first bytes which numbering a client speaks. It returns what the greeting takes of them.
func (c *conn) hello(b []byte) (n int) {
	c.need = 0
	switch n = c.linkHello(b); {
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

// linkHello tells by its first bytes whether a client is a proxy. One of another version is no client either.
func (c *conn) linkHello(b []byte) (n int) {
	switch {
	case b[0] != linkGreeting[0] || c.loop.up != nil:
	case len(b) < len(linkGreeting):
		c.need = len(linkGreeting)
	case string(b[:len(linkGreeting)]) == linkGreeting:
		c.welcome()
		n = len(linkGreeting)
	}
	return n
}

// request answers the first request in b, if it is there as a whole, and returns its length.
func (c *conn) request(b []byte) (n int, err error) {
	if c.numbering == nil {
		n = c.hello(b)
		c.loop.changed = c.loop.changed || c.numbering != nil
		if n > 0 || c.numbering == nil {
			return n, nil
		}
	}
	if int(b[0]) >= len(c.numbering) || c.numbering[b[0]] == opValidate {
		return 0, fmt.Errorf("it sent %d for a request, which is none", b[0])
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
	c.yield(op)
	switch a := args(b[1:n]); {
	case c.loop.up != nil:
		return n, c.loop.up.take(c, op, a)
	case c.link != nil:
		return n, c.relay(op, a)
	default:
		return n, handlers[op](c, a)
	}
}

// yield ends the wait of a client that sends something: torch 1.13 has no other way to say that it gave up. One that cancels a
// wait that is over does not take what it waited for.
func (c *conn) yield(op byte) {
	w := c.wait
	if w == nil {
		return
	}
	taken := c.answered && op != opCancelWait
	c.loop.changed = c.loop.changed || !c.answered
	c.wait, c.answered = nil, false
	if c.loop.up != nil {
		c.loop.up.leave(w, taken)
	} else if taken {
		c.loop.table.budget.give(w.cost())
	} else {
		c.loop.release(c.loop.table.leave(w))
	}
}
