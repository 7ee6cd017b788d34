// Package rendezvous brings the agents of a job together under one coordinator.
//
// A [Coordinator] owns the state of the job (internal/job): one goroutine steps it, writes the journal and gives the orders.
// An agent holds a [Session], which delivers its orders and carries its reports, over connections that may break and be made
// again.
//
// One lease bounds both sides. An agent's lease runs from when it sent the newest heartbeat that the coordinator sent back; once
// it is over, the agent must end its ranks. The coordinator counts an agent as lost a lease and the time that killing takes after
// it last heard of it, which is later, whichever direction of the network is cut (Gray and Cheriton, "Leases", SOSP 1989). It
// does so at once when the agent says goodbye, and when the agent's end of the connection closes: an agent's guardian holds a
// duplicate of the socket until no rank is alive.
package rendezvous

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/golaunch/golaunch/internal/job"
)

// Config is what a coordinator needs to know. Only Spec is needed.
type Config struct {
	Spec job.Spec
	// Facts are what must be the same on every node, by flag name ("--max-restarts": "3"). An agent that brings facts, and not
	// just these, is refused.
	Facts map[string]string
	// Lease is how long an agent may be silent before it must end its ranks; 15 s when 0. KillTime is how long that takes; 5 s
	// when 0.
	Lease, KillTime time.Duration
	// PlacementTimeout bounds the wait for nodes and GPUs; 0 is no bound. LastCall is the wait for more nodes than the least.
	PlacementTimeout, LastCall time.Duration
	// BackoffMin is the wait before the first restart; it doubles for each further one until it is BackoffMax, give or take 10 %.
	BackoffMin, BackoffMax time.Duration
	// Observe hears each decision, in order, when its reason is not the one before's. It holds up the job while it runs.
	Observe func(Decision)
	// Journal gets one JSON object a line for each event, 64 MiB at most. A journal that cannot be written ends, not the job.
	Journal io.Writer
	// Warn hears what a user should know but does not end the job, from any goroutine; slog's default logger when nil.
	Warn func(error)
}

// Decision is an event that changed something.
type Decision struct {
	At     time.Time
	Event  job.Event
	Reason string
}

// Coordinator gathers agents and runs one job on them.
type Coordinator struct {
	cfg   Config
	epoch string
	// inbox has what the goroutine of Run is to do; all fields below belong to that goroutine. done is closed when it ends.
	inbox chan func()
	done  chan struct{}

	state   *job.State
	members map[string]*member
	addrs   map[netip.Addr]string
	timers  map[any]*time.Timer
	journal *journal
	reason  string
	result  *job.Result
}

// NewCoordinator returns a coordinator that has yet to Serve and Run.
func NewCoordinator(cfg Config) *Coordinator {
	if cfg.Lease == 0 {
		cfg.Lease = 15 * time.Second
	}
	if cfg.KillTime == 0 {
		cfg.KillTime = 5 * time.Second
	}
	if cfg.Observe == nil {
		cfg.Observe = func(Decision) {}
	}
	if cfg.Warn == nil {
		cfg.Warn = func(err error) { slog.Warn(err.Error()) }
	}
	return &Coordinator{
		cfg: cfg, epoch: rand.Text(), inbox: make(chan func(), 256), done: make(chan struct{}),
		state: job.New(cfg.Spec), members: map[string]*member{}, addrs: map[netip.Addr]string{}, timers: map[any]*time.Timer{},
	}
}

// Run runs the job and returns how it ended, once the agents that are there know it too. It is called once. The end of ctx
// cancels the job, with code 124 when it was a deadline and 130 otherwise; ranks still get their grace period.
func (c *Coordinator) Run(ctx context.Context) job.Result {
	defer close(c.done)
	c.journal = newJournal(c.cfg.Journal, c.cfg.Warn)
	defer c.journal.close()
	c.step(job.Submitted{})
	cancelled := ctx.Done()
	for c.result == nil {
		select {
		case f := <-c.inbox:
			f()
		case <-cancelled:
			cancelled = nil
			c.step(cancel(ctx))
		}
	}
	c.farewell()
	for _, t := range c.timers {
		t.Stop()
	}
	return *c.result
}

func cancel(ctx context.Context) job.Cancel {
	why := context.Cause(ctx)
	if errors.Is(why, context.DeadlineExceeded) {
		return job.Cancel{Code: 124, Why: why.Error()}
	}
	return job.Cancel{Code: 130, Why: why.Error()}
}

// Cancel ends the job with an exit code and a reason. A second one kills the ranks.
func (c *Coordinator) Cancel(code int, why string) {
	c.post(func() { c.step(job.Cancel{Code: code, Why: why}) })
}

// Signal forwards a signal to the ranks of all nodes. A node whose connection is broken at the time does not get it.
func (c *Coordinator) Signal(number syscall.Signal) {
	c.post(func() { c.broadcast(Signal{number}) })
}

// Summary describes where the job stands; it is the zero Summary once Run has returned.
func (c *Coordinator) Summary() job.Summary {
	answer := make(chan job.Summary, 1)
	c.post(func() { answer <- c.state.Summary() })
	select {
	case s := <-answer:
		return s
	case <-c.done:
		return job.Summary{}
	}
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

func (c *Coordinator) step(ev job.Event) {
	actions, reason := c.state.Step(ev)
	d := Decision{time.Now(), ev, reason}
	c.journal.add(d)
	for _, a := range actions {
		c.act(a)
	}
	if reason != "" && reason != c.reason {
		c.reason = reason
		c.cfg.Observe(d)
	}
}

func (c *Coordinator) act(a job.Action) {
	switch a := a.(type) {
	case job.Prepare:
		c.order(a.Node, a)
	case job.Start:
		c.order(a.Group.Node.Name, a)
	case job.Stop:
		c.order(a.Node, a)
	case job.Wait:
		c.after(a.Unit, c.backoff(a.Restarts), job.Elapsed{Unit: a.Unit, Attempt: a.Attempt})
	case job.Alarm:
		limit := c.cfg.LastCall
		if a.Kind == job.AlarmPlacement {
			limit = c.cfg.PlacementTimeout
		}
		if limit > 0 || a.Kind == job.AlarmLastCall {
			c.after(a.Kind, limit, job.TimedOut{Kind: a.Kind, Seq: a.Seq})
		}
	case job.Finish:
		c.result = &a.Result
		c.broadcast(a)
	}
}

// order gives an order to a node. One whose connection is broken gets it when it is back ([job.Rejoined]).
func (c *Coordinator) order(node string, o Order) {
	if m := c.members[node]; m != nil {
		c.send(m, fromOrder(o))
	}
}

func (c *Coordinator) broadcast(o Order) {
	for _, m := range c.members {
		c.send(m, fromOrder(o))
	}
}

// after arms the timer of a key in place of an older one.
func (c *Coordinator) after(key any, d time.Duration, ev job.Event) {
	if t := c.timers[key]; t != nil {
		t.Stop()
	}
	c.timers[key] = time.AfterFunc(d, func() { c.post(func() { c.step(ev) }) })
}

// backoff is the wait before the n-th restart.
func (c *Coordinator) backoff(n int) time.Duration {
	if c.cfg.BackoffMin <= 0 {
		return 0
	}
	b := backoff.NewExponentialBackOff(backoff.WithInitialInterval(c.cfg.BackoffMin), backoff.WithMultiplier(2),
		backoff.WithMaxInterval(max(c.cfg.BackoffMin, c.cfg.BackoffMax)), backoff.WithRandomizationFactor(0.1),
		backoff.WithMaxElapsedTime(0))
	for range min(n, 64) - 1 {
		b.NextBackOff()
	}
	return b.NextBackOff()
}

// farewell waits until all agents have said goodbye to the finished job.
func (c *Coordinator) farewell() {
	limit := time.NewTimer(min(c.cfg.Lease, 5*time.Second))
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
