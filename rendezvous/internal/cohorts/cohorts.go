// Package cohorts is the part of the coordinator that does the work of torchft's lighthouse: it
// tells the nodes of a job's replica groups which groups train together.
package cohorts

import (
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/lighthouse"
	"github.com/golaunch/golaunch/internal/wire"
)

// joinTimeout and BeatTimeout are like options of torchft's lighthouse. joinTimeout is the wait for
// a live replica that does not ask to train. It must be well below a minute, because
// torchft's trainers give a step up after a minute. A replica sends ten heartbeats a second to its
// own node, so 2 s of silence mean that it is gone. torchft waits 5 s, and its groups lose that
// time whenever one of them is stopped. reasonPersist is how long a reason must last before people
// are told.
const (
	joinTimeout   = 10 * time.Second
	BeatTimeout   = 2 * time.Second
	reasonPersist = time.Second
	// DecideEvery is the time between two decisions while replicas ask.
	DecideEvery = 100 * time.Millisecond
	// takeover is how long members of the last cohort may stay silent when another process becomes
	// coordinator. Agents that still run come back sooner.
	takeover = 300 * time.Millisecond
)

// Job gives access to a job in the coordinator's state.
type Job interface {
	// Over reports whether the job is over.
	Over() bool
	// Attempt returns the newest attempt of a group; -1 if there is no such group.
	Attempt(group int) int
	// Trains reports whether a group may be in a cohort.
	Trains(group, attempt int) bool
	// Cohort returns the newest cohort in the log.
	Cohort() (id int64, members []lighthouse.Replica)
	// Happened adds a cohort to the log.
	Happened(ev job.Cohort)
	// Answer sends a cohort to a node, once the log has stored the cohort.
	Answer(node string, c wire.Cohort)
}

// Cohorts is the lighthouse of a job. The log has only cohorts with a new ID. It does not have the
// requests of replicas: the agents know these, and repeat them to the next coordinator. Cohorts
// belongs to one goroutine.
type Cohorts struct {
	job   Job
	post  func(func())
	state *lighthouse.State
	// from says, for each group, which node reports its replicas, and for which attempt.
	from map[int]replicaOf
	// timer makes the lighthouse decide again, because a cohort may become possible as time passes.
	// It is nil while no replica asks.
	timer *time.Timer
	// why says why there is no cohort, and since is when this reason began. told is the last reason
	// that people were told.
	why   string
	since time.Time
	told  string
}

// replicaOf is an attempt of a replica group, and the node that reports its replicas. attempt is -1
// while it is not known.
type replicaOf struct {
	node    string
	attempt int
}

// New returns the lighthouse of a job that needs minGroups groups. post makes the goroutine that
// owns the Cohorts run a function.
func New(j Job, minGroups int, post func(func())) *Cohorts {
	id, members := j.Cohort()
	o := lighthouse.Options{MinReplicas: minGroups, JoinTimeout: joinTimeout, HeartbeatTimeout: BeatTimeout}
	c := &Cohorts{job: j, post: post, state: lighthouse.New(o, id, members, time.Now().Add(takeover-BeatTimeout)), from: map[int]replicaOf{}}
	for _, of := range members { // do not wait for replicas that no longer train
		c.from[of.Group] = replicaOf{attempt: -1}
	}
	return c
}

// Reported handles a node's report of a replica.
func (c *Cohorts) Reported(node string, r wire.Replica) {
	c.from[r.Unit] = replicaOf{node, r.Attempt}
	c.Drop()
	if r.Request.Call == 0 {
		c.step(lighthouse.Heartbeat{Replica: r.Request.Replica})
	} else {
		c.step(lighthouse.Asked{Request: r.Request})
	}
}

// Drop removes the groups that do not train any more.
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

// step passes an event to the lighthouse, and carries out the results.
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

// form tells the members of a cohort about the cohort. It adds a cohort with a new ID to the log
// first.
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

// answer answers a replica's request through the replica's node. A node that is not connected asks
// again when it is back.
func (c *Cohorts) answer(to lighthouse.Request, with wire.Cohort) {
	of, trains := c.from[to.Group]
	if !trains {
		return
	}
	with.Unit, with.Attempt, with.Replica, with.Call = to.Group, of.attempt, to.ID, to.Call
	c.job.Answer(of.node, with)
}

// lack notes why there is no cohort, and tells people once the same reason has lasted for
// reasonPersist.
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

// Close stops the timer. Close may be called on nil, because a job without replica groups has no
// Cohorts.
func (c *Cohorts) Close() {
	if c != nil && c.timer != nil {
		c.timer.Stop()
	}
}
