package session

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/golaunch/golaunch/internal/wire"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
)

// leaseKeeper keeps an agent's lease with heartbeats. The lease begins when the newest returned
// heartbeat was sent.
type leaseKeeper struct {
	lease time.Duration
	now   func() time.Duration
	// onHeard is the Heard of the Options.
	onHeard func(at, lease time.Duration)
	// heard is when the newest returned heartbeat was sent. limit is the timer that ends the lease.
	// asked is when the session, after a pause longer than the lease, asked whether it still has
	// the lease; 0 if it has not asked.
	heard, asked time.Duration
	limit        *time.Timer
	// due fires when a heartbeat, or the answer to one, is due. beat is the heartbeat to send.
	due        *time.Timer
	beat       *pb.FromAgent
	unanswered bool
	clock      clock
}

func newLeaseKeeper(o Options, lease time.Duration) leaseKeeper {
	return leaseKeeper{lease: lease, now: o.Clock, onHeard: o.Heard, limit: time.NewTimer(lease), due: time.NewTimer(0)}
}

func (k *leaseKeeper) stop() {
	k.limit.Stop()
	k.due.Stop()
}

// isOver reports whether the lease has ended and cannot be renewed.
func (k *leaseKeeper) isOver(hasPeers bool) bool {
	late := k.now() - k.heard - k.lease
	return late >= 0 && !k.mayHaveReprieve(late, hasPeers)
}

// mayHaveReprieve reports whether a session whose lease ended some time ago may still renew it.
func (k *leaseKeeper) mayHaveReprieve(late time.Duration, hasPeers bool) bool {
	now := k.now()
	switch {
	case k.asked != 0:
		return now-k.asked < wire.Reprieval
	case late < wire.Paused:
		return false
	}
	k.asked = now
	k.ask(hasPeers)
	k.limit.Reset(wire.Reprieval)
	return true
}

// heartbeatSlot aligns the heartbeats of different nodes by the coordinator's clock. The
// coordinator then wakes up once for many heartbeats, which saves a fifth of its processor time.
const heartbeatSlot = 100 * time.Millisecond

// interval is the time from an answered heartbeat to the next one: a third of the lease, or a fifth
// if other coordinators may lead. heartbeatSlot shortens it.
func (k *leaseKeeper) interval(hasPeers bool) time.Duration {
	every := k.lease / 3
	if hasPeers {
		every = k.lease / 5
	}
	now := time.Now().Add(k.clock.ahead)
	return now.Add(every).Truncate(min(heartbeatSlot, k.lease/20)).Sub(now)
}

// ask queues a heartbeat, replacing an unsent one. After a quarter of the lease without an answer,
// the session tries another connection. If other coordinators may lead, it does so sooner.
func (k *leaseKeeper) ask(hasPeers bool) {
	k.unanswered = true
	patience := k.lease / 4
	if hasPeers {
		patience = k.lease / 10
	}
	k.due.Reset(patience)
	k.beat = &pb.FromAgent{Body: &pb.FromAgent_Heartbeat{Heartbeat: &pb.Heartbeat{At: durationpb.New(k.now())}}}
}

// hear renews the lease by a returned heartbeat.
func (k *leaseKeeper) hear(b *pb.Heartbeat, hasPeers bool) {
	k.clock.hear(b, k.now())
	if at := b.GetAt().AsDuration(); at >= k.heard {
		k.heard, k.asked, k.unanswered = at, 0, false
		k.due.Reset(k.interval(hasPeers))
		k.limit.Reset(at + k.lease - k.now())
		k.onHeard(at, k.lease)
	}
}
