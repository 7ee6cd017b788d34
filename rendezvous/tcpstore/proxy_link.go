package tcpstore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"github.com/golaunch/golaunch/rendezvous/tcpstore/internal/protocol"
)

// proxyLink is the store's end of a connection to a proxy. The connection carries the requests of
// all clients of the proxy, and keeps the order of each client's requests. The store reports the
// end of a wait as soon as it happens.
type proxyLink struct {
	// waits are the waits in progress, by the numbers that the proxy has given them. A wait that a
	// queue has ended stays here until the proxy reports whether its client took the value.
	waits map[uint32]*waiter
	// news are messages about ended waits, which must be sent at the end of the round.
	news []byte
	// client is the number of the client whose requests without a reply follow.
	client uint32
	// clientList is the proxy's last list of its clients.
	clientList []byte
}

// proxyRequests are the requests of a proxy by their first byte. The proxy answers other requests
// itself.
var proxyRequests = func() []byte {
	known := make([]byte, protocol.OpsEnd)
	for _, op := range []byte{
		protocol.OpSet, protocol.OpCompareSet, protocol.OpAdd, protocol.OpCheck, protocol.OpNumKeys, protocol.OpDeleteKey, protocol.OpAppend, protocol.OpMultiSet, protocol.OpQueuePush, protocol.OpQueuePop, protocol.OpQueueLen, protocol.OpListKeys,
		protocol.OpRound, protocol.OpHold, protocol.OpArrive, protocol.OpDrop, protocol.OpTaken, protocol.OpClient, protocol.OpClients,
	} {
		known[op] = op
	}
	return known
}()

// hasReply says which requests have a reply.
var hasReply = [protocol.OpsEnd]bool{
	protocol.OpCompareSet: true, protocol.OpAdd: true, protocol.OpCheck: true, protocol.OpNumKeys: true, protocol.OpDeleteKey: true, protocol.OpQueuePop: true, protocol.OpQueueLen: true, protocol.OpListKeys: true,
	protocol.OpRound: true, protocol.OpHold: true, protocol.OpArrive: true,
}

// becomeProxy turns the connection into the connection of a proxy.
func (c *conn) becomeProxy() {
	c.proxyLink = &proxyLink{waits: map[uint32]*waiter{}}
	c.numbering = proxyRequests
	_ = c.loop.out.message(protocol.MsgHello, func() error { return nil })
}

// relay answers a request of a proxy. If the request fails, the proxy must disconnect the client
// that made it. The proxy itself stays connected.
func (c *conn) relay(op byte, a protocol.Args) error {
	o := &c.loop.out
	if !hasReply[op] {
		if err := handlers[op](c, a); err != nil {
			return o.message(protocol.MsgExpel, func() error {
				o.bytes(binary.LittleEndian.AppendUint32(nil, c.proxyLink.client)...)
				o.bytes([]byte(err.Error())...)
				return nil
			})
		}
		return nil
	}
	err := o.message(protocol.MsgReply, func() error { return handlers[op](c, a) })
	if err != nil {
		return o.message(protocol.MsgRefused, func() error { o.bytes([]byte(err.Error())...); return nil })
	}
	return nil
}

// round replies with the changes since a version, and with the values of some keys. All of this
// holds at one moment.
func round(c *conn, a protocol.Args) error {
	t, o := c.loop.table, &c.loop.out
	keys, all := t.changes.since(uint64(a.Int8B()))
	o.int(int64(t.changes.version))
	o.int(int64(t.removals))
	if all {
		o.int(-1)
	} else {
		o.int(int64(len(keys)))
	}
	for _, key := range keys {
		o.frame(protocol.FrameOf(key))
	}
	sent := 0
	for range a.Int8B() {
		switch e := t.values[string(a.Key())]; {
		case e == nil:
			o.bytes(protocol.FoundNothing)
		case sent > protocol.MaxRound:
			o.bytes(protocol.FoundLater)
		default:
			sent += len(e.frame)
			e.found(o)
		}
	}
	return nil
}

func (e *entry) found(o *output) {
	e.shared = true
	if e.volatile {
		o.bytes(protocol.FoundVolatile)
	} else {
		e.cached = true
		o.bytes(protocol.FoundValue)
	}
	o.frame(e.frame)
}

// startProxyWait and arriveProxyWait make a client of a proxy wait. The reply says whether the wait
// is over, and how many keys have been removed so far.
func startProxyWait(c *conn, a protocol.Args) error {
	w := &waiter{conn: c, number: a.Int4B()}
	w.want(c.loop.table, a)
	return c.suspendProxyWait(w)
}

func arriveProxyWait(c *conn, a protocol.Args) error {
	w := &waiter{conn: c, number: a.Int4B()}
	if err := w.arrive(a); err != nil {
		return err
	}
	return c.suspendProxyWait(w)
}

func (c *conn) suspendProxyWait(w *waiter) error {
	l := c.loop
	if len(w.slots) == 0 {
		l.out.bytes(1)
	} else {
		if c.proxyLink.waits[w.number] != nil {
			return fmt.Errorf("two waits have the number %d", w.number)
		}
		if err := l.table.enter(w); err != nil {
			return err
		}
		w.since, c.proxyLink.waits[w.number] = time.Now(), w
		l.changed = true
		l.out.bytes(0)
	}
	l.out.int(int64(l.table.removals))
	return nil
}

// ended tells a proxy that a wait has ended.
func (c *conn) ended(w *waiter) {
	if len(c.proxyLink.news) == 0 {
		c.loop.withNews = append(c.loop.withNews, c)
	}
	news := append(c.proxyLink.news, protocol.MsgEnded)
	news = binary.LittleEndian.AppendUint64(news, 5)
	news = binary.LittleEndian.AppendUint32(news, w.number)
	if w.queued {
		c.proxyLink.news = append(news, 1)
	} else {
		c.proxyLink.news = append(news, 0)
		c.forget(w)
	}
	c.loop.changed = true
}

func (c *conn) forget(w *waiter) {
	delete(c.proxyLink.waits, w.number)
	c.loop.table.budget.give(w.cost())
}

func dropProxyWait(c *conn, a protocol.Args) error {
	if w := c.proxyLink.waits[a.Int4B()]; w != nil {
		delete(c.proxyLink.waits, w.number)
		c.loop.changed = true
		c.loop.release(c.loop.table.leave(w))
	}
	return nil
}

func finishProxyWait(c *conn, a protocol.Args) error {
	if w := c.proxyLink.waits[a.Int4B()]; w != nil {
		c.forget(w)
	}
	return nil
}

func setClient(c *conn, a protocol.Args) error {
	c.proxyLink.client = a.Int4B()
	return nil
}

// storeClientList keeps the list as bytes. Only a status parses the list.
func storeClientList(c *conn, a protocol.Args) error {
	if bytes.Equal(c.proxyLink.clientList, a) {
		return nil
	}
	if err := c.loop.table.budget.take(len(a) - len(c.proxyLink.clientList)); err != nil {
		return err
	}
	c.proxyLink.clientList, c.loop.changed = bytes.Clone(a), true
	return nil
}

// proxyClients returns the clients of a proxy.
func (c *conn) proxyClients() (clients []ClientStatus) {
	if len(c.proxyLink.clientList) == 0 {
		return nil
	}
	a := protocol.Args(c.proxyLink.clientList)
	for range a.Int8B() {
		since := time.Unix(0, a.Int8B())
		client := ClientStatus{Peer: netip.AddrPortFrom(c.peer.Addr(), uint16(a.Int4B())), Spoke: true, PID: int(a.Int4B())}
		if w := c.proxyLink.waits[a.Int4B()]; w != nil && w.missing > 0 {
			client.Waiting, client.Missing, client.Since = w.missingKeys(), w.missing, since
		}
		clients = append(clients, client)
	}
	return clients
}

// releaseProxy ends the waits of a proxy that is gone.
func (c *conn) releaseProxy() {
	c.loop.table.budget.give(len(c.proxyLink.clientList))
	for _, w := range c.proxyLink.waits {
		c.loop.release(c.loop.table.leave(w))
	}
}
