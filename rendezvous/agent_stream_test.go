package rendezvous

import (
	"context"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/replica"
	"github.com/golaunch/golaunch/internal/wire"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/rendezvous/internal/server"
)

// TestHeartbeatsPassReports checks that the coordinator answers a heartbeat before it handles the
// report of the same agent, which waits behind the reports of hundreds of other agents.
func TestHeartbeatsPassReports(t *testing.T) {
	c := NewCoordinator(Config{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { _, err := c.Run(ctx); ended <- err }()
	l, err := ask(c, func() (l *server.AgentStream, err error) {
		for i := range 3 * maxBatch {
			m := c.expect(replica.Member{Node: gpus(i+1, 1), Instance: "i", Patience: time.Hour})
			l = server.NewAgentStream(nil)
			m.stream = l
			report := wire.FromEvent("j", job.Reached{Seq: 1})
			report.Seq = 1
			l.Receive(report)
			c.ready.add(readyStream{m, l})
			if i == 3*maxBatch-1 {
				l.ReceiveHeartbeat(&pb.Heartbeat{})
				c.heartbeats.add(readyStream{m, l})
			}
		}
		return l, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	<-l.Wake
	if answer := l.Drain()[0]; answer.GetHeartbeat() == nil || answer.GetAcked() != 0 {
		t.Errorf("the first word to the agent: %v", answer)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
