package tcpstore

import (
	"encoding/binary"
	"time"

	"golang.org/x/sys/unix"
)

// take has the store do what a client of the proxy asks for.
func (u *uplink) take(c *conn, op byte, a args) error {
	switch op {
	case opPing:
		c.pid, u.loop.changed = binary.LittleEndian.Uint32(a), true
		return u.echo(c, a)
	case opCancelWait:
		return u.echo(c, []byte{waitCanceled})
	case opGet:
		return u.get(c, a, 1)
	case opMultiGet:
		n := a.int8B()
		return u.get(c, a, int(n))
	case opWait:
		return u.wait(c, a)
	case opBarrier:
		u.hold(u.waits(c, a.first(1)), opArrive, a)
		return nil
	}
	if replied[op] {
		u.ask(question{client: c})
		c.asked = true
	} else {
		u.sign(c)
		c.dirty = true
	}
	u.request(op, a)
	return nil
}

func (u *uplink) ask(a question) { u.asked = append(u.asked, a) }

// request has something go out, behind what already does.
func (u *uplink) request(op byte, fields ...[]byte) {
	u.out = append(u.out, op)
	for _, f := range fields {
		u.out = append(u.out, f...)
	}
}

// sign says whose the next request is: it has no reply that could fail.
func (u *uplink) sign(c *conn) {
	if c.number == 0 {
		c.number = u.number()
	}
	if u.client != c.number {
		u.client = c.number
		u.request(opClient, binary.LittleEndian.AppendUint32(nil, c.number))
	}
}

// number is one that nothing else has, and never 0.
func (u *uplink) number() uint32 {
	for u.numbered++; u.numbered == 0 || u.holds[u.numbered] != nil; u.numbered++ {
	}
	return u.numbered
}

// echo answers what the proxy knows itself, but not before the store has done what the client asked for before.
func (u *uplink) echo(c *conn, reply []byte) error {
	if !c.dirty {
		u.loop.out.bytes(reply...)
		return nil
	}
	reply = append([]byte(nil), reply...)
	return u.read(&reading{client: c, then: func(*reading, bool) { c.answer(reply) }})
}

// answer replies to what the client waits for, and goes on with what it has sent since.
func (c *conn) answer(reply []byte) {
	c.settle()
	err := c.deliver([][]byte{reply}, len(reply))
	c.loop.drop(c, err)
	c.resume()
}

// settle says that the store has done all that a client has asked for.
func (c *conn) settle() { c.asked, c.dirty, c.pending = false, false, 0 }

// busy says that no more of a client is looked at: it waits for a reply, or the store is slow to take what clients ask for.
func (c *conn) busy() bool {
	u := c.loop.up
	if u != nil && !c.stalled && len(u.out)-u.sent > maxBacklog {
		c.stalled = true
		u.stalled = append(u.stalled, c)
	}
	return c.asked || c.stalled
}

// mute stops the watch of a client that has sent something, or has gone, while it is busy.
func (c *conn) mute() error {
	c.muted = true
	return c.loop.watch(unix.EPOLL_CTL_DEL, c.fd, 0)
}

// interest says what a client is watched for, once it is watched.
func (c *conn) interest(events uint32) error {
	c.events = events
	if c.muted {
		return nil
	}
	return c.loop.watch(unix.EPOLL_CTL_MOD, c.fd, events)
}

// resume goes on with a client that was busy.
func (c *conn) resume() {
	if c.loop.conns[c.fd] != c || c.asked || c.stalled {
		return
	}
	if c.muted {
		c.muted = false
		if err := c.loop.watch(unix.EPOLL_CTL_ADD, c.fd, c.events); err != nil {
			c.loop.drop(c, err)
			return
		}
	}
	if len(c.unsent) == 0 {
		c.loop.drop(c, c.proceed(c.held, true))
	}
}

// changed has the store hear of the clients soon.
func (u *uplink) changed() {
	if u.due.IsZero() {
		u.due = time.Now().Add(rosterEvery)
	}
}

// roster is a list of the clients that have spoken: since when each waits, its port and pid, and the number of what it waits for.
func (u *uplink) roster() []byte {
	list, n := make([]byte, 8), 0
	for _, c := range u.loop.conns {
		if c.numbering == nil || n == maxKeys {
			continue
		}
		var since, number int64
		if w := c.wait; w != nil && !c.answered && w.hold != nil {
			since, number = w.since.UnixNano(), int64(w.hold.number)
		}
		list = binary.LittleEndian.AppendUint64(list, uint64(since))
		list = binary.LittleEndian.AppendUint32(list, uint32(c.peer.Port()))
		list = binary.LittleEndian.AppendUint32(list, c.pid)
		list = binary.LittleEndian.AppendUint32(list, uint32(number))
		n++
	}
	binary.LittleEndian.PutUint64(list, uint64(n))
	return list
}

// next is when the proxy must do something though nothing happens; zero is never.
func (u *uplink) next() time.Time {
	switch {
	case !u.greeted:
		return u.patience
	default:
		return u.due
	}
}
