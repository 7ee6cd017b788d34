package tcpstore

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/golaunch/golaunch/rendezvous/tcpstore/internal/protocol"
)

// table is the content of a store. Keys and queues have separate name spaces. For checks and waits,
// however, a key also exists if a queue with its name is not empty. Methods that may end waits
// return the waiters whose waits are over.
type table struct {
	budget  budget
	values  map[string]*entry
	queues  map[string][]protocol.Frame
	waiting map[string]*waitQueue
	changes changes
	// removals counts the keys that were removed.
	removals uint64
}

// entry is a key's value. shared says that a reply uses the frame, which must then not change.
// Until then, data may be appended to it in place.
type entry struct {
	frame  protocol.Frame
	shared bool
	// cached says that a proxy may have cached the value. volatile says that the value has changed
	// since, so that no proxy may cache it again.
	cached, volatile bool
}

// budget bounds the bytes of a store: what it stores, and requests and replies under way.
type budget struct{ used, limit int64 }

// take takes n bytes from the budget. If that would exceed the limit, it fails and takes nothing.
func (b *budget) take(n int) error {
	if b.used+int64(n) > b.limit && n > 0 {
		return fmt.Errorf("the store is full: it may hold %d bytes", b.limit)
	}
	b.used += int64(n)
	return nil
}

func (b *budget) give(n int) { b.used -= int64(n) }

// perEntry is the overhead of a key or a queued value, in bytes.
const perEntry = 128

func cost(key string, f protocol.Frame) int { return perEntry + len(key) + len(f) }

func newTable(limit int64) *table {
	return &table{
		budget: budget{limit: limit}, changes: changes{most: maxChanges},
		values: map[string]*entry{}, queues: map[string][]protocol.Frame{}, waiting: map[string]*waitQueue{},
	}
}

// put stores a frame. The caller must end the waits for the key.
func (t *table) put(key string, f protocol.Frame) error {
	e := t.values[key]
	if e == nil {
		if err := t.budget.take(cost(key, f)); err != nil {
			return err
		}
		t.values[key] = &entry{frame: f}
		return nil
	}
	if err := t.budget.take(len(f) - len(e.frame)); err != nil {
		return err
	}
	t.change(key, e)
	e.frame, e.shared = f, false
	return nil
}

// change notes that the value of a key is about to change. If proxies may have cached the value,
// they must learn this.
func (t *table) change(key string, e *entry) {
	if e.cached {
		e.cached, e.volatile = false, true
		t.changes.add(key)
	}
}

func (t *table) set(key string, f protocol.Frame) ([]*waiter, error) {
	if err := t.put(key, f); err != nil {
		return nil, err
	}
	return t.keySet(key), nil
}

// get returns an empty value for a key that does not exist, as torch's libuv server does.
func (t *table) get(key []byte) protocol.Frame {
	e := t.values[string(key)]
	if e == nil {
		return protocol.Missing
	}
	e.shared = true
	return e.frame
}

// compareSet stores desired if the key has the expected value. It also stores desired if the key
// does not exist and expected is empty. It returns the value that the key then has. If the key
// still does not exist, it returns the expected value, as torch does.
func (t *table) compareSet(key string, expected, desired protocol.Frame) (protocol.Frame, []*waiter, error) {
	e := t.values[key]
	switch {
	case e == nil && len(expected.Body()) > 0:
		return expected, nil, nil
	case e != nil && !bytes.Equal(e.frame, expected):
		e.shared = true
		return e.frame, nil, nil
	}
	released, err := t.set(key, desired)
	if err == nil {
		t.values[key].shared = true
	}
	return desired, released, err
}

// count adds to a counter. The caller must end the waits for the key. The store keeps the counter
// as decimal digits. A new key counts from 0.
func (t *table) count(key string, delta int64) (int64, error) {
	n := delta
	if e := t.values[key]; e != nil {
		have, err := strconv.ParseInt(string(e.frame.Body()), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("it adds to %q, whose value is not a number", visible(key))
		}
		n += have
	}
	return n, t.put(key, protocol.FrameOf(strconv.FormatInt(n, 10)))
}

func (t *table) add(key string, delta int64) (int64, []*waiter, error) {
	n, err := t.count(key, delta)
	if err != nil {
		return 0, nil, err
	}
	return n, t.keySet(key), nil
}

func (t *table) append(key string, f protocol.Frame) ([]*waiter, error) {
	e := t.values[key]
	if e == nil {
		return t.set(key, f)
	}
	if err := t.budget.take(len(f.Body())); err != nil {
		return nil, err
	}
	t.change(key, e)
	if e.shared {
		e.frame, e.shared = append(make(protocol.Frame, 0, len(e.frame)+len(f)), e.frame...), false
	}
	e.frame = append(e.frame, f.Body()...).WithLength()
	return nil, nil
}

func (t *table) remove(key string) bool {
	e := t.values[key]
	if e == nil {
		return false
	}
	t.change(key, e)
	t.removals++
	t.budget.give(cost(key, e.frame))
	delete(t.values, key)
	return true
}

func (t *table) push(queue string, f protocol.Frame) ([]*waiter, error) {
	if err := t.budget.take(cost(queue, f)); err != nil {
		return nil, err
	}
	t.queues[queue] = append(t.queues[queue], f)
	return t.queuePushed(queue), nil
}

// pop removes the first value of a queue, and returns how many values there were.
func (t *table) pop(queue string) (protocol.Frame, int) {
	q := t.queues[queue]
	if len(q) == 0 {
		return nil, 0
	}
	f := q[0]
	q[0] = nil
	if t.queues[queue] = q[1:]; len(q) == 1 {
		delete(t.queues, queue)
		t.removals++
	}
	t.budget.give(cost(queue, f))
	return f, len(q)
}

// changes are the keys whose cached values proxies must not use any more, the newest last. A key
// whose value has changed is never cached again. So a key occurs only once, except if it is deleted
// and created again.
type changes struct {
	// version counts the changes. A proxy sends the version up to which it knows the changes.
	version uint64
	keys    []string
	bytes   int
	// most is how many changes a store remembers.
	most int
}

const (
	// maxChanges and maxChangedBytes bound the changes that a store remembers, and so the changes
	// that it reports in a round. A proxy that has missed more changes drops its cache.
	maxChanges      = 256
	maxChangedBytes = 16 << 10
)

func (c *changes) add(key string) {
	c.version++
	c.keys = append(c.keys, key)
	for c.bytes += len(key); len(c.keys) > c.most || c.bytes > maxChangedBytes; c.keys = c.keys[1:] {
		c.bytes -= len(c.keys[0])
	}
}

// since returns the keys that have changed since a version. all is true if these keys are not
// remembered any more.
func (c *changes) since(version uint64) (keys []string, all bool) {
	n := c.version - version
	if n > uint64(len(c.keys)) {
		return nil, true
	}
	return c.keys[uint64(len(c.keys))-n:], false
}
