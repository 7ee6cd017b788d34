package tcpstore

import (
	"encoding/binary"
	"time"

	"golang.org/x/sys/unix"
)

// take passes a request of a client to the store, or answers it.
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
		u.hold(u.newWaiter(c, a.first(1)), opArrive, a)
		return nil
	}
	if hasReply[op] {
		u.ask(question{client: c})
		c.asked = true
	} else {
		u.identify(c)
		c.dirty = true
	}
	u.request(op, a)
	return nil
}

func (u *uplink) ask(a question) { u.asked = append(u.asked, a) }

// request appends a request to what is sent.
func (u *uplink) request(op byte, fields ...[]byte) {
	u.out = append(u.out, op)
	for _, f := range fields {
		u.out = append(u.out, f...)
	}
}

// identify says which client the next request without a reply comes from, so that a failure ends
// the right one.
func (u *uplink) identify(c *conn) {
	if c.number == 0 {
		c.number = u.number()
	}
	if u.client != c.number {
		u.client = c.number
		u.request(opClient, binary.LittleEndian.AppendUint32(nil, c.number))
	}
}

// number returns an unused number other than 0.
func (u *uplink) number() uint32 {
	for u.numbered++; u.numbered == 0 || u.holds[u.numbered] != nil; u.numbered++ {
	}
	return u.numbered
}

// echo answers what the proxy knows itself, but not before the store has executed the client's
// earlier requests.
func (u *uplink) echo(c *conn, reply []byte) error {
	if !c.dirty {
		u.loop.out.bytes(reply...)
		return nil
	}
	reply = append([]byte(nil), reply...)
	return u.read(&keyRead{client: c, then: func(*keyRead, bool) { c.answer(reply) }})
}

// answer replies to a client, and continues with what it has sent since.
func (c *conn) answer(reply []byte) {
	c.markAnswered()
	err := c.deliver([][]byte{reply}, len(reply))
	c.loop.drop(c, err)
	c.resume()
}

// markAnswered says that the store has executed all of a client's requests.
func (c *conn) markAnswered() { c.asked, c.dirty, c.pending = false, false, 0 }

// busy says that a client's next request must wait: for the reply to its last one, or because the
// store reads too slowly.
func (c *conn) busy() bool {
	u := c.loop.uplink
	if u != nil && !c.stalled && len(u.out)-u.sent > maxBacklog {
		c.stalled = true
		u.stalled = append(u.stalled, c)
	}
	return c.asked || c.stalled
}

// mute stops watching a client that has sent something, or is gone, while it is busy.
func (c *conn) mute() error {
	c.muted = true
	return c.loop.watch(unix.EPOLL_CTL_DEL, c.fd, 0)
}

// interest sets the events that a client is watched for, once it is watched.
func (c *conn) interest(events uint32) error {
	c.events = events
	if c.muted {
		return nil
	}
	return c.loop.watch(unix.EPOLL_CTL_MOD, c.fd, events)
}

// resume continues with a client that was busy.
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

// changed has the list of clients sent soon.
func (u *uplink) changed() {
	if u.due.IsZero() {
		u.due = time.Now().Add(clientListEvery)
	}
}

// clientList lists the clients that have sent something: since when each waits, its port and PID,
// and the number of its wait.
func (u *uplink) clientList() []byte {
	list, n := make([]byte, 8), 0
	for _, c := range u.loop.conns {
		if c.numbering == nil || n == maxKeys {
			continue
		}
		var since, number int64
		if w := c.wait; w != nil && !c.answered && w.storeWait != nil {
			since, number = w.since.UnixNano(), int64(w.storeWait.number)
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

// next is the proxy's next deadline; zero if there is none.
func (u *uplink) next() time.Time {
	switch {
	case !u.greeted:
		return u.patience
	default:
		return u.due
	}
}
