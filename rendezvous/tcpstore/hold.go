package tcpstore

import (
	"bytes"
	"encoding/binary"
	"time"
)

// hold is a wait at the store for one client of the proxy, or for several that wait for the same keys.
//
// A client that joins others must not learn of keys that were there before it came. It joins once the store has said, after it came, that
// no key has been removed since the hold began: then all that the hold has seen is still there.
type hold struct {
	number  uint32
	group   string
	members map[*waiter]bool
	// removals is what the store had removed when it began; known says that the store has begun it.
	removals uint64
	known    bool
	// taken says that a client goes on with what has ended it.
	taken bool
}

// waits begins the wait of a client, for some key above all.
func (u *uplink) waits(c *conn, key []byte) *waiter {
	w := &waiter{conn: c, since: time.Now()}
	w.spots = []spot{{w: w, key: string(key)}}
	c.wait, c.answered, u.loop.changed = w, false, true
	return w
}

// wait has a client wait for keys. One key, which may be a queue's, is the store's to give to one of those that wait; several are waited
// for together, and those that the proxy has kept need no wait.
func (u *uplink) wait(c *conn, a args) error {
	keys := a
	n := int(keys.int8B())
	w := u.waits(c, keys.first(n))
	if n == 1 {
		u.hold(w, opHold, a)
		return nil
	}
	a = bytes.Clone(a)
	r := &reading{client: c, keys: a, then: func(*reading, bool) { u.join(w, a) }}
	if u.hasAll(a[8:], n) {
		r.keys, r.n = a[8:], n
		r.then = func(_ *reading, fresh bool) {
			if fresh && r.exist() { // some may have had to be asked for after all
				w.end()
			} else {
				u.join(w, a)
			}
		}
	} else if u.groups[string(a)] == nil {
		u.together(w, a)
		return nil
	}
	return u.read(r)
}

func (u *uplink) hasAll(keys args, n int) bool {
	for range n {
		if u.cache.values[string(keys.key())] == nil {
			return false
		}
	}
	return true
}

// join has a client wait with others, of whom the store has been asked since it came.
func (u *uplink) join(w *waiter, a args) {
	h := u.groups[string(a)]
	if h == nil || h.known && h.removals != u.removals {
		u.together(w, a)
		return
	}
	h.add(w)
	if h.known { // else the store has yet to hear of it, and will see what is there now
		w.conn.settle()
		w.conn.resume()
	}
}

// together begins a hold that others may join.
func (u *uplink) together(w *waiter, a args) {
	h := u.hold(w, opHold, a)
	h.group = string(a)
	u.groups[h.group] = h
}

// hold has the store hold a wait, and the client wait for its word that it does.
func (u *uplink) hold(w *waiter, op byte, a args) *hold {
	h := &hold{number: u.number(), members: map[*waiter]bool{}}
	h.add(w)
	u.holds[h.number] = h
	w.conn.asked = true
	u.ask(question{hold: h})
	u.request(op, binary.LittleEndian.AppendUint32(nil, h.number), a)
	return h
}

func (h *hold) add(w *waiter) {
	h.members[w] = true
	w.hold = h
}

// held is the store's word that it holds a wait, or that there was nothing to wait for.
func (u *uplink) held(h *hold, over bool, removals uint64) {
	h.removals, h.known = removals, true
	if over {
		u.ended(h.number, false)
		return
	}
	for w := range h.members {
		w.conn.settle()
		w.conn.resume()
	}
}

// ended is the end of a wait. What the proxy has dropped meanwhile is known no more.
func (u *uplink) ended(number uint32, queued bool) {
	h := u.holds[number]
	if h == nil {
		return
	}
	u.ungroup(h)
	if !queued {
		delete(u.holds, number)
	}
	for w := range h.members {
		if !queued {
			w.hold = nil
		}
		w.end()
	}
}

func (u *uplink) ungroup(h *hold) {
	if u.groups[h.group] == h {
		delete(u.groups, h.group)
	}
}

// end answers a client whose wait is over.
func (w *waiter) end() {
	c := w.conn
	c.settle()
	c.loop.drop(c, c.released(w))
	c.resume()
}

// refused ends the clients of a wait that the store does not hold.
func (u *uplink) refused(h *hold, why error) {
	delete(u.holds, h.number)
	u.ungroup(h)
	for w := range h.members {
		w.hold = nil
		u.loop.drop(w.conn, why)
	}
}

// leave takes a client from what it waits or has waited for; taken says that it goes on with what ended the wait.
func (u *uplink) leave(w *waiter, taken bool) {
	h := w.hold
	if h == nil {
		return
	}
	w.hold = nil
	delete(h.members, w)
	if h.taken = h.taken || taken; len(h.members) > 0 {
		return
	}
	delete(u.holds, h.number)
	u.ungroup(h)
	op := byte(opDrop)
	if h.taken {
		op = opTaken
	}
	u.request(op, binary.LittleEndian.AppendUint32(nil, h.number))
}
