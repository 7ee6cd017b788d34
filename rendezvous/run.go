package rendezvous

import (
	"io"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/golaunch/golaunch/internal/cluster"
	"github.com/golaunch/golaunch/internal/goodput"
	"github.com/golaunch/golaunch/internal/job"
	"github.com/golaunch/golaunch/placement"
)

// Submission is a job, or a reservation, for a coordinator. Only Spec is needed.
type Submission struct {
	cluster.Spec
	// Task is what the agents need to know to run a rank of the job; nobody else looks into it.
	Task []byte
	// Title is the command in one line, for people.
	Title string
	// Detached says that the job goes on without the client that submitted it.
	Detached bool
	// PlacementTimeout bounds the wait for nodes and GPUs; 0 is no bound. LastCall is the wait for more nodes than the least.
	PlacementTimeout, LastCall time.Duration
	// BackoffMin is the wait before the first restart; it doubles for each further one until it is BackoffMax, give or take 10 %.
	BackoffMin, BackoffMax time.Duration
	// Observe hears each decision, in order, when its reason is not the one before's. It holds up the coordinator while it runs.
	Observe func(Decision) `json:"-"`
	// Joined hears of each node that has joined, before it is decided what that means, and holds up the coordinator too.
	Joined func(placement.Node) `json:"-"`
	// Journal gets one JSON object a line for each event, 64 MiB at most. A journal that cannot be written ends, not the job.
	// In a cluster, the coordinator's Store has the journals instead.
	Journal io.Writer `json:"-"`
}

// Decision is an event that changed something.
type Decision struct {
	At time.Time
	// Event is nil for a client, which is told the reason alone.
	Event  job.Event
	Reason string
	// News is what a person wants to know at once: a failure, a loss, a stop.
	News bool
}

// run is a job as its coordinator carries it out. It belongs to the goroutine of Run.
type run struct {
	Submission
	submitted, over time.Time
	timers          map[any]*time.Timer
	// readmits is when the nodes that it excludes can be used again.
	readmits time.Time
	journal  journal
	ledger   goodput.Ledger
	reason   string
	result   *job.Result
	granted  *placement.Plan
	// nodes are those of a cluster that the job has, or had.
	nodes map[string]bool
	// watchers are told all that is decided; owners are those without which the job ends if it is not detached. orphaned is the
	// timer that ends it.
	watchers map[*watcher]struct{}
	owners   int
	orphaned *time.Timer
}

func (c *Coordinator) begin(s Submission, j journal) *run {
	r := &run{
		Submission: s, submitted: time.Now(), timers: map[any]*time.Timer{}, journal: j,
		nodes: map[string]bool{}, watchers: map[*watcher]struct{}{},
	}
	c.jobs[s.Job.ID] = r
	return r
}

// close ends what runs beside the job's state.
func (r *run) close() {
	for _, t := range r.timers {
		t.Stop()
	}
	if r.orphaned != nil {
		r.orphaned.Stop()
	}
	r.journal.close()
}

// stepped carries out one step of a job. It is in the journal before any of it can be seen.
func (c *Coordinator) stepped(r *run, s cluster.Step) {
	d := Decision{At: time.Now(), Event: s.Event, Reason: s.Reason, News: news(s)}
	if s.Event != nil {
		r.journal.add(entry{Time: d.At, Event: eventName(s.Event), Reason: s.Reason, Detail: s.Event})
	}
	r.ledger.Take(d.At, s.Changes)
	switch e := s.Event.(type) {
	case job.Joined:
		c.assign(r, e.Node.Name)
		if r.Joined != nil {
			r.Joined(e.Node)
		}
	case job.Rejoined:
		c.assign(r, e.Node)
	default: // it gives no node
	}
	for _, a := range s.Actions {
		c.act(r, a)
	}
	if s.Granted != nil {
		r.granted = s.Granted
		c.tell(r, fromGranted(s.Granted))
	}
	if s.Reason != "" && s.Reason != r.reason {
		r.reason = s.Reason
		if r.Observe != nil {
			c.then(func() { r.Observe(d) })
		}
		c.tell(r, fromDecision(d))
	}
	if r.result != nil && r.over.IsZero() {
		c.conclude(r)
	}
}

// assign tells a node of a cluster about a job of which it has got ranks.
func (c *Coordinator) assign(r *run, node string) {
	if r.Sole {
		return
	}
	c.order(node, r.Job.ID, Assign{r.Task})
	r.nodes[node] = true
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
		c.grow()
		c.order(a.Group.Node.Name, r.Job.ID, a)
	case job.Notice:
		c.order(a.Node, r.Job.ID, a)
	case job.Stop:
		c.order(a.Node, r.Job.ID, a)
	case job.Wait:
		wait := r.backoff(a.Restarts)
		if a.Long {
			wait = r.BackoffMax
		}
		c.after(r, a.Unit, wait, job.Elapsed{Unit: a.Unit, Attempt: a.Attempt})
	case job.Alarm:
		limit := r.LastCall
		switch a.Kind {
		case job.AlarmDrain:
			limit = a.For
		case job.AlarmPlacement:
			limit = r.PlacementTimeout
		case job.AlarmRefill:
			limit = r.Job.RefillAfter
		case job.AlarmGrow:
			limit = r.Job.GrowAfter
		case job.AlarmExclusion:
			limit = r.Job.ExcludeFor
			r.readmits = time.Now().Add(limit)
		case job.AlarmLastCall:
		}
		if limit > 0 || a.Kind == job.AlarmLastCall {
			c.after(r, a.Kind, limit, job.TimedOut{Kind: a.Kind, Seq: a.Seq})
		}
	case job.Shun:
		c.shun(r, a)
	case job.Finish:
		a.Result.Goodput = r.goodput()
		r.result = &a.Result
		if r.Sole {
			c.broadcast(r.Job.ID, a)
			return
		}
		for node := range r.nodes {
			c.order(node, r.Job.ID, a)
		}
	}
}

// after arms the timer of a key in place of an older one.
func (c *Coordinator) after(r *run, key any, d time.Duration, ev job.Event) {
	if t := r.timers[key]; t != nil {
		t.Stop()
	}
	r.timers[key] = time.AfterFunc(d, func() { c.post(func() { c.happened(r, ev) }) })
}

// backoff is the wait before the n-th restart; none before one that nobody is charged for.
func (s Submission) backoff(n int) time.Duration {
	if s.BackoffMin <= 0 || n == 0 {
		return 0
	}
	b := backoff.NewExponentialBackOff(backoff.WithInitialInterval(s.BackoffMin), backoff.WithMultiplier(2),
		backoff.WithMaxInterval(max(s.BackoffMin, s.BackoffMax)), backoff.WithRandomizationFactor(0.1),
		backoff.WithMaxElapsedTime(0))
	for range min(n, 64) - 1 {
		b.NextBackOff()
	}
	return b.NextBackOff()
}

// maxEnded bounds the jobs that are over and still known.
const maxEnded = 1000

// conclude tells that a job is over, and forgets the oldest of those that are.
func (c *Coordinator) conclude(r *run) {
	r.over = time.Now()
	r.journal.add(entry{Time: r.over, Event: eventResult, Detail: r.result})
	r.close()
	c.tell(r, fromUpdateResult(*r.result))
	c.readEnd(r)
	if r.Sole {
		return
	}
	c.then(func() { c.note("job %s is over: %s", r.Job.ID, r.result.Reason) })
	c.ended = append(c.ended, r.Job.ID)
	for len(c.ended) > maxEnded {
		c.forget(c.ended[0])
		c.ended = c.ended[1:]
	}
}

func (c *Coordinator) forget(id string) {
	delete(c.jobs, id)
	c.state.Forget(id)
	c.remove(id)
}

// remove has a later coordinator not know of a job.
func (c *Coordinator) remove(id string) {
	c.disk.write(func() {
		if err := c.cfg.Store.remove(id); err != nil {
			c.cfg.Warn(err)
		}
	})
}

func news(s cluster.Step) bool {
	if slices.ContainsFunc(s.Actions, func(a job.Action) bool { _, restarts := a.(job.Wait); return restarts }) {
		return true
	}
	switch ev := s.Event.(type) {
	case job.Exited:
		return !ev.Exit.OK()
	case job.Lost, job.Draining, job.Cancel:
		return true
	default:
		return false
	}
}
