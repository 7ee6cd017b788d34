package rendezvous

import (
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/replica"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/jsonout"
	"github.com/golaunch/golaunch/rendezvous/internal/log"
)

// begin makes the coordinator from its log, which it begins if there is none.
func (c *Coordinator) begin() error {
	past, err := c.past()
	if err != nil {
		return err
	}
	var entries []replica.Entry
	for _, b := range past.Entries {
		e, err := wire.ReadEntry(b)
		if err != nil {
			return fmt.Errorf("cannot read the coordinator's log: %w", err)
		}
		entries = append(entries, e)
	}
	fresh := past.Snapshot == nil && len(entries) == 0
	if fresh && c.term != nil && c.cfg.Job != nil {
		return errors.New("cannot take the job over: the voters have kept nothing")
	}
	defer c.peered()
	if fresh {
		c.state = replica.New()
		c.step(replica.Began(now(), rand.Text()))
		if c.cfg.Job != nil {
			s := *c.cfg.Job
			s.Sole = true
			c.submit(s)
		}
		defer time.AfterFunc(c.patience(), func() { c.post(c.assemble) })
		return nil
	}
	if c.state, err = replica.Replay(past.Snapshot, entries, c.recall); err != nil {
		return fmt.Errorf("cannot read the coordinator's log: %w", err)
	}
	c.resume()
	return nil
}

// past is what the log has from before, and makes the log.
func (c *Coordinator) past() (past log.Past, err error) {
	cfg := log.Config{Post: c.post, Snapshot: func() []byte { return c.state.Snapshot() }, Warn: c.warn, Lost: c.lostLog}
	switch {
	case c.cfg.Term != nil:
		c.term = c.cfg.Term.term
		cfg.Storage = voters{c.term}
		past, err = pastOf(c.term)
	case c.cfg.File != nil:
		cfg.Storage = c.cfg.File
		if past, err = c.cfg.File.Past(); err == nil && past.Torn > 0 {
			c.warn(fmt.Errorf("the last %d bytes of the coordinator's log are torn and were cut off; the agents say what is missing", past.Torn))
		}
	}
	c.log = log.New(cfg, past.Size)
	c.alone.Store(cfg.Storage == nil || !cfg.Storage.Shared())
	return past, err
}

// recall has the journal for people begin with what is past.
func (c *Coordinator) recall(e replica.Entry, o replica.Outcome) {
	if s := e.Submitted; s != nil && s.Sole {
		c.journal.add(jsonout.Event{Time: e.At, Event: eventSubmission, Detail: s})
	}
	for _, st := range o.Steps {
		c.record(e.At, st)
	}
}

// record writes a step of the only job for people.
func (c *Coordinator) record(at time.Time, st replica.Step) {
	if st.Event == nil || c.journal == nil {
		return
	}
	c.journal.add(jsonout.Event{Time: at, Event: eventName(st.Event), Reason: st.Reason, Detail: st.Event})
	if st.Ends {
		for _, a := range st.Actions {
			if end, ok := a.(job.Finish); ok {
				c.journal.add(jsonout.Event{Time: at, Event: eventResult, Detail: end.Result})
			}
		}
	}
}

// resume connects what a log has with the world: its timers, its agents, which have a lease to come back, and the owners of its jobs.
func (c *Coordinator) resume() {
	c.restored = true
	if c.cfg.resumed != nil {
		c.cfg.resumed(c.state.Index)
	}
	for id := range c.state.Timers {
		c.arm(id)
	}
	running := 0
	for id, j := range c.state.Jobs {
		r := c.attach(j)
		if r.Result == nil {
			running++
			c.orphan(r, c.cfg.Lease+wire.PatienceForReturn)
		}
		if j.Sole {
			c.sole = c.runs[id]
			c.over = r.Result != nil
		}
	}
	longest := time.Duration(0)
	for name, m := range c.state.Members {
		back := c.expect(m)
		longest = max(longest, back.patience)
		if !c.state.Cluster.Has(name) {
			back.node = &m.Node
		}
	}
	if running > 0 {
		c.note("jobs taken over: %d; nodes that have %v to come back: %d", running, longest, len(c.members))
	}
	c.succeed()
}
