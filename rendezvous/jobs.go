package rendezvous

import (
	"slices"
	"time"

	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/replica"
	"github.com/golaunch/golaunch/internal/core/verdict"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/rendezvous/internal/cohorts"
	"github.com/golaunch/golaunch/rendezvous/internal/depot"
)

// trackedJob is a job with its watchers. It belongs to the goroutine of Run.
type trackedJob struct {
	*replica.Record
	// watchers get every decision. owners counts the watchers that keep the job alive. When the
	// last of them has gone, orphanTimer ends the job.
	watchers    map[*watcher]struct{}
	owners      int
	orphanTimer *time.Timer
	// workspace is the job's use of its workspace in the depot. It is nil if the job has no
	// workspace.
	workspace *depot.Use
	// why is the reason why the job waits, as it was last found for a status; nil before.
	why *reason
	// announced has, for each unit, the last attempt whose first failure was reported to clients.
	announced map[int]int
	// cohorts is the lighthouse of the job's replica groups. It is nil before the first report of a
	// replica.
	cohorts *cohorts.Cohorts
}

// jobTable has the data about jobs that the coordinator keeps outside its state.
type jobTable struct {
	jobs map[string]*trackedJob
	// onlyJob is nil in a cluster.
	onlyJob *trackedJob
	// stepped are the jobs whose replica groups may have changed.
	stepped []*trackedJob
}

// reason is a text about the state after the log entry with this index.
type reason struct {
	index uint64
	text  string
}

// submit accepts a checked job.
func (c *Coordinator) submit(s replica.Submission) {
	e := replica.Entry{At: now(), Submitted: &s}
	if s.OnlyJob {
		c.audience.Submitted(e.At, s)
	}
	c.apply(e)
}

// track returns the tracked job of a record. The job's workspace is kept from then on until the job
// is over.
func (c *Coordinator) track(record *replica.Record) *trackedJob {
	j := c.jobs[record.Job.ID]
	if j == nil {
		j = &trackedJob{watchers: map[*watcher]struct{}{}}
		c.jobs[record.Job.ID] = j
		if record.OnlyJob {
			c.onlyJob = j
		}
	}
	j.Record = record
	if j.Workspace.ID != "" && j.Result == nil && j.workspace == nil {
		use := c.depot.Open(j.Workspace.ID)
		j.workspace = use
		go func() { _, _ = use.Load() }() // this finds the archive, or the error that agents get when they ask for it
	}
	return j
}

// close stops the job's timer, and ends the use of its workspace.
func (j *trackedJob) close() {
	j.cohorts.Close()
	if j.workspace != nil {
		j.workspace.Close()
	}
	if j.orphanTimer != nil {
		j.orphanTimer.Stop()
	}
}

// perform carries out one step of a job. Others can see its effects only once the log has stored
// the step.
func (c *Coordinator) perform(at time.Time, s replica.Step) {
	j := c.track(c.state.Jobs[s.Job])
	c.audience.Stepped(at, s)
	if c.cfg.onStep != nil {
		c.cfg.onStep(c.state.Index, s)
	}
	switch e := s.Event.(type) {
	case job.Joined:
		c.assign(j, e.Node.Name)
		c.audience.Joined(e.Node)
	case job.Rejoined:
		c.assign(j, e.Node)
	default: // the event gives the job no node
	}
	for _, a := range s.Actions {
		c.act(j, a)
	}
	if j.cohorts != nil {
		c.stepped = append(c.stepped, j)
	}
	if s.Granted != nil {
		c.tell(j, wire.Update{Granted: s.Granted})
	}
	if s.Told {
		d := report.Decision{At: at.Local(), Reason: s.Reason, News: news(s), Failure: j.failure(s)}
		if j.OnlyJob {
			c.log.Then(func() { c.audience.Decided(s.Event, d) })
		}
		c.tell(j, wire.Update{Decision: &d})
	}
	if s.Ends {
		c.jobEnded(j)
	}
}

// dropReplicas removes replica groups that no longer train from the cohorts of their jobs.
func (c *Coordinator) dropReplicas() {
	for len(c.stepped) > 0 {
		j := c.stepped[0]
		c.stepped = c.stepped[1:]
		j.cohorts.Drop() // it may step further jobs
	}
}

// assign tells a node of a cluster about a job that runs there.
func (c *Coordinator) assign(j *trackedJob, node string) {
	if j.OnlyJob {
		return
	}
	c.order(node, j.Job.ID, wire.Assign{Task: j.Task, Submitter: j.Submitter, Workspace: j.Workspace})
	c.queries.nodeAssigned(j, node)
}

func (c *Coordinator) act(j *trackedJob, a job.Action) {
	switch a := a.(type) {
	case job.Prepare:
		c.order(a.Node, j.Job.ID, a)
	case job.Admit:
		c.order(a.Node, j.Job.ID, a)
	case job.Reach:
		c.order(a.Node, j.Job.ID, a)
	case job.Start:
		c.succession.ranksStart()
		c.order(a.Group.Node.Name, j.Job.ID, a)
	case job.Notice:
		if t, armed := c.state.Timers[replica.TimerID{Of: j.Job.ID, Kind: job.AlarmDeparture, Number: a.Alarm}]; armed {
			a.Within = time.Until(t.At) // the order may be a repetition
		}
		c.order(a.Node, j.Job.ID, a)
	case job.Stop:
		if t, armed := c.state.Timers[replica.TimerID{Of: j.Job.ID, Kind: job.AlarmDeparture, Number: a.Alarm}]; armed {
			a.Grace += max(0, time.Until(t.At))
		}
		c.order(a.Node, j.Job.ID, a)
	case job.Wait, job.Alarm: // the state has set a timer for the deadline
	case job.Quarantine:
		if !j.OnlyJob {
			c.noteCluster("node %s is passed over for %v while others are free: %s", a.Node, j.Job.ExcludeFor, c.state.Cluster.Avoided(a.Node))
		}
	case job.Finish:
		if j.OnlyJob {
			c.broadcast(j.Job.ID, a)
			return
		}
		for node := range j.Nodes { // agents of a cluster need no result
			c.order(node, j.Job.ID, job.Finish{})
		}
	}
}

// jobEnded reports that a job is over.
func (c *Coordinator) jobEnded(j *trackedJob) {
	j.close()
	c.tell(j, wire.Update{Result: j.Result})
	c.queries.jobEnded(j)
	if j.OnlyJob {
		c.log.Then(func() { c.end.finished = true })
		return
	}
	reason := j.Result.Reason
	c.log.Then(func() { c.noteCluster("job %s is over: %s", j.Job.ID, reason) })
}

// startOrphanTimer ends a job that has no owner after a time, except if the job is detached.
func (c *Coordinator) startOrphanTimer(j *trackedJob, patience time.Duration) {
	if j.Detached || j.OnlyJob || j.Result != nil {
		return
	}
	j.orphanTimer = time.AfterFunc(patience, func() {
		c.post(func() {
			if j.owners == 0 && j.Result == nil {
				c.applyJobEvent(j, job.Cancel{Code: codeOrphaned, Why: "the client that submitted it is gone"})
			}
		})
	})
}

// codeOrphaned is the exit code of a process whose terminal has hung up (128 + SIGHUP).
const codeOrphaned = 129

// vacate makes the jobs give up a node. The node's agent is ordered to leave once all jobs have
// given it up.
func (c *Coordinator) vacate(node string, within time.Duration, why string) {
	c.noteCluster("node %s is to leave within %v: %s", node, within, why)
	c.applyEvent(cluster.Drain{Node: node, Leaves: &job.Draining{Node: node, Within: within, Why: why}})
}

// news reports whether a step matters to people who want few messages.
func news(s replica.Step) bool {
	if slices.ContainsFunc(s.Actions, func(a job.Action) bool { _, restarts := a.(job.Wait); return restarts }) {
		return true
	}
	switch ev := s.Event.(type) {
	case job.Exited:
		return !ev.Exit.OK()
	case job.Stalled:
		return len(s.Actions) > 0 // a stall with actions fails the attempt
	case job.Saved:
		return ev.State == job.SavePartial || ev.State == job.SaveLeft || ev.State == job.SaveSetAside
	case job.Lost, job.Draining, job.Cancel:
		return true
	default:
		return false
	}
}

// failure returns the first failure of an attempt if this step contains it, and otherwise nil.
// Clients get only the first failure of each attempt, even if more ranks fail later, because a
// failure may carry a rank's last output.
func (j *trackedJob) failure(s replica.Step) *report.Failure {
	unit, f := 0, report.Failure{Rank: -1, Why: s.Reason}
	switch ev := s.Event.(type) {
	case job.Exited:
		if ev.Exit.OK() || ev.Told {
			return nil
		}
		unit, f = ev.Unit, ev.Failure(nil)
		f.Why, f.Verdict = s.Reason, s.Verdict
	case job.Stalled:
		if !news(s) {
			return nil
		}
		unit, f.Node, f.Attempt, f.Hung, f.Verdict = ev.Unit, ev.Node, ev.Attempt, true, verdict.Hang
	case job.Lost: // a loss may concern several units at different attempts, so it is reported each time
		f.Node, f.Attempt, f.Verdict = ev.Node, -1, verdict.NodeLost
		return &f
	default:
		return nil
	}
	if last, known := j.announced[unit]; known && last >= f.Attempt {
		return nil
	}
	if j.announced == nil {
		j.announced = map[int]int{}
	}
	j.announced[unit] = f.Attempt
	return &f
}
