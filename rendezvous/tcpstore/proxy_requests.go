package tcpstore

import (
	"encoding/binary"
	"time"

	"github.com/golaunch/golaunch/rendezvous/tcpstore/internal/protocol"
)

// upstream is the state of the requests that a client has sent to a proxy.
type upstream struct {
	// number is the number by which the store knows the client.
	number uint32
	// asked says that the client waits for a reply from the store. dirty says that the store may
	// not have executed all of the client's requests that have no reply. pending is the cost of the
	// requests under way.
	asked, dirty bool
	pending      int
	// stalled says that the client must wait because the store reads too slowly.
	stalled bool
}

// markAnswered notes that the store has executed all of the client's requests.
func (u *upstream) markAnswered() { u.asked, u.dirty, u.pending = false, false, 0 }

// take passes a request of a client to the store, or answers it.
func (u *uplink) take(c *conn, op byte, a protocol.Args) error {
	switch op {
	case protocol.OpPing:
		c.pid, u.loop.changed = binary.LittleEndian.Uint32(a), true
		return u.echo(c, a)
	case protocol.OpCancelWait:
		return u.echo(c, []byte{protocol.WaitCanceled})
	case protocol.OpGet:
		return u.get(c, a, 1)
	case protocol.OpMultiGet:
		n := a.Int8B()
		return u.get(c, a, int(n))
	case protocol.OpWait:
		return u.wait(c, a)
	case protocol.OpBarrier:
		u.hold(u.newWaiter(c, a.First(1)), protocol.OpArrive, a)
		return nil
	}
	if hasReply[op] {
		u.ask(question{client: c})
		c.upstream.asked = true
	} else {
		u.identify(c)
		c.upstream.dirty = true
	}
	u.link.request(op, a)
	return nil
}

func (u *uplink) ask(a question) { u.asked = append(u.asked, a) }

// identify tells the store which client sends the next request without a reply. If the request
// fails, the store then ends the right client.
func (u *uplink) identify(c *conn) {
	if c.upstream.number == 0 {
		c.upstream.number = u.number()
	}
	if u.client != c.upstream.number {
		u.client = c.upstream.number
		u.link.request(protocol.OpClient, binary.LittleEndian.AppendUint32(nil, c.upstream.number))
	}
}

// number returns an unused number other than 0.
func (u *uplink) number() uint32 {
	for u.numbered++; u.numbered == 0 || u.waits.byNumber[u.numbered] != nil; u.numbered++ {
	}
	return u.numbered
}

// echo sends a reply that the proxy knows itself, once the store has executed the client's earlier
// requests.
func (u *uplink) echo(c *conn, reply []byte) error {
	if !c.upstream.dirty {
		u.loop.out.bytes(reply...)
		return nil
	}
	reply = append([]byte(nil), reply...)
	return u.read(&keyRead{client: c, then: func(*keyRead, bool) { c.answer(reply) }})
}

// answer sends a client its reply, and continues with the requests that the client has sent
// meanwhile.
func (c *conn) answer(reply []byte) {
	c.upstream.markAnswered()
	err := c.deliver([][]byte{reply}, len(reply))
	c.loop.drop(c, err)
	c.resume()
}

// busy reports whether a client's next request must wait. It must wait for the reply to the
// client's last request, and while the store reads too slowly.
func (c *conn) busy() bool {
	u := c.loop.uplink
	if u != nil && !c.upstream.stalled && u.link.backlog() > maxBacklog {
		c.upstream.stalled = true
		u.stalled = append(u.stalled, c)
	}
	return c.upstream.asked || c.upstream.stalled
}

// resume continues with the requests of a client that was busy.
func (c *conn) resume() {
	if c.loop.isGone(c) || c.upstream.asked || c.upstream.stalled {
		return
	}
	if err := c.loop.poller.Unmute(c.fd, &c.watch); err != nil {
		c.loop.drop(c, err)
		return
	}
	if len(c.reply.unsent) == 0 {
		c.loop.drop(c, c.proceed(c.request.Held, true))
	}
}

// changed makes the proxy send the list of clients soon.
func (u *uplink) changed() {
	if u.due.IsZero() {
		u.due = time.Now().Add(clientListEvery)
	}
}

// clientList lists the clients that have sent something. For each client, the list has the time at
// which its wait began, its port, its PID, and the number of its wait.
func (u *uplink) clientList() []byte {
	list, n := make([]byte, 8), 0
	for _, c := range u.loop.conns {
		if c.numbering == nil || n == protocol.MaxKeys {
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

// next returns the proxy's next deadline; zero if there is none.
func (u *uplink) next() time.Time {
	switch {
	case !u.link.greeted:
		return u.link.patience
	default:
		return u.due
	}
}
