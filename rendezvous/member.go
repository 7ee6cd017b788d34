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
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/replica"
	"github.com/golaunch/golaunch/internal/wire"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rendezvous/internal/server"
)

// member is an agent as the coordinator sees it, from its first hello until it is lost. It belongs
// to the goroutine of Run.
type member struct {
	name     string
	instance string
	addr     netip.Addr
	// machine is the value of the node's [placement.MachineLabel].
	machine string
	// stream is the connection to the agent; nil while there is none.
	stream *server.AgentStream
	server.LeaseMonitor
	// excused is when the agent was last heard before this process itself was paused. After such a
	// pause the agent gets a little more time, once.
	excused time.Time
	// taken is the number of the agent's newest report.
	taken atomic.Uint64
	// fenced says why the agent may not come back. The agent is lost once its lease is over.
	fenced string
	// leaving says that the agent is about to leave and waits only for the end of its ranks. gone
	// is closed when the agent has left or is lost.
	leaving bool
	gone    chan struct{}
	// inactive says that jobs cannot use the node yet, because activate has not accepted it.
	// restated says that the agent has reported which attempts it runs. unknown are those of its
	// attempts that are not in the coordinator's state.
	inactive bool
	restated bool
	unknown  map[attemptOnNode]bool
}

// attemptOnNode is an attempt that an agent runs.
type attemptOnNode struct {
	job           string
	unit, attempt int
}

// admit admits a new agent, or an agent that is back. from is the node in the agent's certificate,
// if any.
func (c *Coordinator) admit(s *server.AgentStream, h *pb.Hello, from string) (*member, error) {
	node := wire.ToNode(h.GetNode())
	if err := c.refusal(h, from); err != nil {
		c.endIfTooFew(h, err)
		return nil, err
	}
	m := c.members[node.Name]
	back := m != nil
	if !back {
		// A later coordinator may not know the agent, and then admits it anew. This is safe,
		// because the agent has no ranks before the log has stored its admission.
		known := replica.Member{Node: node, Instance: h.GetInstance(), Patience: c.patience()}
		m = c.expect(known)
		c.apply(replica.Entry{At: now(), Admitted: &known})
		c.noteCluster("node %s is here: %v, %d GPUs", node.Name, node.Addr, len(node.GPUs))
		c.compareClocks(m.name, h.GetTime().AsTime())
	}
	if c.onlyJob != nil {
		c.everJoined[node.Name] = true
		// A refused node with the name of this process's node is another node, which stays refused.
		if !c.cfg.LocalNode.named(node.Name) {
			delete(c.refused, node.Name)
		}
	}
	if m.stream != nil {
		m.stream.Cut <- status.Error(codes.Aborted, "a newer connection of this agent is here")
	}
	m.stream = s
	m.Answer(s)
	s.Conn.Node = m.name
	s.Conn.OnDeath(h.GetCommitment(), func(outOfMemory bool) { c.post(func() { c.died(m, outOfMemory) }) })
	m.Hear()
	welcome := &pb.Welcome{Epoch: c.state.Epoch, Lease: durationpb.New(c.cfg.Lease), Heartbeat: heartbeatReply(h.GetHeartbeat())}
	if c.onlyJob != nil {
		welcome.JobId, welcome.Workspace = c.onlyJob.Job.ID, wire.FromWorkspace(c.onlyJob.Workspace)
	}
	c.queue(m, c.log.Vouch, &pb.ToAgent{Body: &pb.ToAgent_Welcome{Welcome: welcome}})
	c.succession.offer(m, h.GetVoter())
	switch {
	case c.onlyJob != nil && c.onlyJob.Result != nil:
		c.sendOrder(m, c.onlyJob.Job.ID, job.Finish{Result: *c.onlyJob.Result})
	case back && !m.inactive:
		c.applyEvent(cluster.Rejoined{Node: m.name})
	case back: // the agent has not reported yet what it runs
	default:
		m.inactive, m.restated = true, h.GetEpoch() == ""
		c.nodeCameIn()
		c.activate(m)
	}
	c.queries.agentBack(m) // after the orders that tell the agent its jobs
	return m, nil
}

// expect adds an agent that has joined or should come back. The agent is lost if it stays silent
// for its patience.
func (c *Coordinator) expect(known replica.Member) *member {
	m := &member{
		name: known.Node.Name, addr: known.Node.Addr, machine: known.Node.Labels[placement.MachineLabel],
		instance: known.Instance, gone: make(chan struct{}),
	}
	m.Start(known.Patience, func() {
		fired := time.Now()
		c.post(func() { c.silent(m, fired) })
	})
	c.roster.add(m)
	return m
}

func (m *member) unlink() {
	m.stream = nil
	m.Answer(nil)
}

// streamEnded notes that the stream of an agent has ended. The agent may come back within its
// lease.
func (c *Coordinator) streamEnded(m *member, s *server.AgentStream) {
	c.takeAll(m, s) // including the last messages of the stream
	delete(c.succession.departing, s)
	if m.stream == s {
		m.unlink()
	}
}

// died notes the proof that an agent and its ranks are dead.
func (c *Coordinator) died(m *member, outOfMemory bool) {
	if c.members[m.name] == m {
		why := "its agent has died"
		if outOfMemory {
			why += ": the kernel killed it (out of memory)"
		}
		why = cmp.Or(m.fenced, why)
		c.noteCluster("node %s was lost: %s", m.name, why)
		c.removeMember(m, why, nil)
	}
}

// silent removes an agent if it has been silent for too long. fired is when the timer fired.
func (c *Coordinator) silent(m *member, fired time.Time) {
	heard, by := m.Overdue(fired)
	switch {
	case c.members[m.name] != m || by < 0:
	case by > wire.Paused && m.excused != heard:
		// This process was paused, so the agent may not have been silent.
		m.excused = heard
		m.Answer(m.stream)
		m.Reprieve(wire.Reprieval)
	default:
		why := cmp.Or(m.fenced, fmt.Sprintf("its agent was silent for %v", m.Patience))
		c.noteCluster("node %s was lost: %s", m.name, why)
		c.removeMember(m, why, wire.Refused("node %s was counted as lost: %s", m.name, why))
	}
}

// fence cuts off an agent that does not read its orders. The agent is lost once its lease is over.
func (c *Coordinator) fence(m *member, s *server.AgentStream) {
	if m.stream != s {
		return
	}
	m.fenced = fmt.Sprintf("its agent does not take its orders (%d wait)", server.MaxOrders)
	s.Conn.Close()
	m.unlink()
}

// removeMember forgets an agent. It ends the agent's stream with an error, or with nil if the agent
// asked to leave.
func (c *Coordinator) removeMember(m *member, why string, end error) {
	c.roster.remove(m)
	m.Stop()
	close(m.gone)
	c.succession.replace(m.name) // before the release below, because release waits until another node votes
	switch s := m.stream; {
	case s == nil:
	case end == nil:
		c.succession.release(m.name, s)
	default:
		c.log.Then(func() { s.Cut <- end })
	}
	m.unlink()
	c.queries.nodeLost(m.name)
	c.applyEvent(cluster.Lost{Node: m.name, Why: wire.Plain(why)})
}

// patience is how long an agent with this coordinator's lease must be silent until its ranks are
// certainly dead.
func (c *Coordinator) patience() time.Duration { return c.cfg.Lease + c.cfg.KillTime }

// roster is the coordinator's list of agents.
type roster struct {
	members map[string]*member
	// byAddr has the name of one node at each address.
	byAddr map[netip.Addr]string
	// everJoined are nodes that have been members of the only job under this coordinator. refused
	// are nodes that this coordinator has refused and not admitted later. tooFewNodes says that the
	// job ended because of refusals.
	everJoined, refused map[string]bool
	tooFewNodes         bool
	// allNodesKnown says that the only job does not have to wait for more of its nodes.
	allNodesKnown bool
	// restored says that an earlier coordinator has admitted agents.
	restored bool
}

func newRoster(allNodesKnown bool) roster {
	return roster{
		members: map[string]*member{}, byAddr: map[netip.Addr]string{},
		everJoined: map[string]bool{}, refused: map[string]bool{}, allNodesKnown: allNodesKnown,
	}
}

func (r *roster) member(node string) (*member, error) {
	if m := r.members[node]; m != nil {
		return m, nil
	}
	return nil, status.Error(codes.NotFound, wire.Plain(fmt.Sprintf("there is no node %q here; golaunch status lists them", node)))
}

func (r *roster) add(m *member) { r.members[m.name], r.byAddr[m.addr] = m, m.name }

// remove removes an agent. If another agent of the same machine shares the address, byAddr names
// that agent from then on.
func (r *roster) remove(m *member) {
	delete(r.members, m.name)
	if r.byAddr[m.addr] != m.name {
		return
	}
	delete(r.byAddr, m.addr)
	if m.machine == "" {
		return
	}
	for name, other := range r.members {
		if other.addr == m.addr {
			r.byAddr[m.addr] = name
			return
		}
	}
}

// nodeCameIn checks whether all nodes that the only job waits for have joined.
func (c *Coordinator) nodeCameIn() {
	switch n := len(c.members); {
	case c.allNodesKnown:
	case n >= c.cfg.AllNodes:
		c.activateAll()
	case n == c.onlyJob.Job.Request.MinNodes:
		c.say(fmt.Sprintf("%d of %d nodes are here, which is enough; but ranks of an earlier start may still run on the others, which have %v to join",
			n, c.cfg.AllNodes, time.Until(c.started.Add(c.patience())).Round(time.Second)))
	}
}

// activateAll ends the wait for all nodes of the job, and activates the nodes that have joined.
func (c *Coordinator) activateAll() {
	if c.allNodesKnown {
		return
	}
	c.allNodesKnown = true
	for _, name := range slices.Sorted(maps.Keys(c.members)) {
		c.activate(c.members[name])
	}
}

// activate lets jobs use a node, once its agent has reported which attempts it runs and the
// coordinator knows all of them.
func (c *Coordinator) activate(m *member) {
	if m.inactive && m.restated && len(m.unknown) == 0 && c.allNodesKnown {
		m.inactive = false
		c.applyEvent(cluster.Joined{Node: c.state.Members[m.name].Node})
	}
}

// shares reports whether a node is on the machine of a member. Only then may both have the same
// address.
func (m *member) shares(n placement.Node) bool {
	return m.machine != "" && m.machine == n.Labels[placement.MachineLabel]
}
