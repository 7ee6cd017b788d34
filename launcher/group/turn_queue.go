package group

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
)

// turns has the turns on the GPUs of a reservation. A goroutine that needs both locks must take mu
// before the mu of a group.
type turns struct {
	mu      sync.Mutex
	changed chan struct{} // closed at each change
	groups  []*Group
	queue   []*waiter // in the order in which they take their turns
}

func newTurns() *turns { return &turns{changed: make(chan struct{})} }

// activeTurn is a turn that has begun or is beginning. All concurrent blocks of a group share it.
type activeTurn struct {
	blocks int
	begun  bool
}

// block is a function that runs in a turn, perhaps within another block.
type block struct {
	group *Group
	turn  *activeTurn
	outer *block
}

// blockKey is the key of the innermost block in a context.
type blockKey struct{}

// waiter is a caller that waits for a turn of group. The caller runs inside blocks of the groups in
// inside.
type waiter struct {
	group  *Group
	inside []*Group
}

// change changes the state, and wakes the waiters.
func (t *turns) change(do func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	do()
	t.tell()
}

// tell wakes the waiters. The caller holds mu.
func (t *turns) tell() {
	close(t.changed)
	t.changed = make(chan struct{})
}

func (t *turns) leave(b *block) {
	t.change(func() {
		if b.turn.blocks--; b.turn.blocks == 0 && b.group.turn == b.turn {
			b.group.turn = nil
		}
	})
}

// wait returns when the group has its turn. It reports whether the caller is the first in that
// turn.
func (t *turns) wait(ctx context.Context, g *Group, outer *block) (*block, bool, error) {
	w := &waiter{group: g}
	defer t.change(func() {}) // whoever waits behind this caller may be next
	t.mu.Lock()
	for b := outer; b != nil; b = b.outer {
		if b.group.turn == b.turn {
			w.inside = append(w.inside, b.group)
		}
	}
	t.queue = append(t.queue, w)
	t.tell()
	for {
		taken, first, err := t.claim(w)
		if taken == nil && err == nil && ctx.Err() != nil {
			err = fmt.Errorf("%s did not get its turn: %w: %s", g.ID, context.Cause(ctx), t.whyWaits(w))
		}
		if taken != nil || err != nil {
			t.queue = slices.DeleteFunc(t.queue, func(other *waiter) bool { return other == w })
		}
		changed := t.changed
		t.mu.Unlock()
		switch {
		case err != nil:
			return nil, false, err
		case taken != nil:
			return &block{g, taken, outer}, first, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
		t.mu.Lock()
	}
}

// claim takes the turn if w need not wait any more. It fails if the group of w has ended, or if w
// would wait forever.
func (t *turns) claim(w *waiter) (taken *activeTurn, first bool, err error) {
	g := w.group
	if over := g.ended(); over != nil {
		return nil, false, fmt.Errorf("%s did not get its turn: %w", g.ID, over)
	}
	if g.turn != nil {
		if !g.turn.begun {
			return nil, false, nil
		}
		g.turn.blocks++
		return g.turn, false, nil
	}
	if held := t.deadlock(w, w.inside, t.queue[:slices.Index(t.queue, w)], nil); held != nil {
		if overlap(held, g) {
			return nil, false, fmt.Errorf("%s cannot have its turn within that of %s, which has the same GPUs: end that one before this one begins", g.ID, held.ID)
		}
		return nil, false, fmt.Errorf("%s cannot have its turn within that of %s: %s, where another caller waits for the end of %s's; "+
			"end one turn before the other begins", g.ID, held.ID, t.whyWaits(w), held.ID)
	}
	if t.waits(w) {
		return nil, false, nil
	}
	g.turn = &activeTurn{blocks: 1}
	return g.turn, true, nil
}

// ahead yields the groups that w waits for: groups in their turn, with a nil waiter, and groups of
// earlier waiters.
func (t *turns) ahead(w *waiter) iter.Seq2[*Group, *waiter] {
	return func(yield func(*Group, *waiter) bool) {
		for _, other := range t.groups {
			if other != w.group && other.turn != nil && mayOverlap(other, w.group) && !yield(other, nil) {
				return
			}
		}
		for _, earlier := range t.queue {
			if earlier == w {
				return
			}
			held := func(g *Group) bool { return mayOverlap(g, earlier.group) } // then earlier must wait for the end of a block that w is in
			if earlier.group != w.group && mayOverlap(earlier.group, w.group) && !slices.ContainsFunc(w.inside, held) && !yield(earlier.group, earlier) {
				return
			}
		}
	}
}

// waits reports whether w must still wait for its turn, and whyWaits says why.
func (t *turns) waits(w *waiter) bool {
	for range t.ahead(w) {
		return true
	}
	return w.group.turn != nil
}

func (t *turns) whyWaits(w *waiter) string {
	if w.group.turn != nil {
		return "its workers are loading"
	}
	for other, earlier := range t.ahead(w) {
		if earlier != nil {
			return other.ID + " waits for longer"
		}
		return "it is the turn of " + other.ID
	}
	return ""
}

// deadlock returns a group in held whose turn must end before w can have its own turn, directly or
// through other waiters; nil if there is none. It ignores groups whose workers may be on any GPU.
// Of the other waiters, it considers only those in before, which came earlier. If callers wait for
// each other, only the last of them therefore fails.
func (t *turns) deadlock(w *waiter, held []*Group, before []*waiter, seen map[*waiter]bool) *Group {
	if len(held) == 0 || seen[w] {
		return nil
	}
	if seen == nil {
		seen = map[*waiter]bool{}
	}
	seen[w] = true
	for other, earlier := range t.ahead(w) {
		switch {
		case !overlap(other, w.group):
			continue
		case earlier == nil && slices.Contains(held, other):
			return other
		}
		for _, next := range before {
			if earlier == next || earlier == nil && slices.Contains(next.inside, other) {
				if g := t.deadlock(next, held, before, seen); g != nil {
					return g
				}
			}
		}
	}
	return nil
}

// place is a GPU, or for a worker without a GPU its local rank on a node.
type place struct {
	node, gpu string
	local     int
}

// places returns where the workers are, or were before they restarted. known reports whether it is
// sure of all of them.
func (g *Group) places() (at map[place]bool, known bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at, known = map[place]bool{}, true
	for _, w := range g.workers {
		known = known && (w.link != nil || w.exited != nil)
		switch {
		case w.attempt < 0, w.exited != nil:
		case w.gpu != "":
			at[place{w.node, w.gpu, 0}] = true
		default:
			at[place{w.node, "", w.local}] = true
		}
	}
	return at, known
}

// overlap reports whether two groups have workers in the same place, as far as the places are
// known.
func overlap(a, b *Group) bool {
	at, _ := a.places()
	others, _ := b.places()
	for place := range at {
		if others[place] {
			return true
		}
	}
	return false
}

// mayOverlap reports whether two groups may share a place: starting workers may get any GPU.
func mayOverlap(a, b *Group) bool {
	_, known := a.places()
	_, others := b.places()
	return !known || !others || overlap(a, b)
}
