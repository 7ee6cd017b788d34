package group

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/golaunch/golaunch/launcher/report"
)

const (
	// offload and onload are the names of the handlers that turns call.
	offload = "offload"
	onload  = "onload"
	// othersKeep is the default of a Group's OthersKeep.
	othersKeep = 4_000_000_000
	// memoryLimit is how long memory may take to become free after the other groups have offloaded.
	memoryLimit = 30 * time.Second
)

// Active calls do in a turn of the group: a time in which only this group uses the memory of its
// GPUs. Other groups of the reservation may have the same GPUs ([Reserve], colocated). Active waits
// until no other group on these GPUs has a turn; callers get their turns in the order of their
// calls. It then makes the other groups offload, and checks by NVML for at most 30 s that they have
// freed their memory. If they have not, Active returns a [*GPUMemoryError]. Otherwise it makes this
// group's workers onload, and calls do. When do returns, the turn and the context of do end. The
// group keeps the memory until another group's turn begins. The duration within bounds the time
// before the call of do; if it is 0, only ctx bounds that time.
//
// Goroutines that call Active of a group during its turn share that turn. A call of Active within a
// turn must pass the context that do gets. A call for the same group is then part of that turn. A
// call for a group that cannot have its turn before this turn ends fails at once, since it would
// wait forever.
//
// The handlers are "offload" and "onload" of [rankenv.Info.Serve], without input. A turn calls only
// workers that have them. A handler may be called twice in a row, and must succeed then too. A
// group whose workers restart counts as loaded.
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

// enter waits for the turn, and begins it if this caller is the first in it.
func (g *Group) enter(ctx context.Context, within time.Duration) (*block, error) {
	outer, _ := ctx.Value(blockKey{}).(*block)
	if within > 0 {
		limited, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		ctx = limited
	}
	if _, err := g.allReady(ctx); err != nil { // before that, the workers' places are unknown
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

// begin makes the other groups free the GPUs, and this group take them.
func (g *Group) begin(ctx context.Context) error {
	var others []*Group
	sharing := 0
	g.turns.mu.Lock()
	for _, other := range g.turns.groups {
		if other == g || !mayOverlap(other, g) {
			continue
		}
		sharing++
		if !other.obeyed(offload) {
			others = append(others, other)
		}
	}
	g.turns.mu.Unlock()
	for _, other := range others {
		if err := other.offload(ctx); err != nil {
			return fmt.Errorf("%s did not get its turn: %w", g.ID, err)
		}
	}
	if err := g.awaitMemory(ctx, sharing); err != nil {
		return err
	}
	if g.obeyed(onload) {
		return nil
	}
	g.note("", nil)
	now, err := g.callHandlers(ctx, onload)
	if err != nil {
		return fmt.Errorf("%s did not get its turn: %w", g.ID, err)
	}
	g.note(onload, now)
	return nil
}

// offload makes the group free the GPUs. If workers die meanwhile, it tries once more with the
// workers that replace them.
func (g *Group) offload(ctx context.Context) error {
	for last := false; ; last = true {
		g.note("", nil)
		now, err := g.callHandlers(ctx, offload)
		if g.ended() != nil {
			return nil //nolint:nilerr // an ended group has no memory
		}
		if err == nil {
			g.note(offload, now)
			return nil
		}
		if failed, ok := errors.AsType[*WorkerError](err); last || !ok || !failed.gone {
			return err
		}
	}
}

// callHandlers calls a handler on all workers if at least one of them has it, and returns the
// workers' attempts. It waits for all answers, so that a failure of one worker does not cut off the
// others. It skips exited workers, which have no memory.
func (g *Group) callHandlers(ctx context.Context, method string) (attempts []int, err error) {
	methods, err := g.allReady(ctx)
	if err == nil {
		attempts = g.attempts()
		if !slices.Contains(methods, method) {
			return attempts, nil
		}
		for a := range g.CallEach(ctx, method, make([][]byte, g.size)) {
			if err == nil && !g.hasExited(a.Rank) {
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

// awaitMemory waits until NVML shows no other process with memory of the group's GPUs. sharing is
// how many other groups have the same GPUs and may keep memory there.
func (g *Group) awaitMemory(ctx context.Context, sharing int) error {
	q := MemoryQuery{Job: g.ID, GPUs: map[string][]string{}, Keep: g.OthersKeep, Within: memoryLimit}
	if q.Keep == 0 {
		q.Keep = othersKeep
	}
	if g.obeyed(offload) { // otherwise the group's own workers may hold memory
		q.Whole = q.Keep * int64(max(1, sharing))
	}
	g.mu.Lock()
	for _, w := range g.workers {
		if w.gpu != "" && !slices.Contains(q.GPUs[w.node], w.gpu) {
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

// allReady waits for all workers that have not exited, and returns the handlers that they have.
func (g *Group) allReady(ctx context.Context) ([]string, error) {
	var methods []string
	for rank := range g.size {
		l, err := g.ready(ctx, rank)
		if err != nil && g.hasExited(rank) {
			continue
		}
		if err != nil {
			return nil, err
		}
		methods = append(methods, l.methods...)
	}
	return methods, nil
}

// attempts returns the attempt of each worker. The attempt shows whether a worker has restarted
// since its last order, and so has not obeyed it.
func (g *Group) attempts() []int {
	g.mu.Lock()
	defer g.mu.Unlock()
	attempts := make([]int, len(g.workers))
	for rank, w := range g.workers {
		attempts[rank] = w.attempt
	}
	return attempts
}

// note records the last order that the workers have obeyed, and their attempts.
func (g *Group) note(order string, attempts []int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lastOrder, g.obeying = order, attempts
}

// obeyed reports whether this is the last order that the present workers have obeyed.
func (g *Group) obeyed(order string) bool {
	now := g.attempts()
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lastOrder == order && slices.Equal(g.obeying, now)
}

// ended returns why the group has ended, or nil.
func (g *Group) ended() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return whyOver(g.over)
}

func whyOver(over *report.Result) error {
	if over == nil {
		return nil
	}
	return fmt.Errorf("the group has ended: %s", over.Reason)
}
