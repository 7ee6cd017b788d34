// Package rendezvous is the coordinator: it brings agents together, for one job or for a cluster that many jobs share.
//
// A [Coordinator] is a function of its log: one goroutine applies each entry to what it knows (internal/core/replica), has the entry kept
// (rendezvous/internal/log), and gives the orders that follow once it is. To begin, to be started again and to take over from another are
// the same: read the log, and hear from the agents what runs. A [Candidate] is a process that may come to coordinate, and keeps a part of the
// log until then. What agents and clients do is in internal/wire/session.
package rendezvous

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/replica"
	"github.com/golaunch/golaunch/internal/process/asyncwriter"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/quorum"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rendezvous/internal/log"
)

// Config is what a coordinator needs to know. The zero Config will do.
type Config struct {
	// Job is the one that the coordinator is for, and ends with: it has every node that joins. With none it is that of a cluster. One that
	// goes on with a log has its job from there.
	Job *replica.Submission
	// Facts are what must be the same on every node, by flag name ("--max-restarts": "3"). An agent that brings facts, and not
	// just these, is refused.
	Facts map[string]string
	// Lease is how long an agent may be silent before it must end its ranks; 15 s when 0. KillTime is how long that takes; 5 s
	// when 0.
	Lease, KillTime time.Duration
	// Own is this process's node; nil when it has none.
	Own *Own
	// Expect is how many nodes were started together for the only job. Those that come when it is over already are told so, as long
	// as they can be only just starting.
	Expect int
	// Nodes is how many nodes are started for the only job, spares included. Once so many of them
	// were refused that too few are left, the job ends. 0 means that more may always come.
	Nodes int
	// Whole is how many nodes the only job has, spares included, when all are here. With fewer it starts only when no rank can live any
	// more of the same job under a coordinator before this one, which had its state with it alone; 0 says that there was none.
	Whole int
	// Named says that the ID of the only job was given, so that it is not the same job as one of another ID.
	Named bool
	// Candidate is this process as one of those that may come to coordinate the job, which then goes on without this one, and Term what it
	// was elected for, if it goes on with a job. Both are nil when there are no others.
	Candidate *Candidate
	Term      *Term
	// File keeps the log for a coordinator that is started again; nil keeps none.
	File *log.File
	// Observe hears each decision about the only job, in order, when its reason is not the one before's, and Joined of each node that has
	// joined, before it is decided what that means. Note hears what happens in a cluster, nodes and jobs that come and go, and which
	// nodes can take over the only job. Warn hears what a user should know but does not end a job; slog's default logger when
	// nil. None of them holds up the coordinator: they are called in order from a goroutine of their own, and Warn from others too.
	Observe func(wire.Decision)
	Joined  func(placement.Node)
	Note    func(string)
	Warn    func(error)
	// Journal gets one JSON object a line for each event of the only job, 64 MiB at most. One that cannot be written ends, not the job.
	Journal io.Writer

	// stepped and resumed let tests keep what each entry caused, by its index, and from which on a coordinator goes on.
	stepped func(index uint64, s replica.Step)
	resumed func(index uint64)
}

// Coordinator gathers agents and runs jobs on them.
type Coordinator struct {
	cfg   Config
	since time.Time
	// inbox has what the goroutine of Run is to do; all fields below belong to that goroutine. done is closed when it ends.
	inbox chan func()
	done  chan struct{}
	// arrived are the agents whose messages wait for it, and alone says that nobody else may have come to coordinate, for the goroutines of streams.
	arrived arrivals
	alone   atomic.Bool

	state *replica.State
	log   *log.Log
	// runs are what is beside the state of each job, and sole that of the only one; nil in a cluster.
	runs map[string]*run
	sole *run
	// timers wake the coordinator up at the deadlines of its state.
	timers  map[replica.TimerID]*time.Timer
	members map[string]*member
	addrs   map[netip.Addr]string
	// came are the nodes that have been members of the only job under this coordinator, and
	// unwelcome those that it has refused since. incomplete says that the job ended for that.
	came, unwelcome map[string]bool
	incomplete      bool
	// whole says that the only job need not wait for more of its nodes.
	whole bool
	// restored says that a coordinator before this one has welcomed agents.
	restored bool
	// over says that the end of the only job is kept, and deposed why this coordinator does not lead any more.
	over       bool
	deposed    error
	deliveries map[string]*delivery
	// words are for people, and journal has the events of the only job.
	words   *asyncwriter.Speaker
	journal *journal
	leadership
}

// NewCoordinator returns a coordinator that has yet to Serve and to Run.
func NewCoordinator(cfg Config) *Coordinator {
	cfg.Lease, cfg.KillTime = cmp.Or(cfg.Lease, wire.DefaultLease), cmp.Or(cfg.KillTime, 5*time.Second)
	if cfg.Warn == nil {
		cfg.Warn = func(err error) { slog.Warn(err.Error()) }
	}
	c := &Coordinator{
		cfg: cfg, since: time.Now(), inbox: make(chan func(), 256), done: make(chan struct{}), arrived: arrivals{wake: make(chan struct{}, 1)},
		leadership: leadership{parting: map[*link]bool{}, peers: map[string]quorum.Voter{}, absent: map[string]bool{}},
		runs:       map[string]*run{}, timers: map[replica.TimerID]*time.Timer{}, members: map[string]*member{}, addrs: map[netip.Addr]string{},
		came: map[string]bool{}, unwelcome: map[string]bool{}, whole: cfg.Whole == 0, deliveries: map[string]*delivery{}, journal: newJournal(cfg.Journal, cfg.Warn),
	}
	c.words = asyncwriter.New(func(missed int) {
		cfg.Warn(fmt.Errorf("%d messages are not shown: nobody has read those before", missed))
	})
	if cfg.Candidate != nil {
		cfg.Candidate.head.Store(c)
		cfg.Candidate.led.tell()
	}
	return c
}

// Coordinate coordinates a cluster at a listener until ctx ends: at once, or with a Candidate whenever that is its turn. The error is that the
// log could not be read or kept.
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

// Run coordinates until the only job has ended, once the agents that are there know it too, and returns how. In a cluster it does so until
// ctx ends, which ends no job: ranks live on for a lease, in which a coordinator with the same log may take them over. The end of ctx
// cancels the only job, with code 124 when it was a deadline and 130 otherwise; ranks still get their grace period. The error is that
// the log could not be read, ErrDeposed, or an [ElsewhereError] for a job that had not begun.
func (c *Coordinator) Run(ctx context.Context) (report.Result, error) {
	defer close(c.done)
	defer c.close()
	if err := c.begin(); err != nil {
		return report.Result{}, err
	}
	cancelled := ctx.Done()
	for {
		c.log.Flush()
		switch {
		case c.deposed != nil:
			c.resign()
			return report.Result{}, c.deposed
		case c.elsewhere != nil:
			c.resign()
			return report.Result{}, c.elsewhere
		case c.over:
			c.farewell()
			return *c.sole.Result, nil
		}
		select {
		case f := <-c.inbox:
			f()
			c.gather()
		case <-c.arrived.wake:
			c.takeIn()
			c.gather()
		case <-cancelled:
			if c.sole == nil {
				c.retire()
				return report.Result{}, nil
			}
			cancelled = nil
			c.happened(c.sole, Cancelled(ctx))
		case <-c.ousted():
			c.deposed = ErrDeposed
		}
	}
}

// close ends what Run has begun.
func (c *Coordinator) close() {
	for _, t := range c.timers {
		t.Stop()
	}
	for _, r := range c.runs {
		r.close()
	}
	if c.log != nil {
		c.drainLog()
	}
	c.journal.finish()
	c.words.Finish(asyncwriter.Patience)
}

// endLimit bounds the wait for what is to be kept when a coordinator ends.
const endLimit = 2 * time.Second

// drainLog waits until all is kept, but not for a disk that hangs.
func (c *Coordinator) drainLog() {
	limit := time.NewTimer(endLimit)
	defer limit.Stop()
	for c.log.Flush(); c.log.Busy(); c.log.Flush() {
		select {
		case f := <-c.inbox:
			f()
		case <-limit.C:
			c.warn(errors.New("the end of the coordinator's log is not kept: the disk hangs"))
			return
		}
	}
}

// lostLog hears that another coordinator may be there.
func (c *Coordinator) lostLog(why error) { c.deposed = fmt.Errorf("%w (%w)", ErrDeposed, why) }

// resign leaves the job to another coordinator.
func (c *Coordinator) resign() {
	c.log.Release(false)
	c.retire()
}

// retire has those that ask for the coordinator here hear that there is none.
func (c *Coordinator) retire() {
	if c.cfg.Candidate != nil {
		c.cfg.Candidate.head.CompareAndSwap(c, nil)
	}
}

// note tells what happens in a cluster.
func (c *Coordinator) note(format string, args ...any) {
	if c.sole == nil {
		c.say(fmt.Sprintf(format, args...))
	}
}

func (c *Coordinator) say(text string) {
	if c.cfg.Note != nil {
		c.words.Say(func() { c.cfg.Note(text) })
	}
}

func (c *Coordinator) warn(err error) { c.words.Say(func() { c.cfg.Warn(err) }) }

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
	return job.Cancel{Code: codePreempted, Why: why, Ending: report.EndPreempted, Within: within, Loose: loose}
}

// codePreempted is that of a process which a scheduler has ended (128 + SIGTERM).
const codePreempted = 143

// Shared says that the job can go on without this process.
func (c *Coordinator) Shared() bool { return c.cfg.Candidate != nil && c.cfg.Candidate.Shared() }

// Cancel ends the only job with an exit code and a reason. A second one kills the ranks.
func (c *Coordinator) Cancel(code int, why string) { c.Stop(job.Cancel{Code: code, Why: why}) }

// Stop ends the only job.
func (c *Coordinator) Stop(ev job.Cancel) {
	c.post(func() {
		if c.sole != nil {
			c.happened(c.sole, ev)
		}
	})
}

// Signal forwards a signal to the ranks of all nodes. A node whose connection is broken at the time does not get it.
func (c *Coordinator) Signal(number syscall.Signal) {
	c.post(func() { c.broadcast("", wire.Signal{Number: number}) })
}

// Summary describes where the only job stands; it is the zero Summary once Run has returned.
func (c *Coordinator) Summary() job.Summary {
	s, _ := ask(c, func() (job.Summary, error) {
		if c.sole == nil {
			return job.Summary{}, nil
		}
		status, _ := c.state.Cluster.Job(c.sole.Job.ID)
		return status.Summary, nil
	})
	return s
}

// takeIn takes what agents have said.
func (c *Coordinator) takeIn() {
	for _, on := range c.arrived.next() {
		c.takeAll(on.member, on.link)
	}
}

func (c *Coordinator) takeAll(m *member, l *link) {
	for _, msg := range l.take() {
		c.take(m, l, msg)
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

// ask has f answer in the goroutine of Run.
func ask[T any](c *Coordinator, f func() (T, error)) (answer T, err error) {
	answered := make(chan struct{})
	c.post(func() {
		answer, err = f()
		close(answered)
	})
	if _, ok := await(context.Background(), c, answered); !ok {
		var none T
		return none, c.gone()
	}
	return answer, err
}

// await waits for an answer until ctx or the coordinator ends. One that came before that counts: it may be what the coordinator ends for.
func await[T any](ctx context.Context, c *Coordinator, answers <-chan T) (answer T, ok bool) {
	select {
	case answer = <-answers:
		return answer, true
	case <-ctx.Done():
	case <-c.done:
	}
	select {
	case answer = <-answers:
		return answer, true
	default:
		return answer, false
	}
}

// gone answers a client once the goroutine of Run has ended: the only job is over, or the
// coordinator may be back, or is elsewhere.
func (c *Coordinator) gone() error {
	switch {
	case c.sole != nil && c.over:
		return status.Error(codes.NotFound, "job "+c.sole.Job.ID+" is over")
	case c.sole == nil && c.cfg.Candidate != nil:
		return c.cfg.Candidate.nowhere()
	}
	return errOver
}

// now is the time of an entry, as it is read back.
func now() time.Time { return time.Now().Round(0).UTC() }

// cause is an event of the cluster that happens now.
func (c *Coordinator) cause(ev cluster.Event) { c.step(replica.Entry{At: now(), Event: ev}) }

// happened is an event of one job. Of the ranks that fail together, the evidence of the first counts.
func (c *Coordinator) happened(r *run, ev job.Event) {
	if e, ends := ev.(job.Exited); ends && !c.state.Weighs(r.Job.ID, e) {
		e.Tail, e.Traceback, e.Kernel = "", "", ""
		ev = e
	}
	c.cause(cluster.Happened{Job: r.Job.ID, Event: ev})
}

// step applies an entry, has it kept, and does what follows from it.
func (c *Coordinator) step(e replica.Entry) {
	o := c.state.Apply(e)
	if c.log.Storage != nil && !o.Stale {
		c.log.Append(wire.WriteEntry(e), durable(e, o))
	}
	for _, id := range o.Armed {
		c.arm(id)
	}
	for _, s := range o.Steps {
		c.stepped(e.At, s)
	}
	for _, node := range o.Leave {
		if m := c.members[node]; m != nil {
			m.leaving = true
		}
		c.order(node, "", wire.Leave{Why: "it was drained"})
	}
	for _, id := range o.Forgotten {
		delete(c.runs, id)
	}
}

// durable says that an entry must outlive the end of the machine's power: without the beginning of a job it would be forgotten, and
// without its end run again.
func durable(e replica.Entry, o replica.Outcome) bool {
	_, drains := e.Event.(cluster.Drain)
	return e.Founded != nil || e.Submitted != nil || drains || slices.ContainsFunc(o.Steps, func(s replica.Step) bool { return s.Ends })
}

// arm wakes the coordinator up at a deadline.
func (c *Coordinator) arm(id replica.TimerID) {
	t := c.state.Timers[id]
	if old := c.timers[id]; old != nil {
		old.Stop()
	}
	c.timers[id] = time.AfterFunc(time.Until(t.At), func() {
		c.post(func() {
			switch due, out := c.state.Timers[id]; {
			case !out: // its job has ended
				delete(c.timers, id)
			case due == t:
				delete(c.timers, id)
				c.cause(id.Due(t))
			}
		})
	})
}

// startTime is how much later than the first the last of the nodes may be that were started together.
const startTime = 10 * time.Second

// farewell waits until all agents have said goodbye to the finished job, also those that are only just starting.
func (c *Coordinator) farewell() {
	c.log.Release(true) // the rest is for those who have time for it
	late := time.NewTimer(time.Until(c.since.Add(startTime)))
	defer late.Stop()
	expect := c.cfg.Expect
	if c.incomplete {
		expect = c.cfg.Nodes
	}
	for waits := true; waits && len(c.came)+len(c.unwelcome) < expect; {
		select {
		case f := <-c.inbox:
			f()
		case <-c.arrived.wake:
			c.takeIn()
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
		case <-c.arrived.wake:
			c.takeIn()
		case <-limit.C:
			names := slices.Sorted(maps.Keys(c.members))
			c.warn(fmt.Errorf("%d agents do not say whether they know that the job is over: %s", len(names),
				strings.Join(names[:min(len(names), 8)], ", ")))
			return
		}
	}
}
