// Package rendezvous brings agents together under one coordinator, for one job or for a cluster that many jobs share.
//
// A [Coordinator] owns the state of its jobs (internal/cluster): one goroutine steps it, writes the journals and gives the orders.
// An agent holds a [Session], which delivers its orders and carries its reports, over connections that may break and be made
// again. A [Client] submits jobs to a cluster, watches, reads and stops them.
//
// One lease bounds both sides. An agent's lease runs from when it sent the newest heartbeat that the coordinator sent back; once
// it is over, the agent must end its ranks. The coordinator counts an agent as lost a lease and the time that killing takes after
// it last heard of it, which is later, whichever direction of the network is cut (Gray and Cheriton, "Leases", SOSP 1989). It
// does so at once when the agent says goodbye, and when the agent's end of the connection closes: an agent's guardian holds a
// duplicate of the socket until no rank is alive.
//
// A coordinator of a cluster that is started again within the lease takes the running jobs over. What it must know is in one
// journal for each job: the job's events, written before anything is ordered because of them. As the same events give the same
// state, it stands where the old one stood; agents then repeat what it may not have taken.
package rendezvous

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/golaunch/golaunch/internal/cluster"
	"github.com/golaunch/golaunch/internal/job"
)

// Config is what a coordinator needs to know. The zero Config will do.
type Config struct {
	// Facts are what must be the same on every node, by flag name ("--max-restarts": "3"). An agent that brings facts, and not
	// just these, is refused.
	Facts map[string]string
	// Lease is how long an agent may be silent before it must end its ranks; 15 s when 0. KillTime is how long that takes; 5 s
	// when 0.
	Lease, KillTime time.Duration
	// Expect is how many nodes were started together for the job of Run. Those that come when it is over already are told so, as long
	// as they can be only just starting.
	Expect int
	// Whole is how many nodes the job of Run has, spares included, when all are here. With fewer it starts only when no rank can live any
	// more of the same job under a coordinator before this one, which had its state with it alone; 0 says that there was none.
	Whole int
	// Named says that the ID of the job of Run was given, so that it is not the same job as one of another ID.
	Named bool
	// Seat is this process's place among those that may come to coordinate the job of Run, which then goes on without this one; nil
	// when there are no others.
	Seat *Seat
	// Store keeps what a cluster's coordinator must know to take its jobs over when it is started again; nil keeps nothing.
	Store *Store
	// Note hears what happens in a cluster, nodes and jobs that come and go, and which nodes can take over the job of Run; nil does not.
	Note func(string)
	// Warn hears what a user should know but does not end a job, from any goroutine; slog's default logger when nil.
	Warn func(error)
}

// Coordinator gathers agents and runs jobs on them.
type Coordinator struct {
	cfg   Config
	epoch string
	since time.Time
	// inbox has what the goroutine of Run is to do; all fields below belong to that goroutine. done is closed when it ends.
	inbox chan func()
	done  chan struct{}

	state   *cluster.State
	members map[string]*member
	addrs   map[netip.Addr]string
	// came are the nodes that have been members of the only job.
	came map[string]bool
	// jobs are those that are not over, and those that were last, of which ended has the IDs in order.
	jobs  map[string]*run
	ended []string
	// sole is the one job that the coordinator is for; nil in a cluster.
	sole *run
	// whole says that the job of Run need not wait for more of its nodes.
	whole bool
	// drained are the nodes that were asked to leave, and have not yet.
	drained map[string]bool
	// avoided are the nodes that jobs are given only if others will not do.
	avoided map[string]*avoidance
	// restored says that a coordinator before this one may have welcomed agents with the same epoch, and lapsed are the nodes that were
	// lost and have not come anew: their place may be given away, so an agent that wakes up there must not have its lease renewed.
	restored   bool
	lapsed     map[string]bool
	deliveries map[string]*delivery
	disk       disk
	council
}

// NewCoordinator returns a coordinator that has yet to Serve, and to Run or Host.
func NewCoordinator(cfg Config) *Coordinator {
	if cfg.Lease == 0 {
		cfg.Lease = 15 * time.Second
	}
	if cfg.KillTime == 0 {
		cfg.KillTime = 5 * time.Second
	}
	if cfg.Note == nil {
		cfg.Note = func(string) {}
	}
	if cfg.Warn == nil {
		cfg.Warn = func(err error) { slog.Warn(err.Error()) }
	}
	c := &Coordinator{
		cfg: cfg, epoch: rand.Text(), since: time.Now(), inbox: make(chan func(), 256), done: make(chan struct{}),
		state: cluster.New(), members: map[string]*member{}, addrs: map[netip.Addr]string{}, jobs: map[string]*run{},
		came: map[string]bool{}, whole: cfg.Whole == 0,
		deliveries: map[string]*delivery{}, drained: map[string]bool{}, avoided: map[string]*avoidance{}, lapsed: map[string]bool{},
	}
	c.disk = disk{post: c.post, warn: cfg.Warn, holds: cfg.Store != nil}
	if cfg.Seat != nil {
		cfg.Seat.head.Store(c)
	}
	return c
}

// Run runs one job, which has every node that joins for itself, and returns how it ended, once the agents that are there know it
// too. The end of ctx cancels the job, with code 124 when it was a deadline and 130 otherwise; ranks still get their grace period.
// Run, Succeed or Host is called once. The error is ErrDeposed, or an [ElsewhereError] for a job that had not begun.
func (c *Coordinator) Run(ctx context.Context, s Submission) (job.Result, error) {
	defer close(c.done)
	defer c.flush()
	s.Sole = true
	c.sole = c.begin(s, c.record(s))
	c.step(cluster.Submitted{Spec: s.Spec})
	defer time.AfterFunc(c.patience(), func() { c.post(c.assemble) }).Stop()
	return c.rule(ctx)
}

// rule carries the only job to its end.
func (c *Coordinator) rule(ctx context.Context) (result job.Result, err error) {
	defer c.sole.close()
	defer func() {
		if err != nil {
			c.cfg.Seat.head.CompareAndSwap(c, nil)
		}
	}()
	cancelled := ctx.Done()
	for {
		switch err := c.settle(); {
		case err != nil:
			return job.Result{}, err
		case c.elsewhere != nil:
			return job.Result{}, c.elsewhere
		case c.sole.result != nil:
			c.reign = nil // the rest is for those who have time for it
			c.farewell()
			return *c.sole.result, nil
		}
		select {
		case f := <-c.inbox:
			f()
		case <-cancelled:
			cancelled = nil
			c.happened(c.sole, Cancelled(ctx))
		case <-c.over():
			return job.Result{}, ErrDeposed
		}
	}
}

// Host serves a cluster until ctx ends, which ends no job: their ranks live on for a lease, in which a coordinator with the same
// Store may take them over. The error is that the store could not be read.
func (c *Coordinator) Host(ctx context.Context) error {
	defer close(c.done)
	defer c.flush()
	if err := c.restore(); err != nil {
		return err
	}
	for {
		select {
		case f := <-c.inbox:
			f()
		case <-ctx.Done():
			for _, r := range c.jobs {
				r.close()
			}
			for _, a := range c.avoided {
				a.timer.Stop()
			}
			return nil
		}
	}
}

// Cancelled is what the end of a context means for a job: code 124 when it was a deadline, and 130 otherwise.
func Cancelled(ctx context.Context) job.Cancel {
	why := context.Cause(ctx)
	if errors.Is(why, context.DeadlineExceeded) {
		return job.Cancel{Code: 124, Why: why.Error()}
	}
	return job.Cancel{Code: 130, Why: why.Error()}
}

// Preempted ends a job whose nodes will be gone after the time of within; loose leaves it to who takes them to end what is not ready then.
func Preempted(why string, within time.Duration, loose bool) job.Cancel {
	return job.Cancel{Code: codePreempted, Why: why, Ending: job.EndPreempted, Within: within, Loose: loose}
}

// codePreempted is that of a process which a scheduler has ended (128 + SIGTERM).
const codePreempted = 143

// Shared says that the job can go on without this process.
func (c *Coordinator) Shared() bool { return c.cfg.Seat != nil && c.cfg.Seat.Shared() }

// Cancel ends the job of Run with an exit code and a reason. A second one kills the ranks.
func (c *Coordinator) Cancel(code int, why string) { c.Stop(job.Cancel{Code: code, Why: why}) }

// Stop ends the job of Run.
func (c *Coordinator) Stop(ev job.Cancel) { c.post(func() { c.happened(c.sole, ev) }) }

// Signal forwards a signal to the ranks of all nodes. A node whose connection is broken at the time does not get it.
func (c *Coordinator) Signal(number syscall.Signal) {
	c.post(func() { c.broadcast("", Signal{number}) })
}

// Summary describes where the job of Run stands; it is the zero Summary once that has returned.
func (c *Coordinator) Summary() job.Summary {
	s, _ := ask(c, func() (job.Summary, error) {
		status, _ := c.state.Job(c.sole.Job.ID)
		return status.Summary, nil
	})
	return s
}

// post gives f to the goroutine of Run. It is false when that has ended.
func (c *Coordinator) post(f func()) bool {
	select {
	case c.inbox <- f:
		return true
	case <-c.done:
		return false
	}
}

// ask has f answer in the goroutine of Run.
func ask[T any](c *Coordinator, f func() (T, error)) (answer T, err error) {
	answered := make(chan struct{})
	c.post(func() {
		answer, err = f()
		close(answered)
	})
	select {
	case <-answered:
		return answer, err
	case <-c.done:
		var none T
		return none, errOver
	}
}

// step lets an event happen, and does what follows from it.
func (c *Coordinator) step(ev cluster.Event) { c.follow(c.state.Step(ev)) }

func (c *Coordinator) follow(o cluster.Outcome) {
	for _, s := range o.Steps {
		c.stepped(c.jobs[s.Job], s)
	}
	for _, node := range o.Leave {
		if m := c.members[node]; m != nil {
			m.leaving = true
		}
		c.order(node, "", Leave{"it was drained"})
	}
}

// happened is a step of one job.
func (c *Coordinator) happened(r *run, ev job.Event) {
	c.step(cluster.Happened{Job: r.Job.ID, Event: ev})
}

// order gives an order to a node. One whose connection is broken gets it when it is back ([job.Rejoined]).
func (c *Coordinator) order(node, job string, do any) {
	if m := c.members[node]; m != nil {
		c.send(m, fromOrder(Order{job, do}))
	}
}

func (c *Coordinator) broadcast(job string, do any) {
	for _, m := range c.members {
		c.send(m, fromOrder(Order{job, do}))
	}
}

// startTime is how much later than the first the last of the nodes may be that were started together.
const startTime = 10 * time.Second

// farewell waits until all agents have said goodbye to the finished job, also those that are only just starting.
func (c *Coordinator) farewell() {
	late := time.NewTimer(time.Until(c.since.Add(startTime)))
	defer late.Stop()
	for waits := true; waits && len(c.came) < c.cfg.Expect; {
		select {
		case f := <-c.inbox:
			f()
		case <-late.C:
			waits = false
		}
	}
	patience := min(c.cfg.Lease, 5*time.Second)
	if c.restored { // they may not have found this coordinator yet
		patience = c.cfg.Lease
	}
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for len(c.members) > 0 {
		select {
		case f := <-c.inbox:
			f()
		case <-limit.C:
			names := slices.Sorted(maps.Keys(c.members))
			c.cfg.Warn(fmt.Errorf("%d agents do not say whether they know that the job is over: %s", len(names),
				strings.Join(names[:min(len(names), 8)], ", ")))
			return
		}
	}
}
