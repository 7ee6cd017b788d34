package rendezvous

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/golaunch/golaunch/internal/job"
	pb "github.com/golaunch/golaunch/rendezvous/rendezvouspb"
)

// protocol changes when an older agent or coordinator could misunderstand a newer one.
const protocol = 1

// maxSkew is how far apart clocks may be before a user hears of it: logs of nodes are then hard to compare.
const maxSkew = time.Minute

// member is an agent as its coordinator sees it, from its first hello until it is lost. It belongs to the goroutine of Run.
type member struct {
	name, instance string
	addr           netip.Addr
	// link is the stream to the agent, nil while there is none; conn is its newest connection, there or not.
	link *link
	conn *watchedConn
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

// refused is the error with which a stream ends that the agent must not open again.
func refused(format string, args ...any) error {
	return status.Error(codes.FailedPrecondition, plain(fmt.Sprintf(format, args...)))
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
		if skew := time.Since(h.GetTime().AsTime()).Round(time.Second); skew.Abs() > maxSkew {
			c.cfg.Warn(fmt.Errorf("the clock of node %s is %v %s the coordinator's; is NTP running there?", m.name, skew.Abs(), side(skew)))
		}
	}
	if m.link != nil {
		m.link.cut <- status.Error(codes.Aborted, "a newer connection of this agent is here")
	}
	m.link, m.conn = l, l.conn
	m.conn.onPeerClose(func() { c.post(func() { c.closed(m, l.conn) }) })
	c.hear(m)
	c.send(m, &pb.ToAgent{Body: &pb.ToAgent_Welcome{Welcome: &pb.Welcome{JobId: c.cfg.Spec.ID, Epoch: c.epoch,
		Lease: durationpb.New(c.cfg.Lease), Heartbeat: h.GetHeartbeat()}}})
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

func side(skew time.Duration) string {
	if skew > 0 {
		return "behind"
	}
	return "ahead of"
}

// objection says why an agent cannot be taken in.
func (c *Coordinator) objection(h *pb.Hello, from string) error {
	node := toNode(h.GetNode())
	old := c.members[node.Name]
	switch why := different(c.cfg.Facts, h.GetFacts()); {
	case h.GetProtocol() != protocol:
		return refused("golaunch %s here and %s on the coordinator do not understand each other; install the same on both",
			h.GetVersion(), version())
	case !validName(node.Name):
		return refused("%q is no node name; use letters, digits, dots, dashes and underscores, 253 at most", node.Name)
	case from != "" && from != node.Name:
		return refused("node %s shows a certificate of node %s", node.Name, from)
	case why != "":
		return refused("%s", why)
	case !node.Addr.IsValid() || node.Addr.IsUnspecified() || node.Addr.IsMulticast():
		return refused("node %s has no address that others could reach (%q); set --address", node.Name, h.GetNode().GetAddr())
	case old != nil && old.instance == h.GetInstance() && old.fenced == "":
		return nil
	case h.GetEpoch() != "" && h.GetEpoch() != c.epoch:
		return refused("this is another coordinator than the one that node %s had joined", node.Name)
	case h.GetEpoch() != "":
		return refused("node %s was counted as lost", node.Name)
	case old != nil:
		return refused("there is a node %s already, at %v; give each node its own --name", node.Name, old.addr)
	case c.addrs[node.Addr] != "" && !c.cfg.Spec.Request.SharedAddr:
		return refused("address %v is node %s's; give each node its own --address", node.Addr, c.addrs[node.Addr])
	}
	return nil
}

// different names the first fact that is not the same on both sides. An agent without facts goes along with any job.
func different(coordinator, agent map[string]string) string {
	if len(agent) == 0 {
		return ""
	}
	all := maps.Clone(agent)
	maps.Copy(all, coordinator)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if a, b := agent[name], coordinator[name]; a != b {
			return fmt.Sprintf("%s differs: %s here, %s on the coordinator", name, cmp.Or(a, "unset"), cmp.Or(b, "unset"))
		}
	}
	return ""
}

// validName keeps names harmless in paths, terminals and environment variables.
func validName(s string) bool {
	odd := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(".-_", r))
	}
	return s != "" && len(s) <= 253 && s[0] != '.' && s[0] != '-' && !strings.ContainsFunc(s, odd)
}

func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(unknown)"
	}
	return info.Main.Version
}

// patience is the silence after which an agent's ranks must be dead.
func (c *Coordinator) patience() time.Duration { return c.cfg.Lease + c.cfg.KillTime }

func (c *Coordinator) hear(m *member) {
	m.heard = time.Now()
	m.silence.Reset(c.patience())
}

// take handles what an agent says on a link. A report that came before, on another link, is not taken twice.
func (c *Coordinator) take(m *member, l *link, msg *pb.FromAgent) {
	if m.link != l {
		return
	}
	c.hear(m)
	switch b := msg.GetBody().(type) {
	case *pb.FromAgent_Heartbeat:
		c.send(m, &pb.ToAgent{Body: &pb.ToAgent_Heartbeat{Heartbeat: b.Heartbeat}})
		return
	case *pb.FromAgent_Goodbye:
		c.lost(m, cmp.Or(plain(b.Goodbye.GetWhy()), "its agent has left"), nil)
		return
	}
	ev := toEvent(m.name, msg)
	if ev == nil || msg.GetSeq() <= m.taken {
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

// closed hears that an agent's end of a connection was closed, which means that its ranks are dead unless it has a newer one.
func (c *Coordinator) closed(m *member, conn *watchedConn) {
	if c.members[m.name] == m && m.conn == conn {
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
