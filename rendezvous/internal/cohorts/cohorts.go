// Package cohorts is the lighthouse of a job with replica groups, in the coordinator: it tells their
// nodes which groups train together.
package cohorts

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
	BeatTimeout   = 2 * time.Second
	reasonPersist = time.Second
	// DecideEvery is the time between two decisions while replicas ask.
	DecideEvery = 100 * time.Millisecond
	// takeover is how long the members of the last cohort have to be heard of when another process
	// coordinates. Agents that live are back sooner.
	takeover = 300 * time.Millisecond
)

// Job is the job, as the coordinator's state has it.
type Job interface {
	// Over reports whether the job is over.
	Over() bool
	// Attempt is the newest attempt of a group; -1 if there is no such group.
	Attempt(group int) int
	// Trains reports whether a group may be in a cohort.
	Trains(group, attempt int) bool
	// Cohort returns the newest cohort in the log.
	Cohort() (id int64, members []lighthouse.Replica)
	// Happened puts a cohort into the log.
	Happened(ev job.Cohort)
	// Answer tells a node, once the log is kept.
	Answer(node string, c wire.Cohort)
}

// Cohorts is the lighthouse of a job. Only cohorts with a new ID are in the log: who asks is known
// to the agents, which say it again to the next coordinator. It belongs to one goroutine.
type Cohorts struct {
	job   Job
	post  func(func())
	state *lighthouse.State
	// from is where each group's replicas are, by group.
	from map[int]replicaOf
	// timer fires when time may have made a cohort; nil while no replica asks.
	timer *time.Timer
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

// New returns the lighthouse of a job that needs so many groups. post has a function run by the
// goroutine that it belongs to.
func New(j Job, minGroups int, post func(func())) *Cohorts {
	id, members := j.Cohort()
	o := lighthouse.Options{MinReplicas: minGroups, JoinTimeout: joinTimeout, HeartbeatTimeout: BeatTimeout}
	c := &Cohorts{job: j, post: post, state: lighthouse.New(o, id, members, time.Now().Add(takeover-BeatTimeout)), from: map[int]replicaOf{}}
	for _, of := range members { // whoever does not train any more is not waited for
		c.from[of.Group] = replicaOf{attempt: -1}
	}
	return c
}

// Reported takes a node's report of a replica.
func (c *Cohorts) Reported(node string, r wire.Replica) {
	c.from[r.Unit] = replicaOf{node, r.Attempt}
	c.Drop()
	if r.Request.Call == 0 {
		c.step(lighthouse.Heartbeat{Replica: r.Request.Replica})
	} else {
		c.step(lighthouse.Asked{Request: r.Request})
	}
}

// Drop takes the groups out that do not train any more.
func (c *Cohorts) Drop() {
	if c.job.Over() {
		return
	}
	for group, of := range c.from {
		if of.attempt < 0 {
			of.attempt = c.job.Attempt(group)
			c.from[group] = of
		}
		if !c.job.Trains(group, of.attempt) {
			delete(c.from, group)
			c.step(lighthouse.Gone{Group: group})
		}
	}
}

// step has the lighthouse take an event, and carries out what follows.
func (c *Cohorts) step(ev lighthouse.Event) {
	now := time.Now()
	o := c.state.Step(now, ev)
	if o.Cohort != nil {
		c.form(o)
	} else {
		c.lack(now, o.Why)
	}
	if c.timer == nil && c.state.Asks() {
		c.timer = time.AfterFunc(DecideEvery, func() { c.post(c.timerFired) })
	}
}

func (c *Cohorts) timerFired() {
	c.timer = nil
	if !c.job.Over() && c.state.Asks() {
		c.step(lighthouse.Tick{})
	}
}

// form tells the members of a cohort, once a new ID is kept.
func (c *Cohorts) form(o lighthouse.Outcome) {
	formed := o.Cohort
	if o.Changed || c.told != "" {
		c.told = ""
		c.job.Happened(job.Cohort{ID: formed.ID, Members: formed.Replicas()})
	}
	c.why = ""
	members := make([][]byte, len(formed.Members))
	for i, m := range formed.Members {
		members[i] = m.Member
	}
	for _, m := range formed.Members {
		c.answer(m, wire.Cohort{ID: formed.ID, Created: formed.Created, Members: members})
	}
	for _, left := range o.Left {
		c.answer(left, wire.Cohort{})
	}
}

// answer tells the node of a replica. A node that is away asks again when it is back.
func (c *Cohorts) answer(to lighthouse.Request, with wire.Cohort) {
	of, trains := c.from[to.Group]
	if !trains {
		return
	}
	with.Unit, with.Attempt, with.Replica, with.Call = to.Group, of.attempt, to.ID, to.Call
	c.job.Answer(of.node, with)
}

// lack notes why there is no cohort, and tells people once that has been so for a while.
func (c *Cohorts) lack(now time.Time, why string) {
	switch {
	case why != c.why:
		c.why, c.since = why, now
	case why != "" && why != c.told && now.Sub(c.since) >= reasonPersist:
		c.told = why
		id, members := c.job.Cohort()
		c.job.Happened(job.Cohort{ID: id, Members: members, Why: why})
	}
}

// Close ends its timer. A job without replica groups has none.
func (c *Cohorts) Close() {
	if c != nil && c.timer != nil {
		c.timer.Stop()
	}
}
