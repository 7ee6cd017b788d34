package rendezvous

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/core/capacity"
	"github.com/golaunch/golaunch/internal/core/replica"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/session"
	"github.com/golaunch/golaunch/rendezvous/internal/entry"
)

// cloud is a provider whose nodes exist only as tags. A test makes the agents of these nodes join.
type cloud struct {
	mu sync.Mutex
	// nodes has the provider's description of each node, by tag. made and ended count nodes.
	nodes       map[string]string
	made, ended int
	// says is the provider's description of a new node.
	says string
	// hangs is the call that does not answer the next time: "create" or "delete". If obeys is set,
	// the call does its work before it hangs. hung is closed when the call hangs.
	hangs string
	obeys bool
	hung  chan struct{}
}

func newCloud() *cloud { return &cloud{nodes: map[string]string{}, hung: make(chan struct{})} }

// call runs do, the work of a call, and hangs if hangs names the call.
func (p *cloud) call(ctx context.Context, name string, do func()) error {
	p.mu.Lock()
	hangs := p.hangs == name
	if !hangs || p.obeys {
		do()
	}
	if hangs {
		p.hangs = ""
		close(p.hung)
	}
	p.mu.Unlock()
	if hangs {
		<-ctx.Done()
	}
	return ctx.Err()
}

func (p *cloud) Create(ctx context.Context, tags []string) error {
	return p.call(ctx, "create", func() {
		for _, tag := range tags {
			if _, there := p.nodes[tag]; !there {
				p.nodes[tag] = p.says
				p.made++
			}
		}
	})
}

func (p *cloud) List(context.Context) (map[string]string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.nodes), nil
}

func (p *cloud) Delete(ctx context.Context, tags []string) error {
	return p.call(ctx, "delete", func() {
		for _, tag := range tags {
			if _, there := p.nodes[tag]; there {
				delete(p.nodes, tag)
				p.ended++
			}
		}
	})
}

// tags returns the tags of the provider's nodes.
func (p *cloud) tags() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.nodes))
}

// toy returns a kind of node with two GPUs.
func (p *cloud) toy() Capacity {
	return Capacity{Provider: p, Limit: time.Hour, Kind: capacity.Kind{Name: "toy", Node: gpus(0, 2), Max: 4, Idle: time.Minute, StartTimeout: time.Hour}}
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for limit := time.Now().Add(10 * time.Minute); !is(); time.Sleep(time.Second) {
		if time.Now().After(limit) {
			t.Fatalf("waited for %s", what)
		}
	}
}

// TestTakeoverInACall kills the coordinator while a call of a provider hangs, before or after the
// provider has done the work. The next coordinator must not request another node, and must not
// forget a node.
func TestTakeoverInACall(t *testing.T) {
	for _, call := range []string{"create", "delete"} {
		for _, obeys := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", call, obeys), func(t *testing.T) {
				several(t, func(t *testing.T, h *headed) {
					p := newCloud()
					p.hangs, p.obeys = call, obeys
					h.capacity = []Capacity{p.toy()}
					h.startAll()
					a := h.client().submit(detached(task("a", 2, 2)))
					if call == "create" {
						h.killIn(p)
					}
					eventually(t, "two nodes", func() bool { return len(p.tags()) == 2 })
					agents := h.joinTags(p.tags())
					eventually(t, "the job on both", func() bool { return agents[0].runs() == "a0" && agents[1].runs() == "a0" })
					for _, n := range agents {
						n.exitJob("a", 0, 0)
					}
					if r := a.over(t); r.Code != 0 || r.Attempts != 1 {
						t.Errorf("%+v", r)
					}
					if call == "delete" {
						h.killIn(p)
					}
					claims := func() (n int) {
						_, c := h.lead()
						n, _ = ask(c, func() (int, error) { return len(c.state.Capacity.Claims), nil })
						return n
					}
					eventually(t, "no node, and no claim", func() bool { return len(p.tags()) == 0 && claims() == 0 })
					if p.made != 2 || p.ended != 2 {
						t.Errorf("%d nodes made, %d ended, for two", p.made, p.ended)
					}
				})
			})
		}
	}
}

// killIn kills the leading coordinator once its call of a provider hangs.
func (h *headed) killIn(p *cloud) {
	h.t.Helper()
	select {
	case <-p.hung:
	case <-time.After(10 * time.Minute):
		h.t.Fatal("waited for a call that hangs")
	}
	addr, _ := h.lead()
	h.kill(addr)
	h.lead()
}

// joinTags makes the agents of a provider's nodes join.
func (h *headed) joinTags(tags []string) (all []*agent) {
	h.t.Helper()
	for i, tag := range tags {
		node := gpus(i+1, 2)
		node.Labels = map[string]string{capacity.TagLabel: tag}
		all = append(all, h.joinWith(session.Options{Node: node, Target: h.addrs[0], Elsewhere: h.addrs, DialAt: h.dial(node.Name), Warn: h.warn}, forever, map[string]*share{}))
	}
	return all
}

// TestLargestCapacity checks the largest entries of the log about requested nodes, and the largest
// status of these nodes.
func TestLargestCapacity(t *testing.T) {
	kind, why := text(capacity.MaxKind), text(wire.MaxText)
	for _, ev := range []capacity.Event{
		capacity.Requested{Kind: kind, Nodes: big, Why: why},
		capacity.Released{Tag: text(63), Code: capacity.CodeUnneeded, Why: why},
		capacity.Failed{Tag: text(63), Why: why},
		capacity.Gone{Tag: text(63), Why: why},
	} {
		b := entry.Write(replica.Entry{At: someDay, Capacity: ev})
		if got, err := entry.Read(b); err != nil || len(b) > wire.MaxMessage || !reflect.DeepEqual(got.Capacity, ev) {
			t.Errorf("%T: %d bytes, which are otherwise in the log (%v)", ev, len(b), err)
		}
	}
	host(t, func(t *testing.T, h *hosted) {
		h.crash()
		for i := range 2 * maxRequested {
			p := newCloud()
			p.says = text(2 * maxState)
			k := p.toy()
			k.Name = fmt.Sprintf("%0*d", capacity.MaxKind, i)
			k.Min, k.Max = 2, 2
			h.cfg.Capacity = append(h.cfg.Capacity, k)
		}
		h.start()
		u := h.user()
		u.submit(detached(task(largestID, 1000, 2)))
		time.Sleep(time.Minute)
		s := u.status()
		if len(s.Requested) != maxRequested || s.Requested[0].Nodes != 2 || len(s.Requested[0].State) != maxState {
			t.Errorf("%d requests, the first: %+v", len(s.Requested), s.Requested[:min(1, len(s.Requested))])
		}
		if len(s.Blocked) < wire.MaxText-3 || len(s.Blocked) > wire.MaxText || !strings.HasPrefix(s.Blocked, "no nodes are asked for job "+largestID) {
			t.Errorf("%d bytes say which job is blocked: %.200s", len(s.Blocked), s.Blocked)
		}
		blocked, _ := ask(h.c, func() (string, error) { return h.c.capacity.blocked, nil })
		if len(blocked) > wire.MaxText {
			t.Errorf("the coordinator notes %d bytes", len(blocked))
		}
	})
}
