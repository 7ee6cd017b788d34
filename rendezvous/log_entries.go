package rendezvous

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/replica"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/quorum"
	"github.com/golaunch/golaunch/rendezvous/internal/entry"
	"github.com/golaunch/golaunch/rendezvous/internal/log"
)

// File keeps the log of a cluster's coordinator across restarts.
type File = log.File

// OpenFile opens the log in a directory. It creates the directory at first use, with mode 0700. It
// fails if another coordinator has the log open, or if another version of golaunch wrote the log.
func OpenFile(dir string) (*File, error) { return log.Open(dir) }

// restore makes the state from the log, or begins the log if it is empty.
func (c *Coordinator) restore() error {
	past, err := c.openLog()
	if err != nil {
		return err
	}
	if c.state, err = replay(past, c.replayJournal); err != nil {
		return err
	}
	empty := c.state == nil
	if empty && c.succession.term != nil && c.cfg.Job != nil {
		return errors.New("cannot take the job over: the voters' log is empty")
	}
	defer c.succession.lead()
	if empty {
		c.state = replica.New()
		c.apply(replica.Began(now(), rand.Text()))
		if c.cfg.Job != nil {
			s := *c.cfg.Job
			s.OnlyJob = true
			c.submit(s)
		}
		defer time.AfterFunc(c.patience(), func() { c.post(c.activateAll) })
		return nil
	}
	c.resume()
	return nil
}

// replay makes the state from a log. It returns nil if the log is empty.
func replay(past log.Past, heard func(replica.Entry, replica.Outcome)) (*replica.State, error) {
	var entries []replica.Entry
	for _, b := range past.Entries {
		e, err := entry.Read(b)
		if err != nil {
			return nil, fmt.Errorf("cannot read the coordinator's log: %w", err)
		}
		entries = append(entries, e)
	}
	if past.Snapshot == nil && len(entries) == 0 {
		return nil, nil
	}
	state, err := replica.Replay(past.Snapshot, entries, heard)
	if err != nil {
		return nil, fmt.Errorf("cannot read the coordinator's log: %w", err)
	}
	return state, nil
}

// openLog returns the past contents of the log, and opens the log for further entries.
func (c *Coordinator) openLog() (past log.Past, err error) {
	cfg := log.Config{Post: c.post, Snapshot: func() []byte { return c.state.Snapshot() }, Warn: c.warn}
	cfg.Lost = func(why error) { c.end.deposed = fmt.Errorf("%w (%w)", ErrDeposed, why) } // another coordinator may have replaced this one
	switch {
	case c.cfg.Term != nil:
		c.succession.term = c.cfg.Term.term
		cfg.Storage = quorumStorage{c.cfg.Term.term}
		past, err = pastOf(c.cfg.Term.term)
	case c.cfg.File != nil:
		cfg.Storage = c.cfg.File
		if past, err = c.cfg.File.Past(); err == nil && past.Torn > 0 {
			c.warn(fmt.Errorf("the last %d bytes of the coordinator's log were incomplete and are cut off; the agents report what is missing", past.Torn))
		}
	}
	c.log = log.New(cfg, past.Size)
	c.succession.exclusive.Store(cfg.Storage == nil || !cfg.Storage.Shared())
	return past, err
}

// replayJournal writes a past entry into the journal.
func (c *Coordinator) replayJournal(e replica.Entry, o replica.Outcome) {
	if s := e.Submitted; s != nil && s.OnlyJob {
		c.audience.Submitted(e.At, *s)
	}
	for _, st := range o.Steps {
		c.audience.Stepped(e.At, st)
	}
}

// resume restarts the timers of the restored state, and waits for the agents and the owners of the
// jobs. An agent that does not return within its patience is lost.
func (c *Coordinator) resume() {
	c.restored = true
	if c.cfg.onResume != nil {
		c.cfg.onResume(c.state.Index)
	}
	for id := range c.state.Timers {
		c.arm(id)
	}
	running := 0
	for _, record := range c.state.Jobs {
		j := c.track(record)
		if j.Result == nil {
			running++
			c.startOrphanTimer(j, c.cfg.Lease+wire.PatienceForReturn)
		}
		if record.OnlyJob {
			c.end.finished = j.Result != nil
		}
	}
	longest := time.Duration(0)
	for name, known := range c.state.Members {
		m := c.expect(known)
		longest = max(longest, m.Patience)
		m.inactive = !c.state.Cluster.Has(name)
	}
	if running > 0 {
		c.noteCluster("jobs taken over: %d; nodes that have %v to come back: %d", running, longest, len(c.members))
	}
	c.succession.takeOver()
}

// quorumStorage lets voters keep the log.
type quorumStorage struct{ term *quorum.Term }

// Shared says that another voter may be elected.
func (s quorumStorage) Shared() bool { return true }

// Confirm makes sure that this process still leads.
func (s quorumStorage) Confirm(done func(error)) { s.term.Confirm(done) }

// Keep adds a round to the voters' log as one entry.
func (s quorumStorage) Keep(r log.Round, done func(error)) {
	if r.Snapshot != nil {
		s.term.Snapshot(r.Snapshot, func(err error) {
			if err != nil || len(r.Entries) == 0 {
				done(err)
			}
		})
	}
	if len(r.Entries) > 0 {
		s.term.Propose([][]byte{log.Join(r.Entries)}, done)
	}
}

// pastOf returns what the voters have kept.
func pastOf(t *quorum.Term) (log.Past, error) {
	p := log.Past{Snapshot: t.Past.Snapshot}
	for _, round := range t.Past.Entries {
		entries, ok := log.Split(round)
		if !ok {
			return p, errors.New("cannot take the job over: the voters' log cannot be read")
		}
		p.Entries = append(p.Entries, entries...)
		p.Size += len(round)
	}
	return p, nil
}

// now returns the present time for an entry. It drops what the log does not store, so that a replay
// sees the same time.
func now() time.Time { return time.Now().Round(0).UTC() }

// applyEvent applies an event of the cluster that happens now.
func (c *Coordinator) applyEvent(ev cluster.Event) { c.apply(replica.Entry{At: now(), Event: ev}) }

// applyJobEvent applies an event of one job. If several ranks fail together, it keeps the evidence
// (output, traceback, kernel messages) of the first rank only.
func (c *Coordinator) applyJobEvent(j *trackedJob, ev job.Event) {
	if e, ends := ev.(job.Exited); ends && !c.state.Cluster.Weighs(j.Job.ID, e) {
		e.Tail, e.Traceback, e.Kernel = "", "", ""
		ev = e
	}
	c.applyEvent(cluster.Happened{Job: j.Job.ID, Event: ev})
}

// apply applies an entry to the state, appends the entry to the log, and performs the consequences.
func (c *Coordinator) apply(e replica.Entry) {
	c.trimmer.Happened(len(c.members))
	o := c.state.Apply(e)
	if c.log.Storage != nil && !o.Stale {
		c.log.Append(entry.Write(e), durable(e, o))
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
	c.capacity.happened()
}

// durable reports whether an entry must survive a power failure. Without its submission, a job
// would be forgotten; without its end, the job would run again. Without its request, a node would
// never be given back. Without the entry of a cohort, the ID of the cohort could occur twice.
func durable(e replica.Entry, o replica.Outcome) bool {
	_, drains := e.Event.(cluster.Drain)
	if ev, happened := e.Event.(cluster.Happened); happened {
		if q, forms := ev.Event.(job.Cohort); forms && q.Why == "" {
			return true
		}
	}
	return e.Founded != nil || e.Capacity != nil || e.Submitted != nil || drains || slices.ContainsFunc(o.Steps, func(s replica.Step) bool { return s.Ends })
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
			case !armed: // the timer's job has ended
				delete(c.timers, id)
			case due == t:
				delete(c.timers, id)
				c.applyEvent(id.Due(t))
			}
		})
	})
}
