package session

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/wire"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
)

// TestClock has a coordinator whose clock is an hour ahead, and heartbeats that take long in one
// direction or the other.
func TestClock(t *testing.T) {
	const ahead = time.Hour
	synctest.Test(t, func(t *testing.T) {
		var c clock
		begin := time.Now()
		exchange := func(there, back time.Duration) {
			sent := time.Since(begin)
			time.Sleep(there)
			answer := &pb.Heartbeat{At: durationpb.New(sent), Time: timestamppb.New(time.Now().Add(ahead))}
			time.Sleep(back)
			c.hear(answer, time.Since(begin))
		}
		off := func() time.Duration {
			at := time.Now()
			msg := wire.FromEvent("j", job.Exited{At: at})
			c.correct(msg)
			return (msg.GetExited().GetAt().AsTime().Sub(at) - ahead).Abs()
		}
		if off() != ahead {
			t.Error("an unknown clock is corrected")
		}
		exchange(800*time.Millisecond, 0)
		if got := off(); got != 400*time.Millisecond {
			t.Errorf("%v off after a slow heartbeat", got)
		}
		exchange(2*time.Millisecond, time.Millisecond)
		exchange(0, time.Second)
		if got := off(); got != 500*time.Microsecond {
			t.Errorf("%v off after a fast heartbeat and a slow one", got)
		}
		time.Sleep(maxClockAge)
		exchange(10*time.Millisecond, 0)
		if got := off(); got != 5*time.Millisecond {
			t.Errorf("%v off: an old exchange counts as much as a new one", got)
		}
		c.hear(&pb.Heartbeat{At: durationpb.New(time.Since(begin))}, time.Since(begin))
		if off() != 5*time.Millisecond {
			t.Error("a heartbeat that does not tell the time is believed")
		}
	})
}
