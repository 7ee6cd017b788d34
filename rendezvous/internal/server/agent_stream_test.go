package server

import (
	"testing"

	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
)

// TestAgentStreamIsBounded checks the bounds in messages and in bytes. The stream has room again
// once the messages are taken.
func TestAgentStreamIsBounded(t *testing.T) {
	l := NewAgentStream(nil)
	report := func(n int) *pb.FromAgent {
		return &pb.FromAgent{Body: &pb.FromAgent_Exited{Exited: &pb.Exited{Tail: make([]byte, n)}}}
	}
	for range 2 {
		n := 0
		for last := false; !last; n++ {
			var first bool
			if first, last = l.Receive(report(1)); first != (n == 0) {
				t.Fatalf("message %d is the first: %v", n, first)
			}
		}
		if got := len(l.Take()); n != maxReceived || got != n {
			t.Errorf("%d small messages may wait, and %d were taken; want %d", n, got, maxReceived)
		}
		<-l.Room
	}
	if first, last := l.Receive(report(maxReceivedSize / 2)); !first || last {
		t.Errorf("half of the bytes: first %v, last %v", first, last)
	}
	if first, last := l.Receive(report(maxReceivedSize / 2)); first || !last {
		t.Errorf("all of the bytes: first %v, last %v", first, last)
	}
	later := new(pb.Heartbeat)
	if first, again := l.ReceiveHeartbeat(&pb.Heartbeat{}), l.ReceiveHeartbeat(later); !first || again {
		t.Errorf("of two heartbeats, the first waits alone: %v, and the second: %v", first, again)
	}
	if b := l.TakeHeartbeat(); b != later || l.TakeHeartbeat() != nil {
		t.Errorf("the heartbeat that waits is %v, want the second alone", b)
	}
}
