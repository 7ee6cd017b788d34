// Package session connects agents and clients to a coordinator.
//
// An agent has a [Session], which delivers its orders and carries its reports. Its connections may
// break and be made again for as long as the lease lasts. A [Client] submits jobs to a cluster,
// watches, reads and stops them.
package session

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/plainpb"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

const (
	// maxUnacked bounds the reports that an agent keeps for the coordinator.
	maxUnacked = 1 << 14
	// maxPending is how many orders may wait for the agent before the session reads no more.
	maxPending = 64
)

// Session is an agent's membership in a job. It outlives broken connections for as long as its
// lease.
//
// One lease bounds both sides. An agent's lease runs from when it sent the newest heartbeat that
// the coordinator has returned; when it ends, the agent must end its ranks. The coordinator waits
// for a lease and the time to kill after it last heard the agent before it counts it as lost. That
// is later, whichever direction of the network is cut (Gray and Cheriton, "Leases", SOSP 1989). It
// does so at once when the agent says goodbye, or when agent and ranks are proven dead: the
// connection then ends with a secret that the agent has committed itself to, and that its guardian
// holds. Any other end of a connection proves nothing.
type Session struct {
	// Job is the ID of the only job, empty in a cluster. Lease is the coordinator's. Node is what
	// was said about this node, with its address.
	Job   string
	Lease time.Duration
	Node  placement.Node
	// Workspace is that of the only job; its ID is empty if it has none.
	Workspace report.Workspace

	links   links
	orders  chan wire.Order
	reports chan *pb.FromAgent
	leave   chan string
	done    chan struct{}
	err     error
	closing sync.Once

	// The fields below belong to the goroutine of run, and to Close once that has ended.
	dialer dialer
	link   *agentStream
	// in and out are the stream's channels; nil once it has ended.
	in  <-chan *pb.ToAgent
	out chan<- *pb.FromAgent
	// unacked are the reports that the coordinator may not have. The first sent of them were sent
	// on this stream.
	unacked []*pb.FromAgent
	sent    int
	seq     uint64
	pending []wire.Order
	// peers came ahead of an order.
	peers []netip.Addr
	beat  *pb.FromAgent
	// heard is when the newest returned heartbeat was sent, and limit the timer that ends the
	// lease. asked is when a session that was paused for longer asked whether it still has its
	// lease; 0 if it has not.
	heard time.Duration
	asked time.Duration
	limit *time.Timer
	// heartbeatTimer fires when a heartbeat, or the answer to one, is due.
	heartbeatTimer *time.Timer
	unanswered     bool
	// redial has the outcome of connecting anew; nil while that is not under way. stop ends it.
	redial chan dialResult
	stop   context.CancelFunc
	// brokeWith is why the connection broke.
	brokeWith error
	clock     clock
}

type dialResult struct {
	link *agentStream
	err  error
}

func newSession(d dialer, w *pb.Welcome, l *agentStream) *Session {
	s := &Session{
		Job: w.GetJobId(), Lease: w.GetLease().AsDuration(), Node: d.Node,
		Workspace: wire.ToWorkspace(w.GetWorkspace()),
		orders:    make(chan wire.Order), reports: make(chan *pb.FromAgent), leave: make(chan string), done: make(chan struct{}),
		dialer: d, limit: time.NewTimer(w.GetLease().AsDuration()), heartbeatTimer: time.NewTimer(0),
		// The numbers of the agent that this one replaces have been used.
		seq: l.first.GetAcked(),
	}
	s.dialer.shared = s.Job == ""
	s.dialer.bound = s.dialer.shared
	if d.Former != (Membership{}) {
		s.pending = append(s.pending, wire.Order{Do: wire.Restate{}})
	}
	s.adopt(l)
	return s
}

// Orders has the coordinator's orders. It is closed after the [job.Finish] of the only job, after
// Close, and when the session ends for the reason that Err then returns: the agent must end its
// ranks and call Close.
func (s *Session) Orders() <-chan wire.Order { return s.orders }

// Membership is what an agent needs to replace this one.
func (s *Session) Membership() Membership { return Membership{s.dialer.instance, s.dialer.epoch} }

// Err says why Orders was closed: nil when the job has finished or the agent has left, a
// [RefusedError], or that the coordinator was not heard for a lease. It is nil before that.
func (s *Session) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

// Report tells the coordinator, exactly once, of a [job.Prepared], [job.Reached], [job.Started],
// [job.Stalled], [job.Stepped], [job.Saved], [job.Exited] or [job.Stopped] of a job, an [Opened], a
// [Met], a [Replica], a [Draining] or a [Restated], however often the connection breaks within the
// lease. It does not wait for the network. After the end of the session it does nothing. It warns of
// a report that is too long instead of sending it, because that would break every connection.
func (s *Session) Report(id string, ev any) {
	msg := wire.FromEvent(id, ev)
	if msg == nil {
		panic(fmt.Sprintf("rendezvous: no agent reports a %T", ev))
	}
	if size := plainpb.Oversize(msg, wire.MaxReport); size > 0 {
		s.dialer.Warn(fmt.Errorf("node %s cannot report a %T of job %s: %d bytes, %d at most", s.Node.Name, ev, id, size, wire.MaxReport))
		return
	}
	select {
	case s.reports <- msg:
	case <-s.done:
	}
}

// Close leaves the job for the given reason, unless the session has ended by itself, and closes its
// connections. The caller must have ended all ranks: the coordinator may now start them elsewhere.
func (s *Session) Close(why string) {
	s.closing.Do(func() {
		select {
		case s.leave <- why:
		case <-s.done:
		}
		<-s.done
		s.link.close()
	})
	<-s.done
}

func (s *Session) run() {
	defer close(s.orders) // after done, so that Err says why
	defer close(s.done)
	defer func() { _ = s.abandon() }()
	defer s.limit.Stop()
	defer s.heartbeatTimer.Stop()
	for s.err == nil {
		if late := s.dialer.Clock() - s.heard - s.Lease; late >= 0 && !s.mayHaveReprieve(late) {
			s.err = s.leaseError()
			return
		}
		next, out := s.next()
		order, orders := s.first()
		select {
		case orders <- order:
			s.pending = s.pending[1:]
			if _, over := order.Do.(job.Finish); over && order.Job == s.Job {
				s.sayGoodbye("the job is over")
				return
			}
		case out <- next:
			s.wrote()
		case msg, ok := <-s.readable():
			if !ok {
				s.broken()
			} else {
				s.take(msg)
			}
		case msg := <-s.reports:
			s.seq++
			msg.Seq = s.seq
			s.clock.correct(msg)
			s.unacked = append(s.unacked, msg)
		case <-s.heartbeatTimer.C:
			if s.unanswered && s.readable() != nil {
				s.connect(firstOther)
			}
			s.heartbeat()
		case r := <-s.redial:
			s.reconnected(r)
		case <-s.limit.C: // the lease is over
		case why := <-s.leave:
			s.sayGoodbye(why)
			return
		}
		if len(s.unacked) > maxUnacked {
			s.err = fmt.Errorf("the coordinator at %s does not take the reports of node %s", s.dialer.Target, s.Node.Name)
		}
	}
}

// mayHaveReprieve says that a session whose lease ended some time ago may still have it.
func (s *Session) mayHaveReprieve(late time.Duration) bool {
	now := s.dialer.Clock()
	switch {
	case s.asked != 0:
		return now-s.asked < wire.Reprieval
	case late < wire.Paused:
		return false
	}
	s.asked = now
	s.heartbeat()
	s.limit.Reset(wire.Reprieval)
	return true
}

// heartbeatSlot aligns the heartbeats of different nodes by the coordinator's clock, which then
// wakes up once for many of them. That saves it a fifth of the processor time.
const heartbeatSlot = 100 * time.Millisecond

// interval is the time from an answered heartbeat to the next: a third of the lease.
func (s *Session) interval() time.Duration {
	every := s.Lease / 3
	if s.hasPeers() {
		every = s.Lease / 5
	}
	now := time.Now().Add(s.clock.ahead)
	return now.Add(every).Truncate(min(heartbeatSlot, s.Lease/20)).Sub(now)
}

// hasPeers says that the cluster has several coordinators. If a coordinator is cut off or stopped,
// the agent hears nothing, not even the end of the connection. It asks more often, so that it turns
// to the next within a third of a lease.
func (s *Session) hasPeers() bool { return s.dialer.shared && len(s.dialer.voters) > 1 }

// heartbeat queues a heartbeat, replacing an unsent one. After a quarter of the lease without an
// answer the session tries another connection, and sooner if others may lead.
func (s *Session) heartbeat() {
	s.unanswered = true
	patience := s.Lease / 4
	if s.hasPeers() {
		patience = s.Lease / 10
	}
	s.heartbeatTimer.Reset(patience)
	s.beat = &pb.FromAgent{Body: &pb.FromAgent_Heartbeat{Heartbeat: &pb.Heartbeat{At: durationpb.New(s.dialer.Clock())}}}
}

// next is what to send next: heartbeats before reports.
func (s *Session) next() (*pb.FromAgent, chan<- *pb.FromAgent) {
	switch {
	case s.beat != nil:
		return s.beat, s.out
	case s.sent < len(s.unacked):
		return s.unacked[s.sent], s.out
	}
	return nil, nil
}

func (s *Session) wrote() {
	if s.beat != nil {
		s.beat = nil
	} else {
		s.sent++
	}
}

func (s *Session) first() (wire.Order, chan<- wire.Order) {
	if len(s.pending) == 0 {
		return wire.Order{}, nil
	}
	return s.pending[0], s.orders
}

// readable is nil while the agent does not take its orders. Heartbeats are not read then either, so
// an agent that hangs loses its lease.
func (s *Session) readable() <-chan *pb.ToAgent {
	if len(s.pending) >= maxPending {
		return nil
	}
	return s.in
}

func (s *Session) take(msg *pb.ToAgent) {
	s.acked(msg.GetAcked())
	if w := msg.GetWelcome(); w != nil {
		s.peers = nil // the order that they precede is repeated
		s.hear(w.GetHeartbeat())
	}
	if b := msg.GetHeartbeat(); b != nil {
		s.hear(b)
	}
	if v := msg.GetVoters(); v != nil {
		s.dialer.voters = v.GetAddrs()
		s.dialer.Voter.Learn(v.GetAddrs())
	}
	do := wire.ToAction(s.Node, msg)
	if s.peers, do = wire.Gather(s.peers, msg, do); do != nil {
		s.dialer.bound = true
		if a, ok := do.(wire.Ask); ok {
			a.Via = s.link.conn
			do = a
		}
		s.pending = append(s.pending, wire.Order{Job: msg.GetJob(), Do: do})
	}
}

func (s *Session) hear(b *pb.Heartbeat) {
	s.clock.hear(b, s.dialer.Clock())
	if at := b.GetAt().AsDuration(); at >= s.heard {
		s.heard, s.asked, s.unanswered = at, 0, false
		s.heartbeatTimer.Reset(s.interval())
		s.limit.Reset(at + s.Lease - s.dialer.Clock())
		s.dialer.Heard(at, s.Lease)
	}
}

// acked forgets the reports up to number n.
func (s *Session) acked(n uint64) {
	for len(s.unacked) > 0 && s.unacked[0].Seq <= n {
		s.unacked = s.unacked[1:]
		s.sent = max(0, s.sent-1)
	}
}
