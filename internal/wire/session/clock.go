package session

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
)

// clock estimates how far the coordinator's wall clock is ahead of this node's, so that what happened on different nodes can be put
// in order. As NTP does, it trusts the exchange with the shortest round trip, which bounds the error to half of that (RFC 5905,
// section 10); an old one is given up for what clocks drift.
type clock struct {
	ahead, trip time.Duration
	// since is when that was measured, by the agent's monotonic clock.
	since time.Duration
	known bool
}

const trusted = 5 * time.Minute

// hear takes a heartbeat that came back at a time by the agent's monotonic clock.
func (c *clock) hear(b *pb.Heartbeat, now time.Duration) {
	trip := now - b.GetAt().AsDuration()
	if b.GetTime() == nil || trip < 0 || c.known && trip > c.trip && now-c.since < trusted {
		return
	}
	*c = clock{ahead: b.GetTime().AsTime().Sub(time.Now().Add(-trip / 2)), trip: trip, since: now, known: true}
}

// correct has a report tell the time by the coordinator's clock.
func (c *clock) correct(m *pb.FromAgent) {
	if e := m.GetExited(); e.GetAt() != nil && c.known {
		e.At = timestamppb.New(e.GetAt().AsTime().Add(c.ahead))
	}
}
