// Package rendezvous is the coordinator: it gathers agents, for one job or for a cluster of many
// jobs.
//
// A [Coordinator] is a function of its log. One goroutine applies each entry to the state
// (internal/core/replica) and gives it to the log (rendezvous/internal/log). Once the log has
// stored the entry, the coordinator sends the orders that follow from it. A coordinator that
// starts, restarts or takes over does the same: it reads the log, and asks the agents what they
// run. A [Candidate] is a process that may be elected as coordinator, and keeps a copy of the log
// until then. Agents and clients use internal/wire/session.
package rendezvous

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/replica"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rendezvous/internal/audience"
	"github.com/golaunch/golaunch/rendezvous/internal/depot"
	"github.com/golaunch/golaunch/rendezvous/internal/log"
	"github.com/golaunch/golaunch/rendezvous/internal/trim"
)

// Config configures a coordinator. The zero Config is valid.
type Config struct {
	// Job is the only job. Every node that joins works for Job, and the coordinator ends when Job
	// has ended. If Job is nil, the coordinator is the coordinator of a cluster. A coordinator that
	// continues a log takes its job from the log.
	Job *replica.Submission
	// Facts are options, by flag name ("--max-restarts": "3"), that must be the same on every node.
	// The coordinator refuses an agent with different facts, but admits an agent without any.
	Facts map[string]string
	// Lease is how long an agent may be silent before it must end its ranks; 15 s when 0. KillTime
	// is how long ending the ranks takes; 5 s when 0.
	Lease, KillTime time.Duration
	// LocalNode is this process's node; nil when the process has none.
	LocalNode *LocalNode
	// StartedTogether is how many nodes were started together for the only job. Once the job has
	// ended, the coordinator waits briefly for these nodes, so that a node that starts late still
	// learns how the job ended.
	StartedTogether int
	// Nodes is how many nodes are started for the only job, including spares. The job ends when too
	// few remain because the coordinator has refused others. If Nodes is 0, the number is not
	// known, and more nodes may always join.
	Nodes int
	// AllNodes is set only if an earlier coordinator was lost with its state. It is then how
	// many nodes the only job has, including spares. Until all of them have joined, ranks of the
	// lost coordinator may still run. With fewer nodes, the job therefore starts only when these
	// ranks must have ended.
	AllNodes int
	// HasID says that the user chose the ID of the only job. The coordinator then refuses an
	// invitation to a job with another ID.
	HasID bool
	// Candidate represents this process in elections. If this process continues a job, Term is the
	// term for which it was elected. Both are nil when no other process can coordinate.
	Candidate *Candidate
	Term      *Term
	// Workspaces is a directory for the workspaces of jobs. When empty, the coordinator keeps no
	// workspaces.
	Workspaces string
	// Capacity are the kinds of nodes that the coordinator of a cluster may request. If Capacity is
	// nil, it requests no nodes.
	Capacity []Capacity
	// MaxNodes bounds the number of nodes of all kinds in Capacity together; 0 sets no bound.
	MaxNodes int
	// Limits say how many GPUs each user of a cluster may hold in each priority. "*" stands for all
	// other users. A nil Limits sets no limit.
	Limits map[string]map[string]int
	// File keeps the log across restarts of the coordinator. If File is nil, a restart loses the
	// log.
	File *log.File
	// Observe is called for each decision about the only job, if its reason differs from that of
	// the previous decision. Joined is called for each node that has joined, before the coordinator
	// acts on it. Note gets the events of a cluster (nodes and jobs that come and go), and which
	// nodes can take over the only job. Warn gets problems that do not end a job; nil is slog's
	// default logger. A separate goroutine calls these functions in order, so that none delays the
	// coordinator. Other goroutines also call Warn.
	Observe func(job.Event, report.Decision)
	Joined  func(placement.Node)
	Note    func(string)
	Warn    func(error)
	// Journal gets a JSON line for each event of the only job, at most 64 MiB in all. If writing
	// fails, the journal ends, but the job continues.
	Journal io.Writer

	// onStep and onResume are for tests. onStep gets the effects of each entry, with the entry's
	// index. onResume gets the index at which a coordinator continues.
	onStep   func(index uint64, s replica.Step)
	onResume func(index uint64)
}

// Coordinator gathers agents and runs jobs on them. Its fields belong to the goroutine of Run,
// except for the channels of the event loop.
type Coordinator struct {
	cfg     Config
	started time.Time
	eventLoop

	state  *replica.State
	log    *log.Log
	timers map[replica.TimerID]*time.Timer
	jobTable
	roster
	queries    queries
	depot      *depot.Depot
	succession *succession
	// capacity asks for nodes; nil if the coordinator may ask for none.
	capacity *capacityPlanner
	audience *audience.Audience
	trimmer  trim.Trimmer
	// users has the names of submitters of jobs, by uid.
	users sync.Map
	end   end
}

// NewCoordinator returns a coordinator. The caller must call Serve and Run.
func NewCoordinator(cfg Config) *Coordinator {
	cfg.Lease, cfg.KillTime = cmp.Or(cfg.Lease, wire.DefaultLease), cmp.Or(cfg.KillTime, 5*time.Second)
	if cfg.Warn == nil {
		cfg.Warn = func(err error) { slog.Warn(err.Error()) }
	}
	c := &Coordinator{
		cfg: cfg, started: time.Now(), eventLoop: newEventLoop(),
		timers: map[replica.TimerID]*time.Timer{}, jobTable: jobTable{jobs: map[string]*trackedJob{}},
		roster: newRoster(cfg.AllNodes == 0), audience: audience.New(audience.Listeners{Observe: cfg.Observe, Joined: cfg.Joined, Note: cfg.Note, Warn: cfg.Warn, Journal: cfg.Journal}),
	}
	c.depot = depot.New(cfg.Workspaces)
	c.queries = queries{c: c, open: map[string]*query{}}
	c.succession = newSuccession(c)
	if cfg.Candidate != nil {
		cfg.Candidate.coordinator.Store(c)
		cfg.Candidate.election.LeaderChanged()
	}
	return c
}

// Coordinate coordinates a cluster at a listener until ctx ends. Without a Candidate it begins at
// once. With a Candidate it coordinates in each term for which the candidate is elected. The error
// says that the log could not be read or written.
func Coordinate(ctx context.Context, l net.Listener, config *tls.Config, cfg Config) error {
	if cfg.Candidate != nil {
		return cfg.Candidate.coordinate(ctx, l, cfg)
	}
	c := NewCoordinator(cfg)
	served := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		served <- c.Serve(l, config)
	}()
	_, err := c.Run(ctx)
	cancel()
	return errors.Join(err, <-served)
}

// Run coordinates until the only job has ended and the agents know it, and returns the result.
//
// The end of ctx cancels the only job, with code 124 after a deadline and 130 otherwise; ranks
// still get their grace period. In a cluster Run returns at the end of ctx without ending a job.
// The ranks continue for a lease. In that time a coordinator with the same log may take them over.
//
// The error is ErrDeposed, an error of reading the log, or an [wire.ElsewhereError] if this
// coordinator has given up a job that had not begun.
func (c *Coordinator) Run(ctx context.Context) (report.Result, error) {
	defer close(c.done)
	defer c.close()
	if err := c.restore(); err != nil {
		return report.Result{}, err
	}
	c.limit()
	c.startCapacity()
	cancelled := ctx.Done()
	for {
		c.dropReplicas()
		c.log.Flush()
		switch {
		case c.end.deposed != nil:
			c.resign()
			return report.Result{}, c.end.deposed
		case c.succession.invitation != nil:
			c.resign()
			return report.Result{}, c.succession.invitation
		case c.end.finished:
			c.awaitGoodbyes()
			return *c.onlyJob.Result, nil
		}
		select {
		case f := <-c.inbox:
			f()
			c.drainInbox()
		case <-c.heartbeats.wake:
			c.answerHeartbeats()
		case <-c.ready.wake:
			c.answerHeartbeats()
			c.receive()
			c.drainInbox()
		case <-cancelled:
			if c.onlyJob == nil {
				c.unpublish()
				return report.Result{}, nil
			}
			cancelled = nil
			c.applyJobEvent(c.onlyJob, Cancelled(ctx))
		case <-c.succession.ousted():
			c.end.deposed = ErrDeposed
		}
	}
}

// limit applies the configured limits of users. It writes them into the log, because the state
// depends on them.
func (c *Coordinator) limit() {
	if c.onlyJob != nil || c.cfg.Job != nil {
		return
	}
	limits := cluster.Limits{}
	for user, all := range c.cfg.Limits {
		limits[user] = map[cluster.Priority]int{}
		for priority, gpus := range all {
			limits[user][cluster.Priority(priority)] = gpus
		}
	}
	if !c.state.Cluster.Limited(limits) {
		c.applyEvent(cluster.Limited{Limits: limits})
	}
}

// close stops the timers and goroutines that Run has started, and waits for the log.
func (c *Coordinator) close() {
	for _, t := range c.timers {
		t.Stop()
	}
	for _, j := range c.jobs {
		j.close()
	}
	c.capacity.close()
	if c.log != nil {
		c.drainLog()
	}
	c.trimmer.Stop()
	c.audience.Close()
}

// noteCluster passes a message to Config.Note if this is the coordinator of a cluster.
func (c *Coordinator) noteCluster(format string, args ...any) {
	if c.onlyJob == nil {
		c.say(fmt.Sprintf(format, args...))
	}
}

func (c *Coordinator) say(text string) { c.audience.Say(text) }

func (c *Coordinator) warn(err error) { c.audience.Warn(err) }

// Shared says that the job can continue without this process.
func (c *Coordinator) Shared() bool { return c.cfg.Candidate != nil && c.cfg.Candidate.Shared() }

// Signal forwards a signal to the ranks of all nodes. A node whose connection is broken at the time
// does not get it.
func (c *Coordinator) Signal(number syscall.Signal) {
	c.post(func() { c.broadcast("", wire.Signal{Number: number}) })
}
