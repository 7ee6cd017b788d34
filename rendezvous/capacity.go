package rendezvous

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/golaunch/golaunch/internal/core/capacity"
	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/core/replica"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/rendezvous/internal/provision"
)

// Provider makes and deletes nodes of one kind. Each node has a tag, which its agent reports as the
// node's label "capacity.tag". Create has no effect on a node that the provider already has, and
// Delete has no effect on a node that it no longer has. The end of ctx ends a call.
type Provider interface {
	// Create asks for nodes. It does not wait until the nodes exist.
	Create(ctx context.Context, tags []string) error
	// List returns the nodes that the provider has or will have, including nodes that others have
	// requested. states has the provider's description of each node by tag: "Slurm job 4711,
	// pending: Priority".
	List(ctx context.Context) (states map[string]string, err error)
	// Delete gives nodes back, or cancels requests for nodes that do not exist yet.
	Delete(ctx context.Context, tags []string) error
}

// Deliverer is a Provider whose nodes do not start an agent by themselves.
type Deliverer interface {
	Provider
	// Deliver starts an agent on each of the nodes on which it has not started one yet. The last
	// List had these nodes, and they have not joined. states describes nodes, and failed says which
	// nodes are of no use and why, by tag.
	Deliver(ctx context.Context, tags []string) (states, failed map[string]string)
}

// Capacity describes nodes of one kind that the coordinator of a cluster may request.
type Capacity struct {
	capacity.Kind
	Provider Provider
	// Limit bounds each call of the provider; a minute when 0.
	Limit time.Duration
}

// decideEvery is the shortest time between two decisions of the capacityPlanner.
const decideEvery = time.Second

// capacityPlanner requests the nodes that the queue of jobs needs. It belongs to the goroutine of
// Run. Each of its workers has its own goroutine.
type capacityPlanner struct {
	c       *Coordinator
	kinds   []capacity.Kind
	workers map[string]*provision.Worker
	running sync.WaitGroup
	stop    context.CancelFunc
	// timer is for the next decision. due is the time of that decision, zero when none is planned.
	// last is the time of the last decision.
	timer     *time.Timer
	due, last time.Time
	waits     map[capacity.Wait]time.Time
	// blocked says for which job the planner cannot request nodes, and why.
	blocked string
	// states are the providers' descriptions of nodes, by tag. troubles are the failures of
	// providers, by kind.
	states, troubles map[string]string
}

// GiveBack deletes all nodes that coordinators with this log have requested. It returns the number
// of these nodes once the providers have none of them. No coordinator may run at the same time. Say
// gets progress messages. If GiveBack fails, the error has the tags of the nodes that may be left.
func GiveBack(ctx context.Context, file *File, all []Capacity, say func(string)) (int, error) {
	past, err := file.Past()
	if err != nil {
		return 0, err
	}
	state, err := replay(past, nil)
	if err != nil || state == nil {
		return 0, err
	}
	want := map[string][]provision.Wanted{}
	var left []string
	for _, claim := range state.Capacity.Sorted() {
		want[claim.Kind] = append(want[claim.Kind], provision.Wanted{Tag: claim.Tag, Delete: true, Requested: claim.Requested})
		left = append(left, claim.Tag)
	}
	ctx, cancel := context.WithCancel(ctx)
	type report struct {
		kind string
		provision.Report
	}
	reports := make(chan report)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	workers := map[string]*provision.Worker{}
	for _, k := range all {
		w := provision.New(k.Provider, cmp.Or(k.Limit, time.Minute), func(r provision.Report) {
			select {
			case reports <- report{k.Name, r}:
			case <-ctx.Done():
			}
		})
		workers[k.Name] = w
		w.Want(want[k.Name])
		running.Go(func() { w.Run(ctx) })
	}
	for kind, nodes := range want {
		if workers[kind] == nil {
			return 0, fmt.Errorf("the file has no kind %s any more, of which there may be %d nodes, such as %s: put it back", kind, len(nodes), nodes[0].Tag)
		}
	}
	asked := len(left)
	trouble := ""
	for len(left) > 0 {
		select {
		case r := <-reports:
			if r.Err != nil && r.Err.Error() != trouble {
				trouble = r.Err.Error()
				say(fmt.Sprintf("%s: %s", r.kind, cut(trouble)))
			}
			for tag := range r.Gone {
				left = slices.DeleteFunc(left, func(other string) bool { return other == tag })
				want[r.kind] = slices.DeleteFunc(slices.Clone(want[r.kind]), func(x provision.Wanted) bool { return x.Tag == tag })
				say(tag + " is gone")
			}
			workers[r.kind].Want(want[r.kind])
		case <-ctx.Done():
			return asked, fmt.Errorf("%d nodes may be left: %s: %w", len(left), cut(strings.Join(left, ", ")), cmp.Or(context.Cause(ctx), ctx.Err()))
		}
	}
	return asked, nil
}

// startCapacity starts the capacityPlanner, if the coordinator may request nodes.
func (c *Coordinator) startCapacity() {
	if len(c.cfg.Capacity) == 0 {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &capacityPlanner{
		c: c, stop: cancel, workers: map[string]*provision.Worker{}, states: map[string]string{}, troubles: map[string]string{},
	}
	for _, k := range c.cfg.Capacity {
		w := provision.New(k.Provider, cmp.Or(k.Limit, time.Minute), func(r provision.Report) { c.post(func() { p.reported(k.Name, r) }) })
		p.kinds, p.workers[k.Name] = append(p.kinds, k.Kind), w
		p.running.Go(func() { w.Run(ctx) })
	}
	c.capacity = p
	p.want()
	p.happened()
}

// close ends the timer, the workers and their calls of providers. The next coordinator learns from
// the providers what these calls have done.
func (p *capacityPlanner) close() {
	if p == nil {
		return
	}
	p.stop()
	p.timer.Stop()
	ended := make(chan struct{})
	go func() {
		p.running.Wait()
		close(ended)
	}()
	limit := time.NewTimer(drainLimit)
	defer limit.Stop()
	for {
		select {
		case f := <-p.c.inbox: // a worker may be waiting to deliver its report
			f()
		case <-ended:
			return
		case <-limit.C:
			p.c.warn(errors.New("a call of a provider does not end"))
			return
		}
	}
}

// happened makes the planner decide soon, because the state has changed.
func (p *capacityPlanner) happened() {
	if p != nil {
		p.plan(p.last.Add(decideEvery))
	}
}

// plan makes the planner decide at this time at the latest.
func (p *capacityPlanner) plan(at time.Time) {
	if !p.due.IsZero() && !at.Before(p.due) {
		return
	}
	p.due = at
	if p.timer != nil {
		p.timer.Stop()
	}
	p.timer = time.AfterFunc(time.Until(at), func() {
		p.c.post(func() {
			if p.due.Equal(at) {
				p.decide()
			}
		})
	})
}

func (p *capacityPlanner) decide() {
	p.due, p.last = time.Time{}, time.Now()
	state := p.c.state
	d := capacity.Decide(capacity.Situation{
		Now: now(), Kinds: p.kinds, Max: p.c.cfg.MaxNodes, Pool: state.Capacity, Demands: state.Cluster.Demands(), Offers: state.Cluster.Offers(), Waits: p.waits,
	})
	p.waits = d.Waits
	p.block(d)
	for _, a := range d.Actions {
		p.act(a)
	}
	if len(d.Actions) > 0 {
		p.want()
	}
	if !d.Next.IsZero() {
		p.plan(p.last.Add(max(decideEvery, d.Next.Sub(p.last))))
	}
}

// block reports a job for which the planner cannot request nodes, once for each reason.
func (p *capacityPlanner) block(d capacity.Decision) {
	text := ""
	if d.Blocked != "" {
		text = wire.Plain(fmt.Sprintf("no nodes are asked for job %s: %s", d.Blocked, d.Why))
	}
	if text != "" && text != p.blocked {
		p.c.noteCluster("%s", text)
	}
	p.blocked = text
}

func (p *capacityPlanner) act(a capacity.Action) {
	switch a := a.(type) {
	case capacity.Request:
		p.c.noteCluster("%d x %s requested: %s", a.Nodes, a.Kind, a.Why)
		p.c.applyCapacity(capacity.Requested{Kind: a.Kind, Nodes: a.Nodes, Why: wire.Plain(a.Why)})
	case capacity.Drain:
		p.c.noteCluster("node %s is drained: %s", a.Node, a.Why)
		p.c.applyEvent(cluster.Drain{Node: a.Node})
	case capacity.Fail:
		p.c.warn(fmt.Errorf("%s: %s", a.Tag, a.Why))
		p.c.applyCapacity(capacity.Failed{Tag: a.Tag, Why: wire.Plain(a.Why)})
	case capacity.Delete:
		p.c.noteCluster("%s is given back: %s", a.Tag, a.Why)
		p.c.applyCapacity(capacity.Released{Tag: a.Tag, Code: a.Code, Why: wire.Plain(a.Why)})
	}
}

func (c *Coordinator) applyCapacity(ev capacity.Event) {
	c.apply(replica.Entry{At: now(), Capacity: ev})
}

// want tells the workers which nodes their providers should have, once the log has stored these
// nodes.
func (p *capacityPlanner) want() {
	all := map[string][]provision.Wanted{}
	for _, claim := range p.c.state.Capacity.Sorted() {
		if !claim.Released.IsZero() || claim.Joined.IsZero() {
			all[claim.Kind] = append(all[claim.Kind], provision.Wanted{Tag: claim.Tag, Delete: !claim.Released.IsZero(), Requested: claim.Requested})
		}
	}
	p.c.log.Then(func() {
		for kind, w := range p.workers {
			w.Want(all[kind])
		}
	})
}

// reported handles a worker's report.
func (p *capacityPlanner) reported(kind string, r provision.Report) {
	for tag, state := range r.States {
		p.states[tag] = cut(state)
	}
	trouble := ""
	if r.Err != nil {
		trouble = cut(r.Err.Error())
	}
	if trouble != "" && trouble != p.troubles[kind] {
		p.c.warn(fmt.Errorf("%s: %s", kind, trouble))
	}
	p.troubles[kind] = trouble
	pool := p.c.state.Capacity
	for tag, why := range r.Gone {
		claim, there := pool.Claims[tag]
		if !there {
			continue
		}
		if claim.Released.IsZero() {
			p.c.warn(fmt.Errorf("%s does not come: %s", tag, cut(why)))
		}
		p.c.applyCapacity(capacity.Gone{Tag: tag, Why: cut(why)})
		if _, there := pool.Claims[tag]; !there {
			delete(p.states, tag)
			p.c.noteCluster("%s is gone", tag)
		}
	}
	p.want()
}

// maxState bounds a provider's text in the log and in a status.
const maxState = 1 << 10

func cut(text string) string {
	text = wire.Plain(text)
	return wire.Plain(text[:min(len(text), maxState)])
}

// maxRequested bounds the requests in a status.
const maxRequested = 64

// status adds the requested nodes to a status.
func (p *capacityPlanner) status(s *report.Status) {
	if p == nil {
		return
	}
	s.Blocked = p.blocked
	for _, claim := range p.c.state.Capacity.Sorted() {
		if !claim.Released.IsZero() || !claim.Joined.IsZero() {
			continue
		}
		same := func(r report.RequestedNodes) bool { return r.Kind == claim.Kind && r.Since.Equal(claim.Requested) }
		if i := slices.IndexFunc(s.Requested, same); i >= 0 {
			s.Requested[i].Nodes++
		} else if len(s.Requested) < maxRequested {
			state := cmp.Or(p.troubles[claim.Kind], p.states[claim.Tag])
			s.Requested = append(s.Requested, report.RequestedNodes{Kind: claim.Kind, Nodes: 1, Since: claim.Requested, State: state})
		}
	}
}
