package group

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	endpoints "github.com/golaunch/golaunch/internal/wire/endpoint"
)

// EndWithin sets how long workers may take to end when the group is closed.
func (g *Group) EndWithin(limit time.Duration) { g.endWithin = limit }

// Reset resets the connections to workers on other machines, and returns how many it has reset.
func (g *Group) Reset() (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range g.workers {
		if w.link == nil {
			continue
		}
		w.link.mu.Lock()
		if far, ok := w.link.newest.(*endpoints.Stream); ok {
			conn := far.Conn.(*tls.Conn).NetConn().(*net.TCPConn)
			_ = conn.SetLinger(0) // an error means that the connection is closed already
			conn.Close()
			n++
		}
		w.link.mu.Unlock()
	}
	return n
}

// Waiting returns when exactly n callers wait for a turn on the reservation's GPUs.
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
