package rendezvous

import (
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/lighthouse"
	"github.com/golaunch/golaunch/internal/wire"
)

// What torchft's lighthouse takes as options. The wait for a replica that does not ask must be well
// below a minute, after which torchft's trainers give a step up. A replica beats ten times a second
// on its own node, so 2 s of silence are enough: torchft waits 5 s, which its groups lose whenever
// one of them is stopped.
const (
	joinTimeout   = 10 * time.Second
	beatTimeout   = 2 * time.Second
	lookEvery     = 100 * time.Millisecond
	reasonPersist = time.Second
	// takeover is how long the members of the last cohort have to be heard of when another process
	// coordinates. Agents that live are back sooner.
	takeover = 300 * time.Millisecond
)

// cohorts is the lighthouse of a job with replica groups. Only cohorts with a new ID are in the
// log: who asks is known to the agents, which say it again to the next coordinator.
type cohorts struct {
	c     *Coordinator
	j     *trackedJob
	state *lighthouse.State
	// from is where each group's replicas are, by group.
	from map[int]replicaOf
	// look fires when time may have made a cohort; nil while no replica asks.
	look *time.Timer
	// why is why there is none, since when. told is what people know of that.
	why   string
	since time.Time
	told  string
}

// replicaOf is the start of a replica group whose replicas a node reports.
type replicaOf struct {
	node    string
	attempt int
}

// replicaReported takes an agent's report of a replica.
func (c *Coordinator) replicaReported(m *member, j *trackedJob, r wire.Replica) {
	if !c.state.Cluster.Trains(j.Job.ID, r.Unit, r.Attempt) || !c.state.Cluster.Live(j.Job.ID, m.name, r.Unit, r.Attempt) {
		return
	}
	q := j.cohorts
	if q == nil {
		id, members := c.state.Cluster.Cohort(j.Job.ID)
		o := lighthouse.Options{MinReplicas: j.Job.MinGroups, JoinTimeout: joinTimeout, HeartbeatTimeout: beatTimeout}
		q = &cohorts{c: c, j: j, state: lighthouse.New(o, id, members, time.Now().Add(takeover-beatTimeout)), from: map[int]replicaOf{}}
		for _, of := range members { // whoever does not train any more is not waited for
			q.from[of.Group] = replicaOf{attempt: -1}
		}
		j.cohorts = q
	}
	q.from[r.Unit] = replicaOf{m.name, r.Attempt}
	q.drop()
	if r.Request.Call == 0 {
		q.step(lighthouse.Heartbeat{Replica: r.Request.Replica})
	} else {
		q.step(lighthouse.Asked{Request: r.Request})
	}
}

// dropReplicas takes the replica groups out of their cohorts that do not train any more.
func (c *Coordinator) dropReplicas() {
	for j := c.nextStepped(); j != nil; j = c.nextStepped() {
		j.cohorts.drop()
	}
}

// drop takes the groups out that do not train any more.
func (q *cohorts) drop() {
	if q.j.Result != nil {
		return
	}
	for group, of := range q.from {
		if of.attempt < 0 {
			of.attempt = q.c.state.Cluster.Attempt(q.j.Job.ID, group)
			q.from[group] = of
		}
		if !q.c.state.Cluster.Trains(q.j.Job.ID, group, of.attempt) {
			delete(q.from, group)
			q.step(lighthouse.Gone{Group: group})
		}
	}
}

// step has the lighthouse take an event, and carries out what follows.
func (q *cohorts) step(ev lighthouse.Event) {
	now := time.Now()
	o := q.state.Step(now, ev)
	if o.Cohort != nil {
		q.form(o)
	} else {
		q.lack(now, o.Why)
	}
	if q.look == nil && q.state.Asks() {
		q.look = time.AfterFunc(lookEvery, func() { q.c.post(q.looks) })
	}
}

func (q *cohorts) looks() {
	q.look = nil
	if q.j.Result == nil && q.state.Asks() {
		q.step(lighthouse.Tick{})
	}
}

// form tells the members of a cohort, once a new ID is kept.
func (q *cohorts) form(o lighthouse.Outcome) {
	formed := o.Cohort
	if o.Changed || q.told != "" {
		q.told = ""
		q.c.applyJobEvent(q.j, job.Cohort{ID: formed.ID, Members: formed.Replicas()})
	}
	q.why = ""
	members := make([][]byte, len(formed.Members))
	for i, m := range formed.Members {
		members[i] = m.Member
	}
	for _, m := range formed.Members {
		q.answer(m, wire.Cohort{ID: formed.ID, Created: formed.Created, Members: members})
	}
	for _, left := range o.Left {
		q.answer(left, wire.Cohort{})
	}
}

// answer tells the node of a replica. A node that is away asks again when it is back.
func (q *cohorts) answer(to lighthouse.Request, with wire.Cohort) {
	of, trains := q.from[to.Group]
	m := q.c.members[of.node]
	if !trains || m == nil {
		return
	}
	with.Unit, with.Attempt, with.Replica, with.Call = to.Group, of.attempt, to.ID, to.Call
	q.c.send(m, wire.FromOrder(wire.Order{Job: q.j.Job.ID, Do: with}))
}

// lack notes why there is no cohort, and tells people once that has been so for a while.
func (q *cohorts) lack(now time.Time, why string) {
	switch {
	case why != q.why:
		q.why, q.since = why, now
	case why != "" && why != q.told && now.Sub(q.since) >= reasonPersist:
		q.told = why
		id, members := q.c.state.Cluster.Cohort(q.j.Job.ID)
		q.c.applyJobEvent(q.j, job.Cohort{ID: id, Members: members, Why: why})
	}
}

func (q *cohorts) close() {
	if q != nil && q.look != nil {
		q.look.Stop()
	}
}
