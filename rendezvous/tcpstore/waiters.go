package tcpstore

import "time"

// waiter is a client that waits for keys. It has a slot for each key that was missing when the wait
// began.
type waiter struct {
	conn    *conn
	since   time.Time
	missing int
	slots   []slot
	// number is a proxy's number for the wait. queued says that a push to a queue ended the wait.
	// If the client then does not take the value, another waiter may get it.
	number uint32
	queued bool
	// storeWait is the wait at the store if conn is a client of a proxy; otherwise nil.
	storeWait *storeWait
}

// slot is the place of a waiter among the waiters for one key. queue becomes nil once the key has
// existed.
type slot struct {
	w     *waiter
	key   string
	queue *waitQueue
	// next and last are the neighbours in the queue.
	next, last *slot
}

// waitQueue has the waiters for a key, in the order of their arrival.
type waitQueue struct {
	key         string
	first, last *slot
}

func (l *waitQueue) append(s *slot) {
	s.queue, s.next, s.last = l, nil, l.last
	if l.last == nil {
		l.first = s
	} else {
		l.last.next = s
	}
	l.last = s
}

func (l *waitQueue) remove(s *slot) {
	if s.last == nil {
		l.first = s.next
	} else {
		s.last.next = s.next
	}
	if s.next == nil {
		l.last = s.last
	} else {
		s.next.last = s.last
	}
	s.queue, s.next, s.last = nil, nil, nil
}

// perSlot is the overhead of waiting for a key, in bytes.
const perSlot = 256

func (w *waiter) cost() int {
	n := 0
	for i := range w.slots {
		n += perSlot + len(w.slots[i].key)
	}
	return n
}

// exists reports whether a key has a value, or a queue has a value to pop.
func (t *table) exists(key []byte) bool {
	return t.values[string(key)] != nil || len(t.queues) > 0 && len(t.queues[string(key)]) > 0
}

// enter queues a waiter at its slots.
func (t *table) enter(w *waiter) error {
	if err := t.budget.take(w.cost()); err != nil {
		return err
	}
	w.missing = len(w.slots)
	for i := range w.slots {
		s := &w.slots[i]
		l := s.queue
		if l == nil {
			l = t.waiting[s.key]
		}
		if l == nil {
			l = &waitQueue{key: s.key}
			t.waiting[s.key] = l
		}
		l.append(s)
	}
	return nil
}

// leave removes a waiter from its slots. If a queue ended its wait, another waiter may now get the
// value. leave returns the waiters whose waits are over.
func (t *table) leave(w *waiter) (released []*waiter) {
	t.budget.give(w.cost())
	for i := range w.slots {
		s := &w.slots[i]
		if s.queue != nil {
			t.vacate(s)
		} else if len(t.queues[s.key]) > 0 {
			released = append(released, t.queuePushed(s.key)...)
		}
	}
	return released
}

func (t *table) vacate(s *slot) {
	l := s.queue
	if l.remove(s); l.first == nil {
		delete(t.waiting, s.key)
	}
}

// keySet returns the waiters for which this was the last missing key.
func (t *table) keySet(key string) (released []*waiter) {
	l := t.waiting[key]
	if l == nil {
		return nil
	}
	delete(t.waiting, key)
	for s := l.first; s != nil; {
		next := s.next
		s.queue, s.next, s.last = nil, nil, nil
		if s.w.missing--; s.w.missing == 0 {
			released = append(released, s.w)
		}
		s = next
	}
	return released
}

// queuePushed removes the waiters of a queue in order, up to the first waiter that has no other
// missing key. It returns this waiter.
func (t *table) queuePushed(queue string) []*waiter {
	for t.waiting[queue] != nil {
		s := t.waiting[queue].first
		t.vacate(s)
		s.w.queued = true
		if s.w.missing--; s.w.missing == 0 {
			return []*waiter{s.w}
		}
	}
	return nil
}
