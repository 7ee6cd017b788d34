package tcpstore

import (
	"bytes"
	"container/list"
	"encoding/binary"
	"slices"
)

// reading is what a client wants to know of some keys, all at one moment after it asked. What the proxy has kept is part of the answer
// if the store has said since that it still holds. It goes with other readings in a round, of which one at a time is on the way.
type reading struct {
	client *conn
	keys   args
	n      int
	values []*kept
	// then is called when the store has answered; fresh says that all values held at one moment.
	then func(r *reading, fresh bool)
}

// kept is a value that the proxy has, or will have when a round has landed.
type kept struct {
	key   string
	frame frame
	// stale says that it holds no more, later that it did not come, and absent that there is no such key.
	stale, later, absent bool
	place                *list.Element
}

// flight is a round on its way, with the keys whose values it will bring.
type flight struct {
	readings []*reading
	wanted   []*kept
}

// cache has values that the store promised to tell the changes of. The oldest make room.
type cache struct {
	values map[string]*kept
	order  list.List
	bytes  int
}

const (
	// maxCached bounds a cache, in bytes, and maxCachedValue a value in it.
	maxCached      = 64 << 20
	maxCachedValue = 1 << 20
)

func newCache() cache { return cache{values: map[string]*kept{}} }

func (c *cache) put(k *kept) {
	if len(k.frame) > maxCachedValue {
		return
	}
	if old := c.values[k.key]; old != nil {
		c.remove(old)
	}
	c.values[k.key], k.place = k, c.order.PushBack(k)
	for c.bytes += cost(k.key, k.frame); c.bytes > maxCached; {
		c.remove(c.order.Front().Value.(*kept))
	}
}

// remove makes room: who has the value may go on to use it.
func (c *cache) remove(k *kept) {
	delete(c.values, k.key)
	c.order.Remove(k.place)
	c.bytes -= cost(k.key, k.frame)
}

// drop says that what there is of a key holds no more.
func (c *cache) drop(key string) {
	if k := c.values[key]; k != nil {
		k.stale = true
		c.remove(k)
	}
}

func (c *cache) clear() {
	for _, k := range c.values {
		k.stale = true
	}
	*c = newCache()
}

// get has a client wait for the values of keys.
func (u *uplink) get(c *conn, keys args, n int) error {
	return u.read(&reading{client: c, keys: bytes.Clone(keys), n: n, then: u.give})
}

// read has a reading go with the next round; its client waits.
func (u *uplink) read(r *reading) error {
	r.client.asked = true
	r.client.pending = len(r.keys) + 8*r.n
	u.queue = append(u.queue, r)
	return r.client.book()
}

// round sends the readings that there are, unless a round is on the way.
func (u *uplink) round() {
	if !u.greeted || u.flight != nil || len(u.queue) == 0 {
		return
	}
	f := &flight{}
	wanted := map[string]*kept{}
	sent := 0
	for ; sent < len(u.queue); sent++ {
		r := u.queue[sent]
		if sent > 0 && len(f.wanted)+r.n > maxKeys {
			break
		}
		if u.loop.conns[r.client.fd] == r.client {
			u.board(r, f, wanted)
		}
	}
	if u.queue = u.queue[sent:]; len(u.queue) == 0 {
		u.queue = nil
	}
	u.flight = f
	u.ask(question{round: true})
	u.request(opRound, binary.LittleEndian.AppendUint64(nil, u.version), binary.LittleEndian.AppendUint64(nil, uint64(len(f.wanted))))
	for _, k := range f.wanted {
		u.out = append(binary.LittleEndian.AppendUint64(u.out, uint64(len(k.key))), k.key...)
	}
}

// board has a round bring what a reading wants and the proxy has not kept.
func (u *uplink) board(r *reading, f *flight, wanted map[string]*kept) {
	if r.values == nil {
		r.values = make([]*kept, r.n)
	}
	keys := r.keys
	for i := range r.n {
		key := keys.key()
		if r.values[i] != nil {
			continue
		}
		k := u.cache.values[string(key)]
		if k == nil {
			k = wanted[string(key)]
		}
		if k == nil {
			k = &kept{key: string(key)}
			wanted[k.key] = k
			f.wanted = append(f.wanted, k)
		}
		r.values[i] = k
	}
	f.readings = append(f.readings, r)
}

// landed takes what a round has brought, and goes on with its readings.
func (u *uplink) landed(m *message) {
	u.version, u.removals = uint64(m.int8B()), uint64(m.int8B())
	changed := m.int8B()
	if changed < 0 {
		u.cache.clear()
	}
	for ; changed > 0 && !m.short; changed-- {
		u.cache.drop(string(m.frame().body()))
	}
	f := u.flight
	u.flight = nil
	for _, k := range f.wanted {
		switch m.byte() {
		case foundNothing:
			k.frame, k.absent = missing, true
		case foundValue:
			k.frame = bytes.Clone(m.frame())
			u.cache.put(k)
		case foundFickle:
			k.frame = bytes.Clone(m.frame())
		default:
			k.later = true
		}
	}
	if m.short {
		return
	}
	for _, r := range f.readings {
		if u.loop.conns[r.client.fd] == r.client {
			r.then(r, r.fresh())
		}
	}
}

// exist says that there are such keys.
func (r *reading) exist() bool {
	return !slices.ContainsFunc(r.values, func(k *kept) bool { return k.absent })
}

func (r *reading) fresh() bool {
	for _, k := range r.values {
		if k.stale || k.later {
			return false
		}
	}
	return true
}

// give answers a client with the values, or asks again. A key has that happen only once: what has changed is not kept any more.
func (u *uplink) give(r *reading, fresh bool) {
	c := r.client
	if !fresh {
		u.loop.drop(c, u.again(r))
		return
	}
	c.settle()
	o := &u.loop.out
	for _, k := range r.values {
		o.frame(k.frame)
	}
	size := o.size
	err := c.flush()
	if err == nil && len(c.unsent) > 0 {
		c.lag += size // nothing else has the values, perhaps
		err = c.book()
	}
	u.loop.drop(c, err)
	c.resume()
}

// again asks again. Of a reading that is too much for one round it keeps what has come: only so much is true of one moment.
func (u *uplink) again(r *reading) error {
	part, size := false, 0
	for i, k := range r.values {
		if part = part || k.later; k.later || k.stale {
			r.values[i] = nil
		} else {
			size += len(k.frame)
		}
	}
	if !part {
		r.values, size = nil, 0
	}
	u.queue = append(u.queue, r)
	r.client.pending = len(r.keys) + 8*r.n + size
	return r.client.book()
}
