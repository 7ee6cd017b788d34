package tcpstore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"
)

// link is the store's end of a connection to a proxy. Over it come the requests of all clients of the proxy, in an order that each of
// them agrees with; what ends their waits goes back as it happens.
type link struct {
	// waits are those that last, by the proxy's number; also those that a queue has ended and of which the proxy has yet to say whether
	// somebody took it.
	waits map[uint32]*waiter
	// news are ends of waits that go out at the end of the round.
	news []byte
	// client is whose request it is that has no reply.
	client uint32
	// roster is what the proxy has said of its clients last.
	roster []byte
}

// linked are the requests of a proxy by their first bytes. It answers the others itself.
var linked = func() []byte {
	known := make([]byte, opsEnd)
	for _, op := range []byte{
		opSet, opCompareSet, opAdd, opCheck, opNumKeys, opDeleteKey, opAppend, opMultiSet, opQueuePush, opQueuePop, opQueueLen, opListKeys,
		opRound, opHold, opArrive, opDrop, opTaken, opClient, opRoster,
	} {
		known[op] = op
	}
	return known
}()

// replied are the requests that have a reply.
var replied = [opsEnd]bool{
	opCompareSet: true, opAdd: true, opCheck: true, opNumKeys: true, opDeleteKey: true, opQueuePop: true, opQueueLen: true, opListKeys: true,
	opRound: true, opHold: true, opArrive: true,
}

// welcome makes a connection one of a proxy.
func (c *conn) welcome() {
	c.link = &link{waits: map[uint32]*waiter{}}
	c.numbering = linked
	_ = c.loop.out.message(msgHello, func() error { return nil })
}

// serve answers a request of a proxy. One that fails ends the client that made it, not the proxy.
func (c *conn) relay(op byte, a args) error {
	o := &c.loop.out
	if !replied[op] {
		if err := handlers[op](c, a); err != nil {
			return o.message(msgExpel, func() error {
				o.bytes(binary.LittleEndian.AppendUint32(nil, c.link.client)...)
				o.bytes([]byte(err.Error())...)
				return nil
			})
		}
		return nil
	}
	err := o.message(msgReply, func() error { return handlers[op](c, a) })
	if err != nil {
		return o.message(msgRefused, func() error { o.bytes([]byte(err.Error())...); return nil })
	}
	return nil
}

// round says what has changed since a version, and what some keys have, all at one moment.
func round(c *conn, a args) error {
	t, o := c.loop.table, &c.loop.out
	keys, all := t.changes.since(uint64(a.int8B()))
	o.int(int64(t.changes.version))
	o.int(int64(t.removals))
	if all {
		o.int(-1)
	} else {
		o.int(int64(len(keys)))
	}
	for _, key := range keys {
		o.frame(frameOf(key))
	}
	sent := 0
	for range a.int8B() {
		switch e := t.values[string(a.key())]; {
		case e == nil:
			o.bytes(foundNothing)
		case sent > maxRound:
			o.bytes(foundLater)
		default:
			sent += len(e.frame)
			e.found(o)
		}
	}
	return nil
}

func (e *entry) found(o *output) {
	e.shared = true
	if e.fickle {
		o.bytes(foundFickle)
	} else {
		e.handed = true
		o.bytes(foundValue)
	}
	o.frame(e.frame)
}

// holdFor and arriveFor have a client of a proxy wait. The reply is whether the wait is over, and how many keys have been removed by now.
func holdFor(c *conn, a args) error {
	w := &waiter{conn: c, number: a.int4B()}
	w.want(c.loop.table, a)
	return c.suspendFor(w)
}

func arriveFor(c *conn, a args) error {
	w := &waiter{conn: c, number: a.int4B()}
	if err := w.arrive(a); err != nil {
		return err
	}
	return c.suspendFor(w)
}

func (c *conn) suspendFor(w *waiter) error {
	l := c.loop
	if len(w.spots) == 0 {
		l.out.bytes(1)
	} else {
		if c.link.waits[w.number] != nil {
			return fmt.Errorf("two waits have the number %d", w.number)
		}
		if err := l.table.enter(w); err != nil {
			return err
		}
		w.since, c.link.waits[w.number] = time.Now(), w
		l.changed = true
		l.out.bytes(0)
	}
	l.out.int(int64(l.table.removals))
	return nil
}

// ended tells a proxy of the end of a wait.
func (c *conn) ended(w *waiter) {
	if len(c.link.news) == 0 {
		c.loop.told = append(c.loop.told, c)
	}
	news := append(c.link.news, msgEnded)
	news = binary.LittleEndian.AppendUint64(news, 5)
	news = binary.LittleEndian.AppendUint32(news, w.number)
	if w.queued {
		c.link.news = append(news, 1)
	} else {
		c.link.news = append(news, 0)
		c.forget(w)
	}
	c.loop.changed = true
}

func (c *conn) forget(w *waiter) {
	delete(c.link.waits, w.number)
	c.loop.table.budget.give(w.cost())
}

func dropFor(c *conn, a args) error {
	if w := c.link.waits[a.int4B()]; w != nil {
		delete(c.link.waits, w.number)
		c.loop.changed = true
		c.loop.release(c.loop.table.leave(w))
	}
	return nil
}

func takenFor(c *conn, a args) error {
	if w := c.link.waits[a.int4B()]; w != nil {
		c.forget(w)
	}
	return nil
}

func clientIs(c *conn, a args) error {
	c.link.client = a.int4B()
	return nil
}

// roster is kept as it came: it is read when somebody asks for the status.
func roster(c *conn, a args) error {
	if bytes.Equal(c.link.roster, a) {
		return nil
	}
	if err := c.loop.table.budget.take(len(a) - len(c.link.roster)); err != nil {
		return err
	}
	c.link.roster, c.loop.changed = bytes.Clone(a), true
	return nil
}

// behind are the clients of a proxy.
func (c *conn) behind() (clients []ClientStatus) {
	if len(c.link.roster) == 0 {
		return nil
	}
	a := args(c.link.roster)
	for range a.int8B() {
		since := time.Unix(0, a.int8B())
		client := ClientStatus{Peer: netip.AddrPortFrom(c.peer.Addr(), uint16(a.int4B())), Spoke: true, PID: int(a.int4B())}
		if w := c.link.waits[a.int4B()]; w != nil && w.missing > 0 {
			client.Waiting, client.Missing, client.Since = w.shown(), w.missing, since
		}
		clients = append(clients, client)
	}
	return clients
}

// unlink takes back what a proxy has left.
func (c *conn) unlink() {
	c.loop.table.budget.give(len(c.link.roster))
	for _, w := range c.link.waits {
		c.loop.release(c.loop.table.leave(w))
	}
}
