package rendezvous

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/golaunch/golaunch/internal/cluster"
	"github.com/golaunch/golaunch/internal/job"
)

// restore takes over what a coordinator before this one had under way, and waits for its agents.
func (c *Coordinator) restore() (err error) {
	store := c.cfg.Store
	if store == nil {
		return nil
	}
	if c.epoch, err = store.epoch(); err != nil {
		return fmt.Errorf("cannot read the coordinator's store: %w", err)
	}
	jobs, err := store.load(&c.disk)
	if err != nil {
		return fmt.Errorf("cannot read the coordinator's store: %w", err)
	}
	if c.drained, err = store.drained(); err != nil {
		return fmt.Errorf("cannot read the coordinator's store: %w", err)
	}
	c.restored = true
	for _, s := range jobs {
		if err := c.resurrect(s); err != nil {
			c.cfg.Warn(fmt.Errorf("job %s cannot be taken over: %w", s.Job.ID, err))
			c.forget(s.Job.ID)
		}
	}
	if err := c.avoidAgain(); err != nil {
		return err
	}
	nodes := c.state.Nodes()
	for _, n := range nodes {
		c.expect(n.Node)
	}
	if running := len(c.jobs) - len(c.ended); running > 0 {
		c.note("jobs taken over: %d; nodes that run them have %v to come back: %d", running, c.patience(), len(nodes))
	}
	c.follow(c.state.Resume())
	for _, node := range slices.Sorted(maps.Keys(c.drained)) {
		c.step(cluster.Drain{Node: node})
	}
	return nil
}

// drain notes for a later coordinator that a node was asked to leave, or has.
func (c *Coordinator) drain(node string, drained bool) {
	if c.drained[node] == drained {
		return
	}
	if drained {
		c.drained[node] = true
	} else {
		delete(c.drained, node)
	}
	text := strings.Join(slices.Sorted(maps.Keys(c.drained)), "\n")
	c.disk.write(func() {
		if err := c.cfg.Store.keep("drained", []byte(text)); err != nil {
			c.cfg.Warn(fmt.Errorf("a later coordinator will not know which nodes are drained: %w", err))
		}
	})
}

// note tells what happens in a cluster.
func (c *Coordinator) note(format string, args ...any) {
	if c.sole == nil {
		c.cfg.Note(fmt.Sprintf(format, args...))
	}
}

func (c *Coordinator) resurrect(s saved) error {
	r := c.begin(s.Submission, s.journal)
	r.submitted, r.over, r.reason, r.result = s.submitted, s.over, s.reason, s.result
	for _, ev := range s.events {
		if e, ok := ev.(job.Joined); ok {
			r.nodes[e.Node.Name] = true
		}
	}
	if r.result != nil {
		r.close()
		c.ended = append(c.ended, r.Job.ID)
		return nil
	}
	c.orphan(r, c.cfg.Lease+patienceForReturn)
	changes, err := c.state.Restore(s.Spec, s.events)
	for i := range changes {
		r.ledger.Take(s.times[i], changes[i])
	}
	return err
}

// orphan ends a job whose owner is not back in time, unless it is detached.
func (c *Coordinator) orphan(r *run, patience time.Duration) {
	if r.Detached || r.result != nil {
		return
	}
	r.orphaned = time.AfterFunc(patience, func() {
		c.post(func() {
			if r.owners == 0 && r.result == nil {
				c.happened(r, job.Cancel{Code: codeOrphaned, Why: "the client that submitted it is gone"})
			}
		})
	})
}

// codeOrphaned is that of a process whose terminal has hung up (128 + SIGHUP).
const codeOrphaned = 129
