package rendezvous

import (
	"slices"
	"time"

	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/replica"
	"github.com/golaunch/golaunch/internal/core/verdict"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/jsonout"
	"github.com/golaunch/golaunch/launcher/report"
)

// run is a job with who watches it. It belongs to the goroutine of Run.
type run struct {
	*replica.Record
	// watchers are told all that is decided; owners are those without which the job ends if it is not detached. orphaned is the
	// timer that ends it.
	watchers map[*watcher]struct{}
	owners   int
	orphaned *time.Timer
	// why is why it waits, as far as a status has asked for that.
	why *reason
	// failed is the last attempt of each unit of which clients were told how it began to fail.
	failed map[int]int
}

// reason is a text about the state after an entry.
type reason struct {
	index uint64
	text  string
}

// submit takes a job in that was checked.
func (c *Coordinator) submit(s replica.Submission) {
	e := replica.Entry{At: now(), Submitted: &s}
	if s.Sole {
		c.journal.add(jsonout.Event{Time: e.At, Event: eventSubmission, Detail: s})
	}
	c.step(e)
}

// attach is the run of a job.
func (c *Coordinator) attach(j *replica.Record) *run {
	r := c.runs[j.Job.ID]
	if r == nil {
		r = &run{watchers: map[*watcher]struct{}{}}
		c.runs[j.Job.ID] = r
		if j.Sole {
			c.sole = r
		}
	}
	r.Record = j
	return r
}

// close ends what runs beside the job's state.
func (r *run) close() {
	if r.orphaned != nil {
		r.orphaned.Stop()
	}
}

// stepped carries out one step of a job. Nobody sees any of it before it is kept.
func (c *Coordinator) stepped(at time.Time, s replica.Step) {
	r := c.attach(c.state.Jobs[s.Job])
	d := wire.Decision{At: at.Local(), Event: s.Event, Reason: s.Reason, News: news(s)}
	if s.Told {
		d.Failure = r.failure(s)
	}
	c.record(at, s)
	if c.cfg.stepped != nil {
		c.cfg.stepped(c.state.Index, s)
	}
	switch e := s.Event.(type) {
	case job.Joined:
		c.assign(r, e.Node.Name)
		if c.cfg.Joined != nil {
			c.words.Say(func() { c.cfg.Joined(e.Node) })
		}
	case job.Rejoined:
		c.assign(r, e.Node)
	default: // it gives no node
	}
	for _, a := range s.Actions {
		c.act(r, a)
	}
	if s.Granted != nil {
		c.tell(r, wire.Update{Granted: s.Granted})
	}
	if s.Told {
		if c.cfg.Observe != nil && r.Sole {
			c.log.Then(func() { c.words.Say(func() { c.cfg.Observe(d) }) })
		}
		c.tell(r, wire.Update{Decision: &d})
	}
	if s.Ends {
		c.conclude(r)
	}
}

// assign tells a node of a cluster about a job of which it has got ranks.
func (c *Coordinator) assign(r *run, node string) {
	if r.Sole {
		return
	}
	c.order(node, r.Job.ID, wire.Assign{Task: r.Task, Submitter: r.Submitter})
	c.readAlso(r, node)
}

func (c *Coordinator) act(r *run, a job.Action) {
	switch a := a.(type) {
	case job.Prepare:
		c.order(a.Node, r.Job.ID, a)
	case job.Admit:
		c.order(a.Node, r.Job.ID, a)
	case job.Reach:
		c.order(a.Node, r.Job.ID, a)
	case job.Start:
		c.establish()
		c.order(a.Group.Node.Name, r.Job.ID, a)
	case job.Notice:
		if t, out := c.state.Timers[replica.TimerID{Of: r.Job.ID, Kind: job.AlarmDeparture, Number: a.Alarm}]; out {
			a.Within = time.Until(t.At) // it may be repeated
		}
		c.order(a.Node, r.Job.ID, a)
	case job.Stop:
		c.order(a.Node, r.Job.ID, a)
	case job.Wait, job.Alarm: // the state has the deadline
	case job.Quarantine:
		if !r.Sole {
			c.note("node %s is passed over for %v while others are free: %s", a.Node, r.Job.ExcludeFor, c.state.Cluster.Avoided(a.Node))
		}
	case job.Finish:
		if r.Sole {
			c.broadcast(r.Job.ID, a)
			return
		}
		for node := range r.Nodes { // whose agents tell nobody how it ended
			c.order(node, r.Job.ID, job.Finish{})
		}
	}
}

// conclude tells that a job is over.
func (c *Coordinator) conclude(r *run) {
	r.close()
	c.tell(r, wire.Update{Result: r.Result})
	c.readEnd(r)
	if r.Sole {
		c.log.Then(func() { c.over = true })
		return
	}
	reason := r.Result.Reason
	c.log.Then(func() { c.note("job %s is over: %s", r.Job.ID, reason) })
}

// orphan ends a job whose owner is not back in time, unless it is detached.
func (c *Coordinator) orphan(r *run, patience time.Duration) {
	if r.Detached || r.Sole || r.Result != nil {
		return
	}
	r.orphaned = time.AfterFunc(patience, func() {
		c.post(func() {
			if r.owners == 0 && r.Result == nil {
				c.happened(r, job.Cancel{Code: codeOrphaned, Why: "the client that submitted it is gone"})
			}
		})
	})
}

// codeOrphaned is that of a process whose terminal has hung up (128 + SIGHUP).
const codeOrphaned = 129

func news(s replica.Step) bool {
	if slices.ContainsFunc(s.Actions, func(a job.Action) bool { _, restarts := a.(job.Wait); return restarts }) {
		return true
	}
	switch ev := s.Event.(type) {
	case job.Exited:
		return !ev.Exit.OK()
	case job.Stalled:
		return len(s.Actions) > 0 // it fails the attempt
	case job.Lost, job.Draining, job.Cancel:
		return true
	default:
		return false
	}
}

// failure is how an attempt began to fail, with this step: once for each, whatever fails with it, for it may have a rank's last words.
func (r *run) failure(s replica.Step) *report.Failure {
	unit, f := 0, report.Failure{Rank: -1, Why: s.Reason}
	switch ev := s.Event.(type) {
	case job.Exited:
		if ev.Exit.OK() || ev.Told {
			return nil
		}
		unit = ev.Unit
		f.Node, f.Rank, f.Attempt, f.Exit, f.At, f.Lived, f.Step = ev.Node, ev.Rank, ev.Attempt, ev.Exit, ev.At, ev.Lived, ev.Step
		f.Tail, f.Traceback, f.Kernel, f.Verdict = ev.Tail, ev.Traceback, ev.Kernel, s.Verdict
	case job.Stalled:
		if !news(s) {
			return nil
		}
		unit, f.Node, f.Attempt, f.Hung, f.Verdict = ev.Unit, ev.Node, ev.Attempt, true, verdict.Hang
	case job.Lost: // of several units, at whichever attempts: it is told each time
		f.Node, f.Attempt, f.Verdict = ev.Node, -1, verdict.NodeLost
		return &f
	default:
		return nil
	}
	if last, known := r.failed[unit]; known && last >= f.Attempt {
		return nil
	}
	if r.failed == nil {
		r.failed = map[int]int{}
	}
	r.failed[unit] = f.Attempt
	return &f
}

// leaves has the jobs give up a node, whose agent is told to go once they have.
func (c *Coordinator) leaves(node string, within time.Duration, why string) {
	c.note("node %s is to leave within %v: %s", node, within, why)
	c.cause(cluster.Drain{Node: node, Leaves: &job.Draining{Node: node, Within: within, Why: why}})
}
