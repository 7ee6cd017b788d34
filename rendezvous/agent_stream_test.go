package rendezvous

import (
	"context"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/replica"
	"github.com/golaunch/golaunch/internal/wire"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
)

// TestAgentStreamIsBounded in messages and in bytes, and has room again once what came was taken.
func TestAgentStreamIsBounded(t *testing.T) {
	l := newAgentStream(nil)
	report := func(n int) *pb.FromAgent {
		return &pb.FromAgent{Body: &pb.FromAgent_Exited{Exited: &pb.Exited{Tail: make([]byte, n)}}}
	}
	for range 2 {
		n := 0
		for last := false; !last; n++ {
			var first bool
			if first, last = l.receive(report(1)); first != (n == 0) {
				t.Fatalf("message %d is the first: %v", n, first)
			}
		}
		if got := len(l.take()); n != maxReceived || got != n {
			t.Errorf("%d small messages may wait, and %d were taken; want %d", n, got, maxReceived)
		}
		<-l.room
	}
	if first, last := l.receive(report(maxReceivedSize / 2)); !first || last {
		t.Errorf("half of the bytes: first %v, last %v", first, last)
	}
	if first, last := l.receive(report(maxReceivedSize / 2)); first || !last {
		t.Errorf("all of the bytes: first %v, last %v", first, last)
	}
	later := new(pb.Heartbeat)
	if first, again := l.receiveHeartbeat(&pb.Heartbeat{}), l.receiveHeartbeat(later); !first || again {
		t.Errorf("of two heartbeats, the first waits alone: %v, and the second: %v", first, again)
	}
	if b := l.takeHeartbeat(); b != later || l.takeHeartbeat() != nil {
		t.Errorf("the heartbeat that waits is %v, want the second alone", b)
	}
}

// TestHeartbeatsPassReports: an agent whose report waits behind those of hundreds of others has its
// heartbeat answered before.
func TestHeartbeatsPassReports(t *testing.T) {
	c := NewCoordinator(Config{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { _, err := c.Run(ctx); ended <- err }()
	l, err := ask(c, func() (l *agentStream, err error) {
		for i := range 3 * maxBatch {
			m := c.expect(replica.Member{Node: gpus(i+1, 1), Instance: "i", Patience: time.Hour})
			l = newAgentStream(nil)
			m.stream = l
			report := wire.FromEvent("j", job.Reached{Seq: 1})
			report.Seq = 1
			l.receive(report)
			c.ready.add(readyStream{m, l})
			if i == 3*maxBatch-1 {
				l.receiveHeartbeat(&pb.Heartbeat{})
				c.heartbeats.add(readyStream{m, l})
			}
		}
		return l, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	<-l.wake
	if answer := l.drain()[0]; answer.GetHeartbeat() == nil || answer.GetAcked() != 0 {
		t.Errorf("the first word to the agent: %v", answer)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
