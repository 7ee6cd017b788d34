package tcpstore

import (
	"bytes"
	"slices"
	"time"

	"github.com/golaunch/golaunch/rendezvous/tcpstore/internal/protocol"
)

// modern are the requests of torch 2.2 and later by their first byte. legacy are the requests of
// torch 1.13. OpValidate stands for a number without a request. Number 7 of torch 1.13 is such a
// number: torch never used its request, and removed it in 2.1.
var (
	modern = []byte{
		protocol.OpValidate, protocol.OpSet, protocol.OpCompareSet, protocol.OpGet, protocol.OpAdd, protocol.OpCheck, protocol.OpWait, protocol.OpNumKeys, protocol.OpDeleteKey, protocol.OpAppend, protocol.OpMultiGet, protocol.OpMultiSet,
		protocol.OpCancelWait, protocol.OpPing, protocol.OpQueuePush, protocol.OpQueuePop, protocol.OpQueueLen, protocol.OpListKeys, protocol.OpBarrier,
	}
	legacy = []byte{protocol.OpSet, protocol.OpCompareSet, protocol.OpGet, protocol.OpAdd, protocol.OpCheck, protocol.OpWait, protocol.OpNumKeys, protocol.OpValidate, protocol.OpDeleteKey}
)

// handlers answer requests. A failed request ends the connection, because the protocol has no
// errors.
var handlers = [...]func(*conn, protocol.Args) error{
	protocol.OpSet: set, protocol.OpCompareSet: compareSet, protocol.OpGet: get, protocol.OpAdd: add, protocol.OpCheck: check, protocol.OpWait: wait, protocol.OpNumKeys: numKeys,
	protocol.OpDeleteKey: deleteKey, protocol.OpAppend: appendTo, protocol.OpMultiGet: multiGet, protocol.OpMultiSet: multiSet, protocol.OpCancelWait: cancelWait, protocol.OpPing: ping,
	protocol.OpQueuePush: queuePush, protocol.OpQueuePop: queuePop, protocol.OpQueueLen: queueLen, protocol.OpListKeys: listKeys, protocol.OpBarrier: barrier,
	protocol.OpRound: round, protocol.OpHold: startProxyWait, protocol.OpArrive: arriveProxyWait, protocol.OpDrop: dropProxyWait, protocol.OpTaken: finishProxyWait, protocol.OpClient: setClient, protocol.OpClients: storeClientList,
}

// keep returns a value of a request in a form that the table may store. A long value stays in the
// memory of the request. A short value is copied.
func (c *conn) keep(f protocol.Frame) protocol.Frame {
	if len(f) > protocol.ReadBuffer && len(f) > cap(c.request.Held)/2 {
		return slices.Clip(f)
	}
	return bytes.Clone(f)
}

func set(c *conn, a protocol.Args) error {
	key := string(a.Key())
	released, err := c.loop.table.set(key, c.keep(a.Value()))
	c.loop.release(released)
	return err
}

func multiSet(c *conn, a protocol.Args) error {
	for range a.Int8B() {
		if err := set(c, protocol.Args(a.Take(len(a.Pair())))); err != nil {
			return err
		}
	}
	return nil
}

func compareSet(c *conn, a protocol.Args) error {
	key, expected, desired := string(a.Key()), a.Value(), a.Value()
	f, released, err := c.loop.table.compareSet(key, expected, c.keep(desired))
	if err == nil {
		c.loop.out.frame(f)
	}
	c.loop.release(released)
	return err
}

func get(c *conn, a protocol.Args) error {
	c.loop.out.frame(c.loop.table.get(a.Key()))
	return nil
}

func multiGet(c *conn, a protocol.Args) error {
	for range a.Int8B() {
		c.loop.out.frame(c.loop.table.get(a.Key()))
	}
	return nil
}

func add(c *conn, a protocol.Args) error {
	n, released, err := c.loop.table.add(string(a.Key()), a.Int8B())
	c.loop.out.int(n)
	c.loop.release(released)
	return err
}

func appendTo(c *conn, a protocol.Args) error {
	released, err := c.loop.table.append(string(a.Key()), c.keep(a.Value()))
	c.loop.release(released)
	return err
}

func check(c *conn, a protocol.Args) error {
	reply := byte(protocol.Ready)
	for range a.Int8B() {
		if !c.loop.table.exists(a.Key()) {
			reply = protocol.NotReady
		}
	}
	c.loop.out.bytes(reply)
	return nil
}

func wait(c *conn, a protocol.Args) error {
	w := &waiter{conn: c}
	w.want(c.loop.table, a)
	return c.suspend(w)
}

// want gives a waiter a slot for each key of a list that does not exist.
func (w *waiter) want(t *table, a protocol.Args) {
	for left := int(a.Int8B()); left > 0; left-- {
		key := a.Key()
		if t.exists(key) {
			continue
		}
		if n := len(w.slots); n == cap(w.slots) { // not for more than the remaining keys
			w.slots = slices.Grow(w.slots, min(left, 3*n+16))
		}
		if l := t.waiting[string(key)]; l != nil { // other clients also wait for this key
			w.slots = append(w.slots, slot{w: w, key: l.key, queue: l})
		} else {
			w.slots = append(w.slots, slot{w: w, key: string(key)})
		}
	}
}

// barrier counts a client's arrival at a barrier. As in torch, the count is never reset, and a
// client that gives up stays counted. So a key serves only one barrier.
func barrier(c *conn, a protocol.Args) error {
	w := &waiter{conn: c}
	if err := w.arrive(a); err != nil {
		return err
	}
	return c.suspend(w)
}

// arrive counts a waiter at a barrier. If the waiter is the last, all others are released.
// Otherwise it gets a slot.
func (w *waiter) arrive(a protocol.Args) error {
	l, key, size := w.conn.loop, string(a.Key()), a.Int8B()
	n, err := l.table.count(key, 1)
	switch {
	case err != nil:
		return err
	case n < size:
		w.slots = []slot{{w: w, key: key}}
	default:
		l.release(l.table.keySet(key))
	}
	return nil
}

// suspend makes the client wait. It replies at once if no key is missing.
func (c *conn) suspend(w *waiter) error {
	if len(w.slots) == 0 {
		c.loop.out.bytes(protocol.StopWaiting)
		return nil
	}
	if err := c.loop.table.enter(w); err != nil {
		return err
	}
	w.since, c.wait = time.Now(), w
	c.loop.changed = true
	return nil
}

// released answers a client whose wait is over.
func (c *conn) released(w *waiter) error {
	if c.proxyLink != nil {
		c.ended(w)
		return nil
	}
	c.answered = true
	c.loop.changed = true
	return c.deliver([][]byte{{protocol.StopWaiting}}, 0)
}

// cancelWait replies even if the client does not wait, because the wait may have ended while the
// request was on its way.
func cancelWait(c *conn, _ protocol.Args) error {
	c.loop.out.bytes(protocol.WaitCanceled)
	return nil
}

func ping(c *conn, a protocol.Args) error {
	c.loop.out.bytes(a...)
	c.pid = a.Int4B()
	c.loop.changed = true
	return nil
}

func numKeys(c *conn, _ protocol.Args) error {
	c.loop.out.int(int64(len(c.loop.table.values)))
	return nil
}

func deleteKey(c *conn, a protocol.Args) error {
	var n int64
	if c.loop.table.remove(string(a.Key())) {
		n = 1
	}
	c.loop.out.int(n)
	return nil
}

func listKeys(c *conn, _ protocol.Args) error {
	c.loop.out.int(int64(len(c.loop.table.values)))
	for key := range c.loop.table.values {
		c.loop.out.int(int64(len(key)))
		c.loop.out.bytes([]byte(key)...)
	}
	return nil
}

func queuePush(c *conn, a protocol.Args) error {
	released, err := c.loop.table.push(string(a.Key()), c.keep(a.Value()))
	c.loop.release(released)
	return err
}

func queuePop(c *conn, a protocol.Args) error {
	f, n := c.loop.table.pop(string(a.Key()))
	c.loop.out.int(int64(n))
	if n > 0 {
		c.loop.out.frame(f)
	}
	return nil
}

func queueLen(c *conn, a protocol.Args) error {
	c.loop.out.int(int64(len(c.loop.table.queues[string(a.Key())])))
	return nil
}
