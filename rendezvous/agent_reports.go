package rendezvous

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/lighthouse"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/plainpb"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rendezvous/internal/cohorts"
	"github.com/golaunch/golaunch/rendezvous/internal/server"
)

// receive handles what agents have sent.
func (c *Coordinator) receive() {
	for _, s := range c.ready.next() {
		c.takeAll(s.member, s.stream)
	}
}

func (c *Coordinator) takeAll(m *member, s *server.AgentStream) {
	for _, msg := range s.Take() {
		c.take(m, s, msg)
	}
}

// maxNotice bounds the time that ranks get to prepare before they must end.
const maxNotice = 24 * time.Hour

// take handles a message of an agent. It handles no report twice: when a stream begins, the agent
// learns which reports were handled and sends only later ones. take drops the rest of the old
// stream.
func (c *Coordinator) take(m *member, s *server.AgentStream, msg *pb.FromAgent) {
	if m.stream != s {
		return
	}
	m.Hear()
	if b := msg.GetGoodbye(); b != nil {
		why := cmp.Or(wire.Plain(b.GetWhy()), "its agent has left")
		c.noteCluster("node %s is gone: %s", m.name, why)
		c.removeMember(m, why, nil)
		return
	}
	m.taken.Store(msg.GetSeq())
	if msg.GetSeq()%wire.AckEvery == 0 {
		defer c.send(m, &pb.ToAgent{})
	}
	if d := msg.GetDraining(); d != nil {
		c.drainRequested(m, d)
		return
	}
	if f := msg.GetFreed(); f != nil {
		c.gpusFreed(m, f)
		return
	}
	j := c.jobs[msg.GetJob()]
	if msg.GetOpened() != nil && (j == nil || j.Result != nil) {
		c.sendResult(m, msg.GetJob(), j)
	}
	if r := msg.GetReplica(); r != nil {
		if j != nil && j.Result == nil {
			c.replicaReported(m, j, wire.ToReplica(r))
		}
		return
	}
	ev := wire.ToEvent(m.name, msg)
	if met := msg.GetMet(); met != nil {
		why, all := c.state.Cluster.Meeting(msg.GetJob(), wire.ToMeeting(met))
		ev = job.Met{Node: m.name, Unit: int(met.GetUnit()), Attempt: int(met.GetAttempt()), Why: wire.Plain(why), Complete: all}
	}
	c.killUnknown(m, msg, ev)
	if ev != nil && j != nil && j.Result == nil {
		c.applyJobEvent(j, ev)
	}
}

// drainRequested handles an agent's message that ranks must leave its node, or all nodes of the
// only job.
func (c *Coordinator) drainRequested(m *member, d *pb.Draining) {
	within, why := min(d.GetWithin().AsDuration(), maxNotice), wire.Plain(d.GetWhy())
	switch sig := int(d.GetSignal()); {
	case d.GetAll() && c.onlyJob != nil && sig != 0:
		c.applyJobEvent(c.onlyJob, job.Signalled(sig, why, within))
	case d.GetAll() && c.onlyJob != nil && within > 0:
		c.applyJobEvent(c.onlyJob, Preempted(why, within, true))
	default:
		m.leaving = within <= 0
		c.vacate(m.name, within, why)
	}
}

// gpusFreed lets jobs use GPUs that other programs held when the node joined. It ignores GPUs that
// the node has reported before.
func (c *Coordinator) gpusFreed(m *member, f *pb.Freed) {
	node := c.state.Members[m.name].Node
	var freed []int
	for _, g := range f.GetGpus() {
		i := slices.IndexFunc(node.GPUs, func(own placement.GPU) bool { return own.Index == int(g.GetIndex()) && own.UUID == g.GetUuid() })
		if i < 0 {
			c.warn(fmt.Errorf("node %s reports that its gpu%d, %s, is free, but did not join with such a GPU", m.name, g.GetIndex(), wire.Plain(g.GetUuid())))
			return
		}
		if node.GPUs[i].HeldBy != "" && !slices.Contains(freed, node.GPUs[i].Index) {
			freed = append(freed, node.GPUs[i].Index)
		}
	}
	if len(freed) == 0 {
		return
	}
	ev := cluster.Freed{Node: m.name, GPUs: freed}
	c.applyEvent(ev)
	c.noteCluster("node %v", job.Freed(ev))
}

// replicaReported handles an agent's report of a torchft replica.
func (c *Coordinator) replicaReported(m *member, j *trackedJob, r wire.Replica) {
	if !c.state.Cluster.Trains(j.Job.ID, r.Unit, r.Attempt) || !c.state.Cluster.Live(j.Job.ID, m.name, r.Unit, r.Attempt) {
		return
	}
	if j.cohorts == nil {
		j.cohorts = cohorts.New(groupedJob{c, j}, j.Job.MinGroups, func(f func()) { c.post(f) })
	}
	j.cohorts.Reported(m.name, r)
}

// groupedJob is a job with replica groups.
type groupedJob struct {
	c *Coordinator
	j *trackedJob
}

func (g groupedJob) Over() bool            { return g.j.Result != nil }
func (g groupedJob) Attempt(group int) int { return g.c.state.Cluster.Attempt(g.j.Job.ID, group) }
func (g groupedJob) Trains(group, attempt int) bool {
	return g.c.state.Cluster.Trains(g.j.Job.ID, group, attempt)
}

func (g groupedJob) Cohort() (id int64, members []lighthouse.Replica) {
	return g.c.state.Cluster.Cohort(g.j.Job.ID)
}
func (g groupedJob) Happened(ev job.Cohort) { g.c.applyJobEvent(g.j, ev) }

func (g groupedJob) Answer(node string, cohort wire.Cohort) {
	g.c.order(node, g.j.Job.ID, cohort)
}

// sendResult tells an agent that a job is over.
func (c *Coordinator) sendResult(m *member, id string, j *trackedJob) {
	result := report.Result{Code: 125, Reason: "the coordinator does not know this job"}
	if j != nil {
		result = *j.Result
	}
	c.sendOrder(m, id, job.Finish{Result: result})
}

// killUnknown kills attempts on a node that are not in the coordinator's log. It activates the node
// once its agent has reported what it runs and has no unknown attempt left.
func (c *Coordinator) killUnknown(m *member, msg *pb.FromAgent, ev job.Event) {
	switch e := ev.(type) {
	case job.Started:
		if !c.state.Cluster.Live(msg.GetJob(), m.name, e.Unit, e.Attempt) {
			if m.unknown == nil {
				m.unknown = map[attemptOnNode]bool{}
			}
			m.unknown[attemptOnNode{msg.GetJob(), e.Unit, e.Attempt}] = true
			c.kill(m, msg.GetJob(), e.Unit, e.Attempt)
		}
	case job.Stopped:
		delete(m.unknown, attemptOnNode{msg.GetJob(), e.Unit, e.Attempt})
	default: // other events neither start nor stop an attempt
	}
	if msg.GetRestated() != nil {
		m.restated = true
	}
	c.activate(m)
}

// kill kills an unknown attempt. It also stops earlier attempts that should run on the node
// according to the log: these attempts are dead, because a later one runs.
func (c *Coordinator) kill(m *member, id string, unit, attempt int) {
	stop := func(attempt int) {
		c.sendOrder(m, id, job.Stop{Node: m.name, Unit: unit, Attempt: attempt, Kill: true})
	}
	stop(attempt)
	if c.jobs[id] == nil {
		return
	}
	status, _ := c.state.Cluster.Job(id)
	for earlier := range min(attempt, status.Summary.Attempt+1) {
		if c.state.Cluster.Live(id, m.name, unit, earlier) {
			stop(earlier)
		}
	}
}

// order sends an order to a node. If the node's connection is broken, the node gets the order when
// it is back ([job.Rejoined]).
func (c *Coordinator) order(node, job string, do any) {
	if m := c.members[node]; m != nil {
		c.sendOrder(m, job, do)
	}
}

func (c *Coordinator) broadcast(job string, do any) {
	for _, m := range c.members {
		c.sendOrder(m, job, do)
	}
}

func (c *Coordinator) sendOrder(m *member, job string, do any) {
	for _, msg := range wire.FromOrder(wire.Order{Job: job, Do: do}) {
		c.send(m, msg)
	}
}

func (c *Coordinator) send(m *member, msg *pb.ToAgent) { c.queue(m, c.log.Then, msg) }

// queue sends a message to an agent once others may see the effects of the message. once is the
// Then or Vouch of the log. queue cuts off an agent that does not read its messages, because
// waiting for the agent would delay the job.
func (c *Coordinator) queue(m *member, once func(func()), msg *pb.ToAgent) {
	if m.stream == nil {
		return
	}
	if size := plainpb.Oversize(msg, wire.MaxReport); size > 0 { // the message would break this stream, and then each new stream
		c.warn(fmt.Errorf("node %s does not get %T of job %s: %d bytes, %d at most", m.name, msg.GetBody(), msg.GetJob(), size, wire.MaxReport))
		return
	}
	msg.Acked = m.taken.Load()
	s := m.stream
	once(func() {
		if !s.Push(msg) {
			c.fence(m, s)
		}
	})
}
