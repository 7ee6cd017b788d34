package session

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
)

// clock estimates how far the coordinator's wall clock is ahead of this node's, so that events on
// different nodes can be ordered. Like NTP, it trusts the exchange with the shortest round trip,
// until that is so old that clocks may have drifted. The error is at most half of the round trip
// (RFC 5905, section 10).
type clock struct {
	ahead, trip time.Duration
	// since is when the round trip was measured, by the agent's monotonic clock.
	since time.Duration
	known bool
}

const maxClockAge = 5 * time.Minute

// hear learns from a returned heartbeat. now is by the agent's monotonic clock.
func (c *clock) hear(b *pb.Heartbeat, now time.Duration) {
	trip := now - b.GetAt().AsDuration()
	if b.GetTime() == nil || trip < 0 || c.known && trip > c.trip && now-c.since < maxClockAge {
		return
	}
	*c = clock{ahead: b.GetTime().AsTime().Sub(time.Now().Add(-trip / 2)), trip: trip, since: now, known: true}
}

// correct converts the time in a report to the coordinator's clock.
func (c *clock) correct(m *pb.FromAgent) {
	if e := m.GetExited(); e.GetAt() != nil && c.known {
		e.At = timestamppb.New(e.GetAt().AsTime().Add(c.ahead))
	}
}
