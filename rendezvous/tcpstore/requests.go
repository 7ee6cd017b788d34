package tcpstore

import (
	"bytes"
	"slices"
	"time"
)

// modern are the requests of torch 2.2 and later by their first byte, and legacy those of torch
// 1.13; opValidate stands for none. Torch dropped the request with number 7 in 2.1, and never used
// it.
var (
	modern = []byte{
		opValidate, opSet, opCompareSet, opGet, opAdd, opCheck, opWait, opNumKeys, opDeleteKey, opAppend, opMultiGet, opMultiSet,
		opCancelWait, opPing, opQueuePush, opQueuePop, opQueueLen, opListKeys, opBarrier,
	}
	legacy = []byte{opSet, opCompareSet, opGet, opAdd, opCheck, opWait, opNumKeys, opValidate, opDeleteKey}
)

// handlers answer requests. A failed request ends the connection, because the protocol has no
// errors.
var handlers = [...]func(*conn, args) error{
	opSet: set, opCompareSet: compareSet, opGet: get, opAdd: add, opCheck: check, opWait: wait, opNumKeys: numKeys,
	opDeleteKey: deleteKey, opAppend: appendTo, opMultiGet: multiGet, opMultiSet: multiSet, opCancelWait: cancelWait, opPing: ping,
	opQueuePush: queuePush, opQueuePop: queuePop, opQueueLen: queueLen, opListKeys: listKeys, opBarrier: barrier,
	opRound: round, opHold: startProxyWait, opArrive: arriveProxyWait, opDrop: dropProxyWait, opTaken: finishProxyWait, opClient: setClient, opClients: storeClientList,
}

// keep returns a value of a request for the table. A long value keeps its memory; a short one is
// copied.
func (c *conn) keep(f frame) frame {
	if len(f) > readBuffer && len(f) > cap(c.request.held)/2 {
		return slices.Clip(f)
	}
	return bytes.Clone(f)
}

func set(c *conn, a args) error {
	key := string(a.key())
	released, err := c.loop.table.set(key, c.keep(a.value()))
	c.loop.release(released)
	return err
}

func multiSet(c *conn, a args) error {
	for range a.int8B() {
		if err := set(c, args(a.take(len(a.pair())))); err != nil {
			return err
		}
	}
	return nil
}

func compareSet(c *conn, a args) error {
	key, expected, desired := string(a.key()), a.value(), a.value()
	f, released, err := c.loop.table.compareSet(key, expected, c.keep(desired))
	if err == nil {
		c.loop.out.frame(f)
	}
	c.loop.release(released)
	return err
}

func get(c *conn, a args) error {
	c.loop.out.frame(c.loop.table.get(a.key()))
	return nil
}

func multiGet(c *conn, a args) error {
	for range a.int8B() {
		c.loop.out.frame(c.loop.table.get(a.key()))
	}
	return nil
}

func add(c *conn, a args) error {
	n, released, err := c.loop.table.add(string(a.key()), a.int8B())
	c.loop.out.int(n)
	c.loop.release(released)
	return err
}

func appendTo(c *conn, a args) error {
	released, err := c.loop.table.append(string(a.key()), c.keep(a.value()))
	c.loop.release(released)
	return err
}

func check(c *conn, a args) error {
	reply := byte(ready)
	for range a.int8B() {
		if !c.loop.table.exists(a.key()) {
			reply = notReady
		}
	}
	c.loop.out.bytes(reply)
	return nil
}

func wait(c *conn, a args) error {
	w := &waiter{conn: c}
	w.want(c.loop.table, a)
	return c.suspend(w)
}

// want gives a waiter a slot for each key of a list that does not exist.
func (w *waiter) want(t *table, a args) {
	for left := int(a.int8B()); left > 0; left-- {
		key := a.key()
		if t.exists(key) {
			continue
		}
		if n := len(w.slots); n == cap(w.slots) { // but not beyond the keys that are left
			w.slots = slices.Grow(w.slots, min(left, 3*n+16))
		}
		if l := t.waiting[string(key)]; l != nil { // others wait for it too
			w.slots = append(w.slots, slot{w: w, key: l.key, queue: l})
		} else {
			w.slots = append(w.slots, slot{w: w, key: string(key)})
		}
	}
}

// barrier counts an arrival. As in torch, the count is never reset, and a client that gives up
// stays counted: a key serves one barrier.
func barrier(c *conn, a args) error {
	w := &waiter{conn: c}
	if err := w.arrive(a); err != nil {
		return err
	}
	return c.suspend(w)
}

// arrive counts a waiter at a barrier, and gives it a slot if it is not the last.
func (w *waiter) arrive(a args) error {
	l, key, size := w.conn.loop, string(a.key()), a.int8B()
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

// suspend has the client wait, unless there is nothing to wait for.
func (c *conn) suspend(w *waiter) error {
	if len(w.slots) == 0 {
		c.loop.out.bytes(stopWaiting)
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
	return c.deliver([][]byte{{stopWaiting}}, 0)
}

// cancelWait is answered whether or not there was a wait, because its end may have crossed the
// request.
func cancelWait(c *conn, _ args) error {
	c.loop.out.bytes(waitCanceled)
	return nil
}

func ping(c *conn, a args) error {
	c.loop.out.bytes(a...)
	c.pid = a.int4B()
	c.loop.changed = true
	return nil
}

func numKeys(c *conn, _ args) error {
	c.loop.out.int(int64(len(c.loop.table.values)))
	return nil
}

func deleteKey(c *conn, a args) error {
	var n int64
	if c.loop.table.remove(string(a.key())) {
		n = 1
	}
	c.loop.out.int(n)
	return nil
}

func listKeys(c *conn, _ args) error {
	c.loop.out.int(int64(len(c.loop.table.values)))
	for key := range c.loop.table.values {
		c.loop.out.int(int64(len(key)))
		c.loop.out.bytes([]byte(key)...)
	}
	return nil
}

func queuePush(c *conn, a args) error {
	released, err := c.loop.table.push(string(a.key()), c.keep(a.value()))
	c.loop.release(released)
	return err
}

func queuePop(c *conn, a args) error {
	f, n := c.loop.table.pop(string(a.key()))
	c.loop.out.int(int64(n))
	if n > 0 {
		c.loop.out.frame(f)
	}
	return nil
}

func queueLen(c *conn, a args) error {
	c.loop.out.int(int64(len(c.loop.table.queues[string(a.key())])))
	return nil
}
