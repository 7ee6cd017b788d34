package rendezvous

import (
	"testing"

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
}
