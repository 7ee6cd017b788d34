package rendezvous

import (
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/rendezvous/internal/server"
)

// leaseMonitor knows since when an agent has been silent. The goroutine that reads an agent's
// stream answers its heartbeats directly, unless another process may have become the coordinator.
// So heartbeats never wait behind the failures of thousands of ranks.
type leaseMonitor struct {
	// patience is how long the agent may be silent, by the lease that it was given; silence is the
	// timer.
	patience time.Duration
	silence  *time.Timer

	mu    sync.Mutex
	heard time.Time
	// answered is the stream whose heartbeats are answered, if any. A node that is or may be
	// counted as lost must not believe that it still has its lease.
	answered *server.AgentStream
}

func (m *leaseMonitor) start(patience time.Duration, silent func()) {
	m.patience, m.heard = patience, time.Now()
	m.silence = time.AfterFunc(patience, silent)
}

// hear notes that the agent has sent something.
func (m *leaseMonitor) hear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.renew()
}

func (m *leaseMonitor) renew() {
	m.heard = time.Now()
	m.silence.Reset(m.patience)
}

// heartbeat is false if heartbeats on that stream are not answered.
func (m *leaseMonitor) heartbeat(s *server.AgentStream) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.answered != s {
		return false
	}
	m.renew()
	return true
}

// answer answers heartbeats on that stream only, or on no stream if it is nil.
func (m *leaseMonitor) answer(s *server.AgentStream) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answered = s
}

// lastHeard is when the agent was last heard.
func (m *leaseMonitor) lastHeard() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.heard
}

// overdue is by how much the agent has been silent for too long. From then on heartbeats are not
// answered.
func (m *leaseMonitor) overdue(at time.Time) (heard time.Time, by time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	by = at.Sub(m.heard) - m.patience
	if by >= 0 {
		m.answered = nil
	}
	return m.heard, by
}

// answerHeartbeat is called by the goroutine that reads the stream.
func (c *Coordinator) answerHeartbeat(m *member, s *server.AgentStream, b *pb.Heartbeat) {
	if !m.heartbeat(s) {
		return
	}
	if !s.Push(&pb.ToAgent{Acked: m.taken.Load(), Body: &pb.ToAgent_Heartbeat{Heartbeat: heartbeatReply(b)}}) {
		c.post(func() { c.fence(m, s) })
	}
}

// answerHeartbeats answers heartbeats once it is certain that no other process coordinates. Thousands
// of reports may wait, and are taken in batches between which this is called.
func (c *Coordinator) answerHeartbeats() {
	for _, s := range c.heartbeats.next() {
		if b := s.stream.TakeHeartbeat(); s.member.stream == s.stream {
			s.member.hear()
			c.queue(s.member, c.log.Vouch, &pb.ToAgent{Body: &pb.ToAgent_Heartbeat{Heartbeat: heartbeatReply(b)}})
		}
	}
}

func heartbeatReply(b *pb.Heartbeat) *pb.Heartbeat {
	return &pb.Heartbeat{At: b.GetAt(), Time: timestamppb.Now()}
}

// patience is the silence after which the ranks of an agent with this coordinator's lease are dead.
func (c *Coordinator) patience() time.Duration { return c.cfg.Lease + c.cfg.KillTime }

// maxSkew is how far apart clocks may be before people are warned: logs of the nodes are then hard
// to compare.
const maxSkew = time.Minute

func (c *Coordinator) compareClocks(node string, theirs time.Time) {
	skew, side := time.Until(theirs).Round(time.Second), "ahead of"
	if skew < 0 {
		skew, side = -skew, "behind"
	}
	if skew > maxSkew {
		c.warn(fmt.Errorf("the clock of node %s is %v %s the coordinator's; is NTP running there?", node, skew, side))
	}
}
