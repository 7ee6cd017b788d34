package rendezvous

import (
	"cmp"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/golaunch/golaunch/internal/job"
	pb "github.com/golaunch/golaunch/rendezvous/rendezvouspb"
)

// member is an agent as its coordinator sees it, from its first hello until it is lost. It belongs to the goroutine of Run.
type member struct {
	name, instance string
	addr           netip.Addr
	// link is the stream to the agent, nil while there is none; conn is its newest connection, there or not.
	link *link
	conn *watchedConn
	// sure says that the agent has adopted conn, so that its closing means that the agent is dead. An agent that is back may
	// give up a connection before it hears of its welcome there, and live on.
	sure bool
	// heard is when the agent last said something, and silence the timer that tells when that is too long ago.
	heard   time.Time
	silence *time.Timer
	// taken is the number of its newest report.
	taken uint64
	// fenced says why it may not come back; it is lost once its lease is over.
	fenced string
}

// link is one stream to an agent. Its goroutine sends what is queued when woken, and ends the stream with what is in cut.
type link struct {
	wake chan struct{}
	cut  chan error
	conn *watchedConn

	mu    sync.Mutex
	queue []*pb.ToAgent
}

// push is false when the queue is full.
func (l *link) push(msg *pb.ToAgent) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) >= maxOrders {
		return false
	}
	l.queue = append(l.queue, msg)
	select {
	case l.wake <- struct{}{}:
	default: // awake already
	}
	return true
}

func (l *link) drain() []*pb.ToAgent {
	l.mu.Lock()
	defer l.mu.Unlock()
	queue := l.queue
	l.queue = nil
	return queue
}

// admit takes in a new agent, or one that is back. from is the node in its certificate, if any.
func (c *Coordinator) admit(l *link, h *pb.Hello, from string) (*member, error) {
	node := toNode(h.GetNode())
	if err := c.objection(h, from); err != nil {
		return nil, err
	}
	m := c.members[node.Name]
	back := m != nil
	if !back {
		m = &member{name: node.Name, instance: h.GetInstance(), addr: node.Addr}
		m.silence = time.AfterFunc(c.patience(), func() { c.post(func() { c.silent(m) }) })
		c.members[m.name], c.addrs[m.addr] = m, m.name
		c.compareClocks(m.name, h.GetTime().AsTime())
	}
	if m.link != nil {
		m.link.cut <- status.Error(codes.Aborted, "a newer connection of this agent is here")
	}
	m.link, m.conn, m.sure = l, l.conn, !back
	m.conn.onPeerClose(func() { c.post(func() { c.closed(m, l.conn) }) })
	c.hear(m)
	c.send(m, &pb.ToAgent{Body: &pb.ToAgent_Welcome{Welcome: &pb.Welcome{
		JobId: c.cfg.Spec.ID, Epoch: c.epoch,
		Lease: durationpb.New(c.cfg.Lease), Heartbeat: h.GetHeartbeat(),
	}}})
	switch {
	case c.result != nil:
		c.send(m, fromOrder(job.Finish{Result: *c.result}))
	case back:
		c.step(job.Rejoined{Node: m.name})
	default:
		c.step(job.Joined{Node: node})
	}
	return m, nil
}

// maxSkew is how far apart clocks may be before a user hears of it: logs of nodes are then hard to compare.
const maxSkew = time.Minute

func (c *Coordinator) compareClocks(name string, theirs time.Time) {
	skew, side := time.Until(theirs).Round(time.Second), "ahead of"
	if skew < 0 {
		skew, side = -skew, "behind"
	}
	if skew > maxSkew {
		c.cfg.Warn(fmt.Errorf("the clock of node %s is %v %s the coordinator's; is NTP running there?", name, skew, side))
	}
}

// patience is the silence after which an agent's ranks must be dead.
func (c *Coordinator) patience() time.Duration { return c.cfg.Lease + c.cfg.KillTime }

func (c *Coordinator) hear(m *member) {
	m.heard = time.Now()
	m.silence.Reset(c.patience())
}

// take handles what an agent says on a link. No report is taken twice: what a new link brings starts after what was taken when it
// was welcomed, and what is still in the old one is dropped.
func (c *Coordinator) take(m *member, l *link, msg *pb.FromAgent) {
	if m.link != l {
		return
	}
	c.hear(m)
	m.sure = true
	switch b := msg.GetBody().(type) {
	case *pb.FromAgent_Heartbeat:
		c.send(m, &pb.ToAgent{Body: &pb.ToAgent_Heartbeat{Heartbeat: b.Heartbeat}})
		return
	case *pb.FromAgent_Goodbye:
		c.lost(m, cmp.Or(plain(b.Goodbye.GetWhy()), "its agent has left"), nil)
		return
	}
	ev := toEvent(m.name, msg)
	if ev == nil {
		return
	}
	if m.taken = msg.GetSeq(); m.taken%ackEvery == 0 {
		c.send(m, &pb.ToAgent{})
	}
	c.step(ev)
}

// send queues a message for an agent. One that does not take its messages is cut off: to wait for it would hold up the job.
func (c *Coordinator) send(m *member, msg *pb.ToAgent) {
	if m.link == nil {
		return
	}
	if msg.Acked = m.taken; m.link.push(msg) {
		return
	}
	m.fenced = fmt.Sprintf("its agent does not take its orders (%d wait)", maxOrders)
	m.link.conn.Close()
	m.link = nil
}

// broken notes that a link has ended. Its agent may come back within its lease.
func (c *Coordinator) broken(m *member, l *link) {
	if m.link == l {
		m.link = nil
	}
}

// closed hears that an agent's end of a connection was closed: its ranks are dead, unless it uses another one.
func (c *Coordinator) closed(m *member, conn *watchedConn) {
	if c.members[m.name] == m && m.conn == conn && m.sure {
		c.lost(m, cmp.Or(m.fenced, "its agent has died"), nil)
	}
}

func (c *Coordinator) silent(m *member) {
	if c.members[m.name] == m && time.Since(m.heard) >= c.patience() {
		why := cmp.Or(m.fenced, fmt.Sprintf("no word from its agent for %v", c.patience()))
		c.lost(m, why, refused("node %s was counted as lost: %s", m.name, why))
	}
}

// lost forgets an agent and ends its stream with the given error, nil when it has asked for that.
func (c *Coordinator) lost(m *member, why string, end error) {
	delete(c.members, m.name)
	if c.addrs[m.addr] == m.name {
		delete(c.addrs, m.addr)
	}
	m.silence.Stop()
	if m.link != nil {
		m.link.cut <- end
		m.link = nil
	}
	c.step(job.Lost{Node: m.name, Why: why})
}
