package rendezvous

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/golaunch/golaunch/internal/job"
	"github.com/golaunch/golaunch/placement"
)

// record is the journal of the only job.
func (c *Coordinator) record(s Submission) journal {
	people := c.disk.people(s.Journal, nil)
	if c.cfg.Seat == nil {
		return people
	}
	c.lines = [][]byte{[]byte(c.epoch)}
	j := &shared{journal: people, c: c}
	j.keep(entry{Time: time.Now(), Event: eventSubmission, Detail: s})
	return j
}

// shared is a journal that the voters have too.
type shared struct {
	journal
	c    *Coordinator
	size int
}

func (j *shared) add(e entry) {
	j.journal.add(e)
	j.keep(e)
}

// keep ends the voters' journal when it is too long: nobody takes over a job of which he knows a part.
func (j *shared) keep(e entry) {
	if j.size > maxJournal {
		return
	}
	line, err := json.Marshal(e)
	if j.size += len(line) + 1; err == nil && j.size > maxJournal {
		err = fmt.Errorf("its journal has reached its limit of %d MiB", maxJournal>>20)
	}
	if err != nil {
		j.size = maxJournal + 1
		j.c.cfg.Warn(fmt.Errorf("the job ends with this node: %w", err))
		line = []byte(err.Error())
	}
	j.c.lines = append(j.c.lines, append(line, '\n'))
}

// Succeed goes on with a job in place of a coordinator that was lost, as [Coordinator.Run] does: agents have a lease to come back.
// Only Observe, Joined and Journal of the submission count.
func (c *Coordinator) Succeed(ctx context.Context, call Call, s Submission) (job.Result, error) {
	defer close(c.done)
	defer c.flush()
	if err := c.inherit(call, s); err != nil {
		return job.Result{}, fmt.Errorf("cannot take the job over: %w", err)
	}
	return c.rule(ctx)
}

func (c *Coordinator) inherit(call Call, local Submission) error {
	c.reign, c.restored = call.reign, true
	past := call.reign.Past
	if len(past) == 0 {
		return errors.New("the log is empty")
	}
	epoch, first, _ := bytes.Cut(past[0], []byte{'{'})
	c.epoch = string(epoch)
	text := slices.Concat(append([][]byte{{'{'}, first}, past[1:]...)...)
	var s saved
	good, err := s.read(bytes.NewReader(text))
	if err == nil && good < int64(len(text)) {
		err = fmt.Errorf("it is known up to byte %d of %d alone", good, len(text))
	}
	if err != nil {
		return err
	}
	s.Observe, s.Joined = local.Observe, local.Joined
	s.journal = &shared{journal: c.disk.people(local.Journal, text), c: c, size: len(text)}
	s.Detached = true // it has no client
	c.fit = slices.Clone(call.reign.Voters[1:])
	c.grown = true
	if err := c.resurrect(s); err != nil {
		return err
	}
	c.sole = c.jobs[s.Job.ID]
	nodes := c.present(s.events)
	if s.result == nil {
		c.dismissed(nodes)
	}
	for _, n := range nodes {
		c.expect(n)
	}
	c.vacate()
	c.follow(c.state.Resume())
	c.elect()
	c.call()
	return nil
}

// present are the nodes that had joined and were not lost. It notes those that were.
func (c *Coordinator) present(events []job.Event) map[string]placement.Node {
	nodes := map[string]placement.Node{}
	for _, ev := range events {
		switch ev := ev.(type) {
		case job.Joined:
			nodes[ev.Node.Name] = ev.Node
			delete(c.lapsed, ev.Node.Name)
		case job.Lost:
			delete(nodes, ev.Node)
			c.lapsed[ev.Node] = true
		default: // it moves no nodes
		}
	}
	return nodes
}

// dismissed takes out the nodes that have left the job in order: who comes from there now has no ranks of it, and is not waited for.
func (c *Coordinator) dismissed(nodes map[string]placement.Node) {
	held := map[string]bool{}
	for _, n := range c.state.Nodes() {
		held[n.Node.Name] = true
	}
	for name := range nodes {
		if !held[name] {
			delete(nodes, name)
			c.lapsed[name] = true
		}
	}
}

// vacate has others vote in place of voters that have left, once those are back that will be.
func (c *Coordinator) vacate() {
	time.AfterFunc(c.patience(), func() {
		c.post(func() {
			for _, v := range slices.Clone(c.fit) {
				if c.members[v.Name] == nil {
					c.unseat(v.Name)
				}
			}
		})
	})
}
