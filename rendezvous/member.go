package rendezvous

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/replica"
	"github.com/golaunch/golaunch/internal/wire"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// member is an agent as its coordinator sees it, from its first hello until it is lost. It belongs to the goroutine of Run.
type member struct {
	name     string
	instance string
	addr     netip.Addr
	// machine is its [placement.MachineLabel].
	machine string
	// link is the stream to the agent, nil while there is none.
	link *link
	// pulse tells how long it has been silent. excused is since when it had been when the coordinator itself was paused as it should have been
	// told of that, which gives the agent a little more time.
	pulse
	excused time.Time
	// taken is the number of its newest report.
	taken atomic.Uint64
	// fenced says why it may not come back; it is lost once its lease is over.
	fenced string
	// leaving says that it is about to go, with nothing that it waits for but the end of its ranks; gone is closed when it has left, or is
	// lost.
	leaving bool
	gone    chan struct{}
	// node is what it said of itself, for as long as the jobs are not told of it: until it has restated what it runs and none of
	// that is astray. Then it is nil.
	node     *placement.Node
	restated bool
	astray   map[stray]bool
}

// stray is an attempt that lives on a node where nothing knows of it.
type stray struct {
	job           string
	unit, attempt int
}

// admit takes in a new agent, or one that is back. from is the node in its certificate, if any.
func (c *Coordinator) admit(l *link, h *pb.Hello, from string) (*member, error) {
	node := wire.ToNode(h.GetNode())
	if err := c.refusal(h, from); err != nil {
		c.turnedAway(h, err)
		return nil, err
	}
	m := c.members[node.Name]
	back := m != nil
	if !back { // a later coordinator that does not know it has it join anew: it has no ranks before it is known
		taken := replica.Member{Node: node, Instance: h.GetInstance(), Patience: c.patience()}
		m = c.expect(taken)
		c.step(replica.Entry{At: now(), Admitted: &taken})
		c.note("node %s is here: %v, %d GPUs", node.Name, node.Addr, len(node.GPUs))
		c.compareClocks(m.name, h.GetTime().AsTime())
	}
	if c.sole != nil {
		c.came[node.Name] = true
		delete(c.unwelcome, node.Name)
	}
	if m.link != nil {
		m.link.cut <- status.Error(codes.Aborted, "a newer connection of this agent is here")
	}
	m.link = l
	m.answers(l)
	l.conn.Node = m.name
	l.conn.OnDeath(h.GetCommitment(), func(starved bool) { c.post(func() { c.died(m, starved) }) })
	m.hear()
	c.queue(m, c.log.Vouch, &pb.ToAgent{Body: &pb.ToAgent_Welcome{Welcome: &pb.Welcome{
		JobId: c.soleID(), Epoch: c.state.Epoch,
		Lease: durationpb.New(c.cfg.Lease), Heartbeat: echo(h.GetHeartbeat()),
	}}})
	c.nominate(m, h.GetVoter())
	switch {
	case c.sole != nil && c.sole.Result != nil:
		c.send(m, wire.FromOrder(wire.Order{Job: c.sole.Job.ID, Do: job.Finish{Result: *c.sole.Result}}))
	case back && m.node == nil:
		c.cause(cluster.Rejoined{Node: m.name})
	case back: // what it runs is not known yet
	default:
		m.node, m.restated = &node, h.GetEpoch() == ""
		c.gathered()
		c.employ(m)
	}
	c.readAgain(m) // when it knows of its jobs
	return m, nil
}

// gathered sees whether all nodes are here that the job of Run waits for.
func (c *Coordinator) gathered() {
	switch n := len(c.members); {
	case c.whole:
	case n >= c.cfg.Whole:
		c.assemble()
	case n == c.sole.Job.Request.MinNodes:
		c.say(fmt.Sprintf("%d of %d nodes are here, which is enough; ranks of this job from before may live on the others: these have %v to come",
			n, c.cfg.Whole, time.Until(c.since.Add(c.patience())).Round(time.Second)))
	}
}

// assemble takes into use what has waited for all nodes of the job to be here.
func (c *Coordinator) assemble() {
	if c.whole {
		return
	}
	c.whole = true
	for _, name := range slices.Sorted(maps.Keys(c.members)) {
		c.employ(c.members[name])
	}
}

// employ has the jobs know of a node that is new to them, when it has said what it runs and nothing of that is astray.
func (c *Coordinator) employ(m *member) {
	if m.node != nil && m.restated && len(m.astray) == 0 && c.whole {
		node := *m.node
		m.node = nil
		c.cause(cluster.Joined{Node: node})
	}
}

// expect makes a member of an agent that is about to come; it is lost when it does not.
func (c *Coordinator) expect(of replica.Member) *member {
	m := &member{
		name: of.Node.Name, addr: of.Node.Addr, machine: of.Node.Labels[placement.MachineLabel], instance: of.Instance, gone: make(chan struct{}),
	}
	m.begin(of.Patience, func() {
		fired := time.Now()
		c.post(func() { c.silent(m, fired) })
	})
	c.members[m.name], c.addrs[m.addr] = m, m.name
	return m
}

func (c *Coordinator) soleID() string {
	if c.sole == nil {
		return ""
	}
	return c.sole.Job.ID
}

// maxSkew is how far apart clocks may be before a user hears of it: logs of nodes are then hard to compare.
const maxSkew = time.Minute

func (c *Coordinator) compareClocks(name string, theirs time.Time) {
	skew, side := time.Until(theirs).Round(time.Second), "ahead of"
	if skew < 0 {
		skew, side = -skew, "behind"
	}
	if skew > maxSkew {
		c.warn(fmt.Errorf("the clock of node %s is %v %s the coordinator's; is NTP running there?", name, skew, side))
	}
}

// patience is the silence after which the ranks of an agent are dead that is given this coordinator's lease.
func (c *Coordinator) patience() time.Duration { return c.cfg.Lease + c.cfg.KillTime }

// Take handles what an agent says on a link. No report is taken twice: what a new link brings starts after what was taken when it
// was welcomed, and what is still in the old one is dropped.
func (c *Coordinator) take(m *member, l *link, msg *pb.FromAgent) {
	if m.link != l {
		return
	}
	m.hear()
	switch b := msg.GetBody().(type) {
	case *pb.FromAgent_Heartbeat:
		c.queue(m, c.log.Vouch, &pb.ToAgent{Body: &pb.ToAgent_Heartbeat{Heartbeat: echo(b.Heartbeat)}})
		return
	case *pb.FromAgent_Goodbye:
		why := cmp.Or(wire.Plain(b.Goodbye.GetWhy()), "its agent has left")
		c.note("node %s is gone: %s", m.name, why)
		c.lost(m, why, nil)
		return
	}
	m.taken.Store(msg.GetSeq())
	if msg.GetSeq()%wire.AckEvery == 0 {
		defer c.send(m, &pb.ToAgent{})
	}
	if d := msg.GetDraining(); d != nil {
		within, why := min(d.GetWithin().AsDuration(), maxNotice), wire.Plain(d.GetWhy())
		switch sig := int(d.GetSignal()); {
		case d.GetAll() && c.sole != nil && sig != 0:
			c.happened(c.sole, job.Signalled(sig, why, within))
		case d.GetAll() && c.sole != nil && within > 0:
			c.happened(c.sole, Preempted(why, within, true))
		default:
			m.leaving = within <= 0
			c.leaves(m.name, within, why)
		}
		return
	}
	r := c.runs[msg.GetJob()]
	if msg.GetOpened() != nil && (r == nil || r.Result != nil) {
		c.finished(m, msg.GetJob(), r)
	}
	ev := wire.ToEvent(m.name, msg)
	if met := msg.GetMet(); met != nil {
		ev = job.Met{
			Node: m.name, Unit: int(met.GetUnit()), Attempt: int(met.GetAttempt()), Why: wire.Plain(c.state.Cluster.Meeting(msg.GetJob(), wire.ToMeeting(met))),
		}
	}
	c.clear(m, msg, ev)
	if ev != nil && r != nil && r.Result == nil {
		c.happened(r, ev)
	}
}

// maxNotice bounds the time that ranks have to get ready.
const maxNotice = 24 * time.Hour

// finished tells an agent that a job is over of which it does not know that.
func (c *Coordinator) finished(m *member, id string, r *run) {
	result := report.Result{Code: 125, Reason: "the coordinator does not know this job"}
	if r != nil {
		result = *r.Result
	}
	c.send(m, wire.FromOrder(wire.Order{Job: id, Do: job.Finish{Result: result}}))
}

// clear ends what is astray on a node: attempts of which the journals of a coordinator before this one do not know. The node is
// taken into use when it has said what it runs and nothing of that is astray.
func (c *Coordinator) clear(m *member, msg *pb.FromAgent, ev job.Event) {
	switch e := ev.(type) {
	case job.Started:
		if !c.state.Cluster.Live(msg.GetJob(), m.name, e.Unit, e.Attempt) {
			if m.astray == nil {
				m.astray = map[stray]bool{}
			}
			m.astray[stray{msg.GetJob(), e.Unit, e.Attempt}] = true
			c.kill(m, msg.GetJob(), e.Unit, e.Attempt)
		}
	case job.Stopped:
		delete(m.astray, stray{msg.GetJob(), e.Unit, e.Attempt})
	default: // it begins and ends nothing
	}
	if msg.GetRestated() != nil {
		m.restated = true
	}
	c.employ(m)
}

// kill ends an attempt that is astray, and those before it that should live there in its place: they do not.
func (c *Coordinator) kill(m *member, id string, unit, attempt int) {
	stop := func(attempt int) {
		c.send(m, wire.FromOrder(wire.Order{Job: id, Do: job.Stop{Node: m.name, Unit: unit, Attempt: attempt, Kill: true}}))
	}
	stop(attempt)
	if c.runs[id] == nil {
		return
	}
	status, _ := c.state.Cluster.Job(id)
	for earlier := range min(attempt, status.Summary.Attempt+1) {
		if c.state.Cluster.Live(id, m.name, unit, earlier) {
			stop(earlier)
		}
	}
}

func (c *Coordinator) send(m *member, msg *pb.ToAgent) { c.queue(m, c.log.Then, msg) }

// queue has a message for an agent wait until it may be seen. One that does not take its messages is cut off: to wait for it would
// hold up the job.
func (c *Coordinator) queue(m *member, once func(func()), msg *pb.ToAgent) {
	if m.link == nil {
		return
	}
	if size := proto.Size(msg); size > wire.MaxReport { // it would break the stream, and the next one
		c.warn(fmt.Errorf("node %s is not told of %T of job %s: %d bytes, %d at most", m.name, msg.GetBody(), msg.GetJob(), size, wire.MaxReport))
		return
	}
	msg.Acked = m.taken.Load()
	l := m.link
	once(func() {
		if !l.push(msg) {
			c.clogged(m, l)
		}
	})
}

// clogged cuts an agent off that does not take what is sent to it.
func (c *Coordinator) clogged(m *member, l *link) {
	if m.link != l {
		return
	}
	m.fenced = fmt.Sprintf("its agent does not take its orders (%d wait)", maxOrders)
	l.conn.Close()
	m.unlink()
}

func (m *member) unlink() {
	m.link = nil
	m.answers(nil)
}

// broken notes that a link has ended. Its agent may come back within its lease.
func (c *Coordinator) broken(m *member, l *link) {
	c.takeAll(m, l) // its last words among them
	delete(c.parting, l)
	if m.link == l {
		m.unlink()
	}
}

// died hears that an agent and its ranks are proven to be dead.
func (c *Coordinator) died(m *member, starved bool) {
	if c.members[m.name] == m {
		why := "its agent has died"
		if starved {
			why += ": the kernel killed it (out of memory)"
		}
		why = cmp.Or(m.fenced, why)
		c.note("node %s was lost: %s", m.name, why)
		c.lost(m, why, nil)
	}
}

// silent hears that an agent has been silent for too long, if it has; fired is when the timer said so.
func (c *Coordinator) silent(m *member, fired time.Time) {
	heard, late := m.late(fired)
	switch {
	case c.members[m.name] != m || late < 0:
	case late > wire.Paused && m.excused != heard: // this process was paused too
		m.excused = heard
		m.answers(m.link)
		m.silence.Reset(wire.Reprieval)
	default:
		why := cmp.Or(m.fenced, fmt.Sprintf("no word from its agent for %v", m.patience))
		c.note("node %s was lost: %s", m.name, why)
		c.lost(m, why, wire.Refused("node %s was counted as lost: %s", m.name, why))
	}
}

// lost forgets an agent and ends its stream with the given error, nil when it has asked for that.
func (c *Coordinator) lost(m *member, why string, end error) {
	delete(c.members, m.name)
	c.leaveAddr(m)
	m.silence.Stop()
	m.answers(nil)
	close(m.gone)
	c.replaceVoter(m.name) // before it is let go
	switch l := m.link; {
	case l == nil:
	case end == nil:
		c.part(m.name, l)
	default:
		c.log.Then(func() { l.cut <- end })
	}
	m.unlink()
	c.readLost(m.name)
	c.cause(cluster.Lost{Node: m.name, Why: wire.Plain(why)})
}

// order gives an order to a node. One whose connection is broken gets it when it is back ([job.Rejoined]).
func (c *Coordinator) order(node, job string, do any) {
	if m := c.members[node]; m != nil {
		for _, msg := range wire.FromOrders(wire.Order{Job: job, Do: do}) {
			c.send(m, msg)
		}
	}
}

func (c *Coordinator) broadcast(job string, do any) {
	for _, m := range c.members {
		c.send(m, wire.FromOrder(wire.Order{Job: job, Do: do}))
	}
}
