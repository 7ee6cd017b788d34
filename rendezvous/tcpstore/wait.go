package tcpstore

import "time"

// waiter is a client that waits for keys. It has a spot for each that was missing when it came.
type waiter struct {
	conn    *conn
	since   time.Time
	missing int
	spots   []spot
	// number is a proxy's for the wait, and queued says that a queue has given it something that another may need if nobody takes it.
	number uint32
	queued bool
	// hold is what stands for it at the store, where conn is a client of a proxy; nil if nothing does.
	hold *hold
}

// spot is the place of a waiter among those that wait for a key; line is nil once the key was there.
type spot struct {
	w    *waiter
	key  string
	line *line
	// next and last are the neighbours in line.
	next, last *spot
}

// line is of the waiters that wait for a key, in the order in which they came.
type line struct {
	key         string
	first, last *spot
}

func (l *line) append(s *spot) {
	s.line, s.next, s.last = l, nil, l.last
	if l.last == nil {
		l.first = s
	} else {
		l.last.next = s
	}
	l.last = s
}

func (l *line) remove(s *spot) {
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
	s.line, s.next, s.last = nil, nil, nil
}

// perSpot is what it costs in bytes to wait for one key, beside the key's own.
const perSpot = 256

func (w *waiter) cost() int {
	n := 0
	for i := range w.spots {
		n += perSpot + len(w.spots[i].key)
	}
	return n
}

// exists says that a key has a value or a queue one to pop.
func (t *table) exists(key []byte) bool {
	return t.values[string(key)] != nil || len(t.queues) > 0 && len(t.queues[string(key)]) > 0
}

// enter gives a waiter its places. One without spots has nothing to wait for.
func (t *table) enter(w *waiter) error {
	if err := t.budget.take(w.cost()); err != nil {
		return err
	}
	w.missing = len(w.spots)
	for i := range w.spots {
		s := &w.spots[i]
		l := s.line
		if l == nil {
			l = t.waiting[s.key]
		}
		if l == nil {
			l = &line{key: s.key}
			t.waiting[s.key] = l
		}
		l.append(s)
	}
	return nil
}

// leave takes the places of a waiter away. Others may now have what was pushed for it.
func (t *table) leave(w *waiter) (released []*waiter) {
	t.budget.give(w.cost())
	for i := range w.spots {
		s := &w.spots[i]
		if s.line != nil {
			t.vacate(s)
		} else if len(t.queues[s.key]) > 0 {
			released = append(released, t.pushed(s.key)...)
		}
	}
	return released
}

func (t *table) vacate(s *spot) {
	l := s.line
	if l.remove(s); l.first == nil {
		delete(t.waiting, s.key)
	}
}

// arrived returns those for whom a key was the last that they waited for.
func (t *table) arrived(key string) (released []*waiter) {
	l := t.waiting[key]
	if l == nil {
		return nil
	}
	delete(t.waiting, key)
	for s := l.first; s != nil; {
		next := s.next
		s.line, s.next, s.last = nil, nil, nil
		if s.w.missing--; s.w.missing == 0 {
			released = append(released, s.w)
		}
		s = next
	}
	return released
}

// pushed serves those that wait for a queue in their order, up to the first for whom it was the last thing they waited for.
func (t *table) pushed(queue string) []*waiter {
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
