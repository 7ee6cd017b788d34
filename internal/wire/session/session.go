// Package session connects agents and clients to a coordinator.
//
// An agent has a [Session], which delivers its orders and carries its reports. Its connections may
// break and be made again while the lease lasts. A [Client] submits jobs to a cluster, watches,
// reads and stops them.
package session

import (
	"cmp"
	"fmt"
	"sync"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/plainpb"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// Session is an agent's membership in a job. It outlives broken connections while its lease lasts.
//
// One lease bounds both sides. An agent's lease begins when it sent the newest heartbeat that the
// coordinator has returned. When the lease ends, the agent must end its ranks. The coordinator
// counts an agent as lost only after a silence of a lease and the time to kill. That is later than
// the agent's end of the lease, even if only one direction of the network is cut (Gray and
// Cheriton, "Leases", SOSP 1989). The agent counts as lost at once when it says goodbye, or when
// agent and ranks are proven dead. For this proof, the agent has committed itself to a secret, and
// the agent's guardian ends the connection with that secret. Any other end of a connection proves
// nothing.
type Session struct {
	// Job is the ID of the only job, empty in a cluster. Lease is the coordinator's lease. Node is
	// the description of this node, with its address.
	Job   string
	Lease time.Duration
	Node  placement.Node
	// Workspace is the workspace of the only job. Its ID is empty if the job has none.
	Workspace report.Workspace

	links   links
	orders  chan wire.Order
	reports chan *pb.FromAgent
	leave   chan string
	end     ending
	closing sync.Once

	// The fields below belong to the goroutine of run, and to Close once that goroutine has ended.
	dialer     dialer
	connection connection
	lease      leaseKeeper
	unacked    reportQueue
	pending    orderQueue
}

// ending is how a session ended. Its error is final once done is closed.
type ending struct {
	done chan struct{}
	err  error
}

func newSession(d dialer, w *pb.Welcome, l *agentStream) *Session {
	s := &Session{
		Job: w.GetJobId(), Lease: w.GetLease().AsDuration(), Node: d.Node,
		Workspace: wire.ToWorkspace(w.GetWorkspace()),
		orders:    make(chan wire.Order), reports: make(chan *pb.FromAgent), leave: make(chan string),
		end: ending{done: make(chan struct{})}, dialer: d, lease: newLeaseKeeper(d.Options, w.GetLease().AsDuration()),
		// The agent that this one replaces has used the lower numbers.
		unacked: reportQueue{seq: l.first.GetAcked()},
	}
	s.dialer.shared = s.Job == ""
	s.dialer.bound = s.dialer.shared
	if d.Former != (Membership{}) {
		s.pending.add(wire.Order{Do: wire.Restate{}})
	}
	s.adopt(l)
	return s
}

// Orders returns a channel of the coordinator's orders. It is closed after the [job.Finish] of the
// only job, after Close, and when the session ends for the reason that Err then returns. The agent
// must then end its ranks and call Close.
func (s *Session) Orders() <-chan wire.Order { return s.orders }

// Membership returns the data that another agent needs to replace this one.
func (s *Session) Membership() Membership { return Membership{s.dialer.instance, s.dialer.epoch} }

// Err says why Orders was closed: nil when the job has finished or the agent has left, a
// [RefusedError], or that the coordinator was not heard for a lease. It is nil before that.
func (s *Session) Err() error {
	select {
	case <-s.end.done:
		return s.end.err
	default:
		return nil
	}
}

// Report sends the coordinator a [job.Prepared], [job.Reached], [job.Started], [job.Stalled],
// [job.Stepped], [job.Saved], [job.Exited] or [job.Stopped] of a job, an [Opened], a [Met], a
// [Replica], a [Draining], a [Freed] or a [Restated]. The coordinator takes it exactly once,
// however often the connection breaks within the lease. Report does not wait for the network, and
// does nothing after the end of the session. It does not send a report that is too long, which
// would break every connection, but warns.
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
	case <-s.end.done:
	}
}

// Close leaves the job for the given reason, unless the session has ended by itself, and closes its
// connections. The caller must have ended all ranks: the coordinator may now start them elsewhere.
func (s *Session) Close(why string) {
	s.closing.Do(func() {
		select {
		case s.leave <- why:
		case <-s.end.done:
		}
		<-s.end.done
		s.connection.stream.close()
	})
	<-s.end.done
}

func (s *Session) run() {
	defer close(s.orders) // closed after done, so that Err says why
	defer close(s.end.done)
	defer func() { _ = s.connection.abandon() }()
	defer s.lease.stop()
	for s.end.err == nil {
		if s.lease.isOver(s.hasPeers()) {
			s.end.err = s.leaseError()
			return
		}
		next, out := s.next()
		order, orders := s.pending.first(s.orders)
		select {
		case orders <- order:
			s.pending.took()
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
			s.lease.clock.correct(msg)
			s.unacked.add(msg)
		case <-s.lease.due.C:
			if s.lease.unanswered && s.readable() != nil {
				s.connection.redialFrom(s.dialer, firstOther)
			}
			s.lease.ask(s.hasPeers())
		case r := <-s.connection.redial:
			s.reconnected(r)
		case <-s.lease.limit.C: // the lease is over
		case why := <-s.leave:
			s.sayGoodbye(why)
			return
		}
		if s.unacked.isFull() {
			s.end.err = fmt.Errorf("the coordinator at %s does not take the reports of node %s", s.dialer.Target, s.Node.Name)
		}
	}
}

// hasPeers reports whether the cluster has several coordinators. If a coordinator is cut off or
// stopped, the agent gets no message, and does not learn that the connection has ended. With peers,
// the agent therefore sends heartbeats more often, so that it turns to the next coordinator within
// a third of a lease.
func (s *Session) hasPeers() bool { return s.dialer.shared && len(s.dialer.voters) > 1 }

// next returns the next message to send: heartbeats before reports.
func (s *Session) next() (*pb.FromAgent, chan<- *pb.FromAgent) {
	next := cmp.Or(s.lease.beat, s.unacked.next())
	if next == nil {
		return nil, nil
	}
	return next, s.connection.out
}

func (s *Session) wrote() {
	if s.lease.beat != nil {
		s.lease.beat = nil
	} else {
		s.unacked.sent++
	}
}

// readable returns the channel of incoming messages. It is nil while the agent does not take its
// orders. Heartbeats are then not read either, so an agent that hangs loses its lease.
func (s *Session) readable() <-chan *pb.ToAgent {
	if s.pending.isFull() {
		return nil
	}
	return s.connection.in
}

func (s *Session) take(msg *pb.ToAgent) {
	s.unacked.acked(msg.GetAcked())
	if w := msg.GetWelcome(); w != nil {
		s.pending.peers = nil // the order that they precede is repeated
		s.lease.hear(w.GetHeartbeat(), s.hasPeers())
	}
	if b := msg.GetHeartbeat(); b != nil {
		s.lease.hear(b, s.hasPeers())
	}
	if v := msg.GetVoters(); v != nil {
		s.dialer.voters = v.GetAddrs()
		s.dialer.Voter.Learn(v.GetAddrs())
	}
	if do := s.pending.gather(msg, wire.ToAction(s.Node, msg)); do != nil {
		s.dialer.bound = true
		if a, ok := do.(wire.Ask); ok {
			a.Via = s.connection.stream.conn
			do = a
		}
		s.pending.add(wire.Order{Job: msg.GetJob(), Do: do})
	}
}
