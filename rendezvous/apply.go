package rendezvous

import (
	"slices"
	"time"

	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/replica"
	"github.com/golaunch/golaunch/internal/wire"
)

// now is the time of an entry, as it is read back.
func now() time.Time { return time.Now().Round(0).UTC() }

// applyEvent applies an event of the cluster that happens now.
func (c *Coordinator) applyEvent(ev cluster.Event) { c.apply(replica.Entry{At: now(), Event: ev}) }

// applyJobEvent applies an event of one job. Of ranks that fail together, only the evidence of the first
// is kept.
func (c *Coordinator) applyJobEvent(j *trackedJob, ev job.Event) {
	if e, ends := ev.(job.Exited); ends && !c.state.Weighs(j.Job.ID, e) {
		e.Tail, e.Traceback, e.Kernel = "", "", ""
		ev = e
	}
	c.applyEvent(cluster.Happened{Job: j.Job.ID, Event: ev})
}

// apply applies an entry to the state, appends it to the log, and performs what follows.
func (c *Coordinator) apply(e replica.Entry) {
	o := c.state.Apply(e)
	if c.log.Storage != nil && !o.Stale {
		c.log.Append(wire.WriteEntry(e), durable(e, o))
	}
	for _, id := range o.Armed {
		c.arm(id)
	}
	for _, s := range o.Steps {
		c.perform(e.At, s)
	}
	for _, node := range o.Leave {
		if m := c.members[node]; m != nil {
			m.leaving = true
		}
		c.order(node, "", wire.Leave{Why: "it was drained"})
	}
	for _, id := range o.Forgotten {
		delete(c.jobs, id)
	}
}

// durable says that an entry must survive a power failure: without its beginning a job would be
// forgotten, and without its end run again.
func durable(e replica.Entry, o replica.Outcome) bool {
	_, drains := e.Event.(cluster.Drain)
	return e.Founded != nil || e.Submitted != nil || drains || slices.ContainsFunc(o.Steps, func(s replica.Step) bool { return s.Ends })
}

// arm sets the timer of a deadline.
func (c *Coordinator) arm(id replica.TimerID) {
	t := c.state.Timers[id]
	if old := c.timers[id]; old != nil {
		old.Stop()
	}
	c.timers[id] = time.AfterFunc(time.Until(t.At), func() {
		c.post(func() {
			switch due, armed := c.state.Timers[id]; {
			case !armed: // its job has ended
				delete(c.timers, id)
			case due == t:
				delete(c.timers, id)
				c.applyEvent(id.Due(t))
			}
		})
	})
}
