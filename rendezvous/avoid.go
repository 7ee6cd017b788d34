package rendezvous

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/golaunch/golaunch/internal/cluster"
	"github.com/golaunch/golaunch/internal/job"
)

// avoidance is why jobs are given a node only if others will not do, and until when.
type avoidance struct {
	Why   string    `json:"why"`
	Until time.Time `json:"until"`
	timer *time.Timer
}

// shun has new jobs pass a node over whose hardware failed in a job, for as long as that excludes it.
func (c *Coordinator) shun(r *run, a job.Shun) {
	if r.Sole {
		return
	}
	c.avoid(a.Node, avoidance{Why: c.state.Shunned(a.Node), Until: time.Now().Add(r.Job.ExcludeFor)})
	c.note("node %s is passed over for %v while others are free: %s", a.Node, r.Job.ExcludeFor, c.avoided[a.Node].Why)
	c.keepAvoided()
}

// avoid keeps an avoidance, instead of an older one, for its time.
func (c *Coordinator) avoid(node string, a avoidance) {
	if old := c.avoided[node]; old != nil {
		old.timer.Stop()
	}
	a.timer = time.AfterFunc(time.Until(a.Until), func() {
		c.post(func() {
			if now := c.avoided[node]; now != nil && now.Until.Equal(a.Until) {
				c.pardon(node)
			}
		})
	})
	c.avoided[node] = &a
}

// pardon has a node given to jobs as any other.
func (c *Coordinator) pardon(node string) {
	if a := c.avoided[node]; a != nil {
		a.timer.Stop()
		delete(c.avoided, node)
		c.step(cluster.Avoid{Node: node})
		c.keepAvoided()
	}
}

func (c *Coordinator) keepAvoided() {
	text, err := json.Marshal(c.avoided)
	c.disk.write(func() {
		if err := errors.Join(err, c.cfg.Store.keep("avoided", text)); err != nil {
			c.cfg.Warn(fmt.Errorf("a later coordinator will not know which nodes have failed: %w", err))
		}
	})
}

// avoidAgain takes over what an earlier coordinator kept. What is over by now is pardoned at once.
func (c *Coordinator) avoidAgain() error {
	kept, err := c.cfg.Store.avoided()
	if err != nil {
		return fmt.Errorf("cannot read the coordinator's store: %w", err)
	}
	for node, a := range kept {
		c.step(cluster.Avoid{Node: node, Why: a.Why})
		c.avoid(node, a)
	}
	return nil
}
