package group

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/golaunch/golaunch/launcher"
)

const (
	// offload and onload are the handlers that a turn calls, of the workers that have them.
	offload = "offload"
	onload  = "onload"
	// othersKeep is a Group's OthersKeep when that is 0.
	othersKeep = 4_000_000_000
	// freedWithin is how long memory may take to become free once groups have offloaded.
	freedWithin = 30 * time.Second
)

// Active calls do in a turn of the group on its GPUs, which other groups of the reservation may
// have too ([Client.Reserve], colocated). It waits until no other group with one of its GPUs has
// its turn, in the order in which they came; has the others offload, looks by NVML whether they
// have freed their memory, for 30 s at most, and if not returns a [*GPUMemoryError]; and has this
// group's workers onload. The turn ends when do returns, and with it the context that do gets; the
// group keeps the memory until another one's turn begins. Within bounds all that comes before do; 0
// leaves that to ctx.
//
// Goroutines that call Active of a group in its turn share the turn. Who calls Active in a turn
// says so by the context that do gets: within a turn of the same group it is a part of that turn,
// and of a group that cannot have its turn before this one has ended it is an error at once. With
// another context it waits for that end.
//
// What is called is the handlers "offload" and "onload" of [rankenv.Info.Serve], with no input.
// Workers that have none are not called, and what is called must bear being called twice. A group
// whose workers start again counts as one that has loaded.
func (g *Group) Active(ctx context.Context, within time.Duration, do func(ctx context.Context) error) error {
	b, err := g.enter(ctx, within)
	if err != nil {
		return err
	}
	defer g.turns.leave(b)
	ctx, cancel := context.WithCancel(context.WithValue(ctx, blockKey{}, b))
	defer cancel()
	return do(ctx)
}

// enter waits for the turn, and begins it where that is to be done.
func (g *Group) enter(ctx context.Context, within time.Duration) (*block, error) {
	outer, _ := ctx.Value(blockKey{}).(*block)
	if within > 0 {
		limited, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		ctx = limited
	}
	if _, err := g.present(ctx); err != nil { // before they are there, nobody knows where they are
		return nil, fmt.Errorf("%s did not get its turn: %w", g.ID, err)
	}
	b, first, err := g.turns.wait(ctx, g, outer)
	if err != nil || !first {
		return b, err
	}
	if err := g.begin(ctx); err != nil {
		g.turns.leave(b)
		return nil, err
	}
	g.turns.change(func() { b.turn.begun = true })
	return b, nil
}

// turns is whose turn it is on the GPUs of a reservation. Its lock is taken before that of a group.
type turns struct {
	mu      sync.Mutex
	changed chan struct{} // closed when somebody who waits may have come first
	groups  []*Group
	queue   []*want // who waits, in order
}

func newTurns() *turns { return &turns{changed: make(chan struct{})} }

// activeTurn is the time in which a group has the memory of its GPUs: that of all blocks which it
// has at once.
type activeTurn struct {
	blocks int
	begun  bool
}

// block is a function that runs in a turn, perhaps within another one.
type block struct {
	group *Group
	turn  *activeTurn
	outer *block
}

type blockKey struct{}

// want is somebody who waits for a group's turn, in blocks of the groups in within.
type want struct {
	group  *Group
	within []*Group
}

// change does something to the state, and wakes who waits for that.
func (t *turns) change(do func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	do()
	t.tell()
}

// tell has those who wait look again.
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

// wait returns when the group has its turn, and whether the caller is the first in it, who begins
// it.
func (t *turns) wait(ctx context.Context, g *Group, outer *block) (*block, bool, error) {
	w := &want{group: g}
	defer t.change(func() {}) // who came later may be the next
	t.mu.Lock()
	for b := outer; b != nil; b = b.outer {
		if b.group.turn == b.turn {
			w.within = append(w.within, b.group)
		}
	}
	t.queue = append(t.queue, w)
	t.tell()
	for {
		taken, first, err := t.claim(w)
		if taken == nil && err == nil && ctx.Err() != nil {
			err = fmt.Errorf("%s did not get its turn: %w: %s", g.ID, context.Cause(ctx), t.before(w))
		}
		if taken != nil || err != nil {
			t.queue = slices.DeleteFunc(t.queue, func(other *want) bool { return other == w })
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

// claim takes the turn if it can be had, and fails where it never can.
func (t *turns) claim(w *want) (taken *activeTurn, first bool, err error) {
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
	if held := t.stuck(w, w.within, t.queue[:slices.Index(t.queue, w)], nil); held != nil {
		if overlap(held, g) {
			return nil, false, fmt.Errorf("%s cannot have its turn within that of %s, which has the same GPUs: end that one before this one begins", g.ID, held.ID)
		}
		return nil, false, fmt.Errorf("%s cannot have its turn within that of %s: %s, which others wait with for that of %s to end; end one turn before the other begins",
			g.ID, held.ID, t.before(w), held.ID)
	}
	if t.before(w) != "" {
		return nil, false, nil
	}
	g.turn = &activeTurn{blocks: 1}
	return g.turn, true, nil
}

// ahead are those whom a want waits for: groups that have their turn, and wants that came earlier.
func (t *turns) ahead(w *want) iter.Seq2[*Group, *want] {
	return func(yield func(*Group, *want) bool) {
		for _, other := range t.groups {
			if other != w.group && other.turn != nil && share(other, w.group) && !yield(other, nil) {
				return
			}
		}
		for _, earlier := range t.queue {
			if earlier == w {
				return
			}
			held := func(g *Group) bool { return share(g, earlier.group) } // it cannot come before this want's own block has ended
			if earlier.group != w.group && share(earlier.group, w.group) && !slices.ContainsFunc(w.within, held) && !yield(earlier.group, earlier) {
				return
			}
		}
	}
}

// before says why a want waits; empty when it need not.
func (t *turns) before(w *want) string {
	if w.group.turn != nil {
		return "its workers are told to load"
	}
	for other, earlier := range t.ahead(w) {
		if earlier != nil {
			return other.ID + " waits for longer"
		}
		return "it is the turn of " + other.ID
	}
	return ""
}

// stuck returns the group among those given that would have to end its turn before the want comes
// true, directly or by what others wait for, if there is one. Where a group's workers are not known
// to be, it may be so for other reasons, and nothing is said. Only wants that came before count, so
// that of callers which wait for each other the last one is told.
func (t *turns) stuck(w *want, within []*Group, before []*want, seen map[*want]bool) *Group {
	if len(within) == 0 || seen[w] {
		return nil
	}
	if seen == nil {
		seen = map[*want]bool{}
	}
	seen[w] = true
	for other, earlier := range t.ahead(w) {
		switch {
		case !overlap(other, w.group):
			continue
		case earlier == nil && slices.Contains(within, other):
			return other
		}
		for _, next := range before {
			if earlier == next || earlier == nil && slices.Contains(next.within, other) {
				if held := t.stuck(next, within, before, seen); held != nil {
					return held
				}
			}
		}
	}
	return nil
}

// What a turn begins with

// begin has the others free the GPUs, and the group take them.
func (g *Group) begin(ctx context.Context) error {
	var others []*Group
	sharing := 0
	g.turns.mu.Lock()
	for _, other := range g.turns.groups {
		if other == g || !share(other, g) {
			continue
		}
		sharing++
		if !other.told(offload) {
			others = append(others, other)
		}
	}
	g.turns.mu.Unlock()
	for _, other := range others {
		if err := other.offload(ctx); err != nil {
			return fmt.Errorf("%s did not get its turn: %w", g.ID, err)
		}
	}
	if err := g.freed(ctx, sharing); err != nil {
		return err
	}
	if g.told(onload) {
		return nil
	}
	g.tell("", nil)
	now, err := g.order(ctx, onload)
	if err != nil {
		return fmt.Errorf("%s did not get its turn: %w", g.ID, err)
	}
	g.tell(onload, now)
	return nil
}

// offload has the group free the GPUs. One that has ended has no memory any more; when workers die
// of it, those that come after them are told too.
func (g *Group) offload(ctx context.Context) error {
	for last := false; ; last = true {
		g.tell("", nil)
		now, err := g.order(ctx, offload)
		if g.ended() != nil {
			return nil //nolint:nilerr // who has ended has no memory
		}
		if err == nil {
			g.tell(offload, now)
			return nil
		}
		if failed, ok := errors.AsType[*WorkerError](err); last || !ok || !failed.gone {
			return err
		}
	}
}

// order calls a handler of all workers, if one of them has it, and returns which workers these
// were. It waits for all, so that one that fails does not keep others from what they do. Who has
// left has no memory.
func (g *Group) order(ctx context.Context, method string) (attempts []int, err error) {
	methods, err := g.present(ctx)
	if err == nil {
		attempts = g.attempts()
		if !slices.Contains(methods, method) {
			return attempts, nil
		}
		for a := range g.CallEach(ctx, method, make([][]byte, g.size)) {
			if err == nil && !g.hasLeft(a.Rank) {
				err = a.Err
			}
		}
	}
	switch {
	case err == nil:
		return attempts, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s has not answered %s: %w", g.ID, method, err)
	}
	return nil, fmt.Errorf("%s of %s: %w", method, g.ID, err)
}

// freed waits until no other process has memory of the group's GPUs, as far as NVML tells. Sharing
// is how many other groups may have some.
func (g *Group) freed(ctx context.Context, sharing int) error {
	q := MemoryQuery{Job: g.ID, GPUs: map[string][]string{}, Keep: g.OthersKeep, Within: freedWithin}
	if q.Keep == 0 {
		q.Keep = othersKeep
	}
	if g.told(offload) { // else it may have memory itself
		q.Whole = q.Keep * int64(max(1, sharing))
	}
	g.mu.Lock()
	for _, w := range g.workers {
		if w.gpu != "" {
			q.GPUs[w.node] = append(q.GPUs[w.node], w.gpu)
		}
	}
	g.mu.Unlock()
	if len(q.GPUs) == 0 {
		return nil
	}
	if end, limited := ctx.Deadline(); limited {
		q.Within = max(0, min(q.Within, time.Until(end)))
	}
	return Freed(ctx, g.client, q)
}

// What is known of a group

// present waits until all workers are there but for those that have left, and returns the handlers
// of turns that they have.
func (g *Group) present(ctx context.Context) ([]string, error) {
	var methods []string
	for rank := range g.size {
		l, err := g.ready(ctx, rank)
		if err != nil && g.hasLeft(rank) {
			continue
		}
		if err != nil {
			return nil, err
		}
		methods = append(methods, l.methods...)
	}
	return methods, nil
}

// attempts say which the workers are: after a restart they are others, which nobody has told
// anything.
func (g *Group) attempts() []int {
	g.mu.Lock()
	defer g.mu.Unlock()
	attempts := make([]int, len(g.workers))
	for rank, w := range g.workers {
		attempts[rank] = w.attempt
	}
	return attempts
}

// tell notes what workers were told last.
func (g *Group) tell(word string, attempts []int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.word, g.heard = word, attempts
}

// told says whether a word is the last that the present workers were told.
func (g *Group) told(word string) bool {
	now := g.attempts()
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.word == word && slices.Equal(g.heard, now)
}

// ended says why the group has ended, if it has.
func (g *Group) ended() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return whyOver(g.over)
}

func whyOver(over *launcher.Result) error {
	if over == nil {
		return nil
	}
	return fmt.Errorf("the group has ended: %s", over.Reason)
}

// bundle is a GPU, or without GPUs a worker's place on its node.
type bundle struct {
	node, gpu string
	local     int
}

// places are where the workers are, or have been when they start again, and whether that is known
// of all.
func (g *Group) places() (at map[bundle]bool, known bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at, known = map[bundle]bool{}, true
	for _, w := range g.workers {
		known = known && (w.link != nil || w.left != nil)
		switch {
		case w.attempt < 0, w.left != nil:
		case w.gpu != "":
			at[bundle{w.node, w.gpu, 0}] = true
		default:
			at[bundle{w.node, "", w.local}] = true
		}
	}
	return at, known
}

// overlap says whether two groups are known to have a GPU in common, or without GPUs a place on a
// node.
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

// share says whether two groups may have a GPU in common: one whose workers start may get any.
func share(a, b *Group) bool {
	_, known := a.places()
	_, others := b.places()
	return !known || !others || overlap(a, b)
}
