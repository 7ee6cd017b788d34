package launcher

import (
	"context"
	"time"
)

// EndWithin sets how long workers may take to end when the group is closed.
func (g *Group) EndWithin(limit time.Duration) { g.endWithin = limit }

// Waiting returns when a number of callers waits for a turn on the reservation's GPUs.
func (r *Reservation) Waiting(ctx context.Context, n int) error {
	for {
		r.turns.mu.Lock()
		now, changed := len(r.turns.queue), r.turns.changed
		r.turns.mu.Unlock()
		if now == n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
