package tcpstore

import (
	"bytes"
	"container/list"
	"encoding/binary"
	"slices"

	"github.com/golaunch/golaunch/rendezvous/tcpstore/internal/protocol"
)

// keyRead is a client's question about some keys. The answer must hold at one moment after the
// question. The proxy may answer with cached values if the store has confirmed them since the
// question. A round asks the store for the reads of several clients together. Only one round is
// under way at a time.
type keyRead struct {
	client *conn
	keys   protocol.Args
	n      int
	values []*cachedValue
	// then is called when the store has answered. fresh says that all values held at one moment.
	then func(r *keyRead, fresh bool)
}

// cachedValue is a value that the proxy has cached, or gets from the round under way.
type cachedValue struct {
	key   string
	frame protocol.Frame
	// stale says that the value has changed since. later says that the round had no room for the
	// value. absent says that the key does not exist.
	stale, later, absent bool
	place                *list.Element
}

// readRound is a round under way, with the keys whose values the round fetches.
type readRound struct {
	readings []*keyRead
	wanted   []*cachedValue
}

// reads are the clients' reads, and what the proxy knows without asking the store.
type reads struct {
	cache cache
	// queue has the reads for the next round. underWay is the round under way, or nil.
	queue    []*keyRead
	underWay *readRound
	// version and removals are the store's numbers as of the last round, see [changes] and [table].
	version, removals uint64
}

// add adds a read to the next round.
func (s *reads) add(r *keyRead) { s.queue = append(s.queue, r) }

// take removes the reads from the queue that fit into a round, and makes them the round under way.
// It drops reads of clients for which isGone returns true.
func (s *reads) take(isGone func(*conn) bool) *readRound {
	f := &readRound{}
	wanted := map[string]*cachedValue{}
	taken := 0
	for ; taken < len(s.queue); taken++ {
		r := s.queue[taken]
		if taken > 0 && len(f.wanted)+r.n > protocol.MaxKeys {
			break
		}
		if !isGone(r.client) {
			s.addToRound(r, f, wanted)
		}
	}
	if s.queue = s.queue[taken:]; len(s.queue) == 0 {
		s.queue = nil
	}
	s.underWay = f
	return f
}

// addToRound adds a read to a round. The round fetches the keys of the read that are not cached.
func (s *reads) addToRound(r *keyRead, f *readRound, wanted map[string]*cachedValue) {
	if r.values == nil {
		r.values = make([]*cachedValue, r.n)
	}
	keys := r.keys
	for i := range r.n {
		key := keys.Key()
		if r.values[i] != nil {
			continue
		}
		k := s.cache.values[string(key)]
		if k == nil {
			k = wanted[string(key)]
		}
		if k == nil {
			k = &cachedValue{key: string(key)}
			wanted[k.key] = k
			f.wanted = append(f.wanted, k)
		}
		r.values[i] = k
	}
	f.readings = append(f.readings, r)
}

// finish ends the round under way with the store's answer.
func (s *reads) finish(m *message) *readRound {
	s.version, s.removals = uint64(m.int8B()), uint64(m.int8B())
	changed := m.int8B()
	if changed < 0 {
		s.cache.clear()
	}
	for ; changed > 0 && !m.short; changed-- {
		s.cache.drop(string(m.frame().Body()))
	}
	f := s.underWay
	s.underWay = nil
	for _, k := range f.wanted {
		switch m.byte() {
		case protocol.FoundNothing:
			k.frame, k.absent = protocol.Missing, true
		case protocol.FoundValue:
			k.frame = bytes.Clone(m.frame())
			s.cache.put(k)
		case protocol.FoundVolatile:
			k.frame = bytes.Clone(m.frame())
		default:
			k.later = true
		}
	}
	return f
}

// hasAll reports whether all of some keys are cached.
func (s *reads) hasAll(keys protocol.Args, n int) bool {
	for range n {
		if s.cache.values[string(keys.Key())] == nil {
			return false
		}
	}
	return true
}

// cache has the values whose changes the store has promised to report. If the cache is full, it
// evicts the oldest values.
type cache struct {
	values map[string]*cachedValue
	order  list.List
	bytes  int
}

const (
	// maxCached bounds a cache, and maxCachedValue bounds a value in the cache, in bytes.
	maxCached      = 64 << 20
	maxCachedValue = 1 << 20
)

func newCache() cache { return cache{values: map[string]*cachedValue{}} }

func (c *cache) put(k *cachedValue) {
	if len(k.frame) > maxCachedValue {
		return
	}
	if old := c.values[k.key]; old != nil {
		c.remove(old)
	}
	c.values[k.key], k.place = k, c.order.PushBack(k)
	for c.bytes += cost(k.key, k.frame); c.bytes > maxCached; {
		c.remove(c.order.Front().Value.(*cachedValue))
	}
}

// remove evicts a value. Reads that already refer to the value may still use it.
func (c *cache) remove(k *cachedValue) {
	delete(c.values, k.key)
	c.order.Remove(k.place)
	c.bytes -= cost(k.key, k.frame)
}

// drop marks the value of a key as changed, and evicts it.
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

// get makes a client wait for the values of some keys.
func (u *uplink) get(c *conn, keys protocol.Args, n int) error {
	return u.read(&keyRead{client: c, keys: bytes.Clone(keys), n: n, then: u.answerRead})
}

// read adds a read to the next round. The client's next request waits for its answer.
func (u *uplink) read(r *keyRead) error {
	r.client.upstream.asked = true
	r.client.upstream.pending = len(r.keys) + 8*r.n
	u.reads.add(r)
	return r.client.book()
}

// round sends the queued reads if no round is under way.
func (u *uplink) round() {
	if !u.link.greeted || u.reads.underWay != nil || len(u.reads.queue) == 0 {
		return
	}
	f := u.reads.take(u.loop.isGone)
	u.ask(question{round: true})
	u.link.request(protocol.OpRound, binary.LittleEndian.AppendUint64(nil, u.reads.version), binary.LittleEndian.AppendUint64(nil, uint64(len(f.wanted))))
	for _, k := range f.wanted {
		u.link.out = append(binary.LittleEndian.AppendUint64(u.link.out, uint64(len(k.key))), k.key...)
	}
}

// finishRound stores the values that a round has fetched, and continues with the reads of the
// round.
func (u *uplink) finishRound(m *message) {
	f := u.reads.finish(m)
	if m.short {
		return
	}
	for _, r := range f.readings {
		if !u.loop.isGone(r.client) {
			r.then(r, r.fresh())
		}
	}
}

// exist reports whether all keys exist.
func (r *keyRead) exist() bool {
	return !slices.ContainsFunc(r.values, func(k *cachedValue) bool { return k.absent })
}

func (r *keyRead) fresh() bool {
	for _, k := range r.values {
		if k.stale || k.later {
			return false
		}
	}
	return true
}

// answerRead answers a client with the values, or reads them again if they are not fresh. A change
// of a key causes only one repetition, because a value that has changed is not cached any more.
func (u *uplink) answerRead(r *keyRead, fresh bool) {
	c := r.client
	if !fresh {
		u.loop.drop(c, u.readAgain(r))
		return
	}
	c.upstream.markAnswered()
	o := &u.loop.out
	for _, k := range r.values {
		o.frame(k.frame)
	}
	size := o.size
	err := c.flush()
	if err == nil && len(c.reply.unsent) > 0 {
		c.reply.lag += size // these values may be in no other memory
		err = c.book()
	}
	u.loop.drop(c, err)
	c.resume()
}

// readAgain repeats a read. If the read is too long for one round, readAgain keeps the values that
// have arrived. Such a read may return values that never held at one moment.
func (u *uplink) readAgain(r *keyRead) error {
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
	u.reads.add(r)
	r.client.upstream.pending = len(r.keys) + 8*r.n + size
	return r.client.book()
}
