package tcpstore

import (
	"bytes"
	"encoding/binary"
	"time"

	"github.com/golaunch/golaunch/rendezvous/tcpstore/internal/protocol"
)

// storeWait is a wait at the store for one client of the proxy, or for several clients that wait
// for the same keys.
//
// A client that joins a wait must not count keys that existed only before the client asked. So,
// after the client's request, the proxy asks the store whether it has removed any key since the
// wait began. The client joins only if the store has removed none, because then all keys that ended
// part of the wait still exist.
type storeWait struct {
	number  uint32
	group   string
	members map[*waiter]bool
	// removals is how many keys the store had removed when it began the wait. known says that the
	// store has begun the wait.
	removals uint64
	known    bool
	// taken says that a client has taken the value that ended the wait.
	taken bool
}

// storeWaits are the waits at the store.
type storeWaits struct {
	byNumber map[uint32]*storeWait
	// byKeys are the waits that several clients may share, by the list of keys.
	byKeys map[string]*storeWait
}

func (s *storeWaits) add(h *storeWait) { s.byNumber[h.number] = h }

// offer lets other clients that wait for the same keys join a wait.
func (s *storeWaits) offer(h *storeWait, keys protocol.Args) {
	h.group = string(keys)
	s.byKeys[h.group] = h
}

// close keeps other clients from joining a wait.
func (s *storeWaits) close(h *storeWait) {
	if s.byKeys[h.group] == h {
		delete(s.byKeys, h.group)
	}
}

func (s *storeWaits) remove(h *storeWait) {
	delete(s.byNumber, h.number)
	s.close(h)
}

// newWaiter begins the wait of a client. key is the key that the proxy's own status shows.
func (u *uplink) newWaiter(c *conn, key []byte) *waiter {
	w := &waiter{conn: c, since: time.Now()}
	w.slots = []slot{{w: w, key: string(key)}}
	c.wait, c.answered, u.loop.changed = w, false, true
	return w
}

// wait makes a client wait for keys. If all keys are cached, it only asks the store to confirm
// that. Clients that wait for the same keys share one wait at the store. A single key may belong to
// a queue, so for a single key each client has a wait of its own.
func (u *uplink) wait(c *conn, a protocol.Args) error {
	keys := a
	n := int(keys.Int8B())
	w := u.newWaiter(c, keys.First(n))
	if n == 1 {
		u.hold(w, protocol.OpHold, a)
		return nil
	}
	a = bytes.Clone(a)
	r := &keyRead{client: c, keys: a, then: func(*keyRead, bool) { u.join(w, a) }}
	if u.reads.hasAll(a[8:], n) {
		r.keys, r.n = a[8:], n
		r.then = func(_ *keyRead, fresh bool) {
			if fresh && r.exist() { // some values may have been evicted meanwhile
				w.end()
			} else {
				u.join(w, a)
			}
		}
	} else if u.waits.byKeys[string(a)] == nil {
		u.waitTogether(w, a)
		return nil
	}
	return u.read(r)
}

// join makes a client join a wait for the same keys. Since the client's request arrived, a round
// has told the proxy how many keys the store has removed.
func (u *uplink) join(w *waiter, a protocol.Args) {
	h := u.waits.byKeys[string(a)]
	if h == nil || h.known && h.removals != u.reads.removals {
		u.waitTogether(w, a)
		return
	}
	h.add(w)
	if h.known { // otherwise the store begins the wait later, and checks the keys then
		w.conn.upstream.markAnswered()
		w.conn.resume()
	}
}

// waitTogether begins a wait that other clients may join.
func (u *uplink) waitTogether(w *waiter, a protocol.Args) {
	u.waits.offer(u.hold(w, protocol.OpHold, a), a)
}

// hold begins a wait at the store. The client's next request must wait until the store has
// confirmed the wait.
func (u *uplink) hold(w *waiter, op byte, a protocol.Args) *storeWait {
	h := &storeWait{number: u.number(), members: map[*waiter]bool{}}
	h.add(w)
	u.waits.add(h)
	w.conn.upstream.asked = true
	u.ask(question{storeWait: h})
	u.link.request(op, binary.LittleEndian.AppendUint32(nil, h.number), a)
	return h
}

func (h *storeWait) add(w *waiter) {
	h.members[w] = true
	w.storeWait = h
}

// confirmed notes that the store has begun a wait, or that there was nothing to wait for.
func (u *uplink) confirmed(h *storeWait, over bool, removals uint64) {
	h.removals, h.known = removals, true
	if over {
		u.ended(h.number, false)
		return
	}
	for w := range h.members {
		w.conn.upstream.markAnswered()
		w.conn.resume()
	}
}

// ended ends a wait. If the proxy has dropped the wait meanwhile, the number is unknown, and ended
// does nothing.
func (u *uplink) ended(number uint32, queued bool) {
	h := u.waits.byNumber[number]
	if h == nil {
		return
	}
	u.waits.close(h)
	if !queued {
		u.waits.remove(h)
	}
	for w := range h.members {
		if !queued {
			w.storeWait = nil
		}
		w.end()
	}
}

// end answers a client whose wait is over.
func (w *waiter) end() {
	c := w.conn
	c.upstream.markAnswered()
	c.loop.drop(c, c.released(w))
	c.resume()
}

// refused disconnects the clients of a wait that the store refused.
func (u *uplink) refused(h *storeWait, why error) {
	u.waits.remove(h)
	for w := range h.members {
		w.storeWait = nil
		u.loop.drop(w.conn, why)
	}
}

// leave removes a client from its wait. taken says that the client has taken the value that ended
// the wait.
func (u *uplink) leave(w *waiter, taken bool) {
	h := w.storeWait
	if h == nil {
		return
	}
	w.storeWait = nil
	delete(h.members, w)
	if h.taken = h.taken || taken; len(h.members) > 0 {
		return
	}
	u.waits.remove(h)
	op := byte(protocol.OpDrop)
	if h.taken {
		op = protocol.OpTaken
	}
	u.link.request(op, binary.LittleEndian.AppendUint32(nil, h.number))
}
