package capacity

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/placement"
)

// scene is a situation to which a test adds nodes and claims one after another.
type scene struct {
	Situation
	nodes int
}

func newScene(kinds ...Kind) *scene {
	for i := range kinds {
		k := &kinds[i]
		if k.Max == 0 {
			k.Max = 10
		}
		if k.Idle == 0 {
			k.Idle = 5 * time.Minute
		}
		if k.StartTimeout == 0 {
			k.StartTimeout = 10 * time.Minute
		}
	}
	return &scene{Situation: Situation{Now: at(0), Kinds: kinds, Pool: NewPool()}}
}

func (s *scene) claim(kind string, n int) []Claim {
	s.Pool.Apply(s.Now, "EPOCHX", Requested{Kind: kind, Nodes: n})
	all := s.Pool.Sorted()
	return all[len(all)-n:]
}

// join makes a node of a claim join.
func (s *scene) join(c Claim, gpus placement.Node) *cluster.Offer {
	s.nodes++
	gpus.Name = fmt.Sprintf("n%d", s.nodes)
	s.Pool.Joined(s.Now, gpus.Name, c.Tag)
	s.Offers = append(s.Offers, cluster.Offer{Node: gpus, Free: gpus})
	return &s.Offers[len(s.Offers)-1]
}

// hold makes a job hold all GPUs of a node.
func hold(o *cluster.Offer) {
	o.Held = true
	o.Free.GPUs = slices.Clone(o.Free.GPUs)
	for i := range o.Free.GPUs {
		o.Free.GPUs[i].HeldBy = "job j"
	}
}

func (s *scene) queue(id string, r placement.Request) {
	s.Demands = append(s.Demands, cluster.Demand{Job: id, Request: r})
}

// later lets time pass without events, and decides whenever the last decision asked for another
// one.
func (s *scene) later(d time.Duration) Decision {
	end := s.Now.Add(d)
	for {
		out := Decide(s.Situation)
		s.Waits = out.Waits
		switch {
		case len(out.Actions) > 0:
			return out
		case out.Next.IsZero() || out.Next.After(end):
			s.Now = end
			return out
		}
		s.Now = out.Next
	}
}

func text(d Decision) string {
	var lines []string
	for _, a := range d.Actions {
		switch a := a.(type) {
		case Request:
			lines = append(lines, fmt.Sprintf("%d x %s (%s: %s)", a.Nodes, a.Kind, a.Code, a.Why))
		case Fail:
			lines = append(lines, fmt.Sprintf("%s failed: %s", a.Tag, a.Why))
		case Drain:
			lines = append(lines, fmt.Sprintf("drain %s (%s: %s)", a.Node, a.Code, a.Why))
		case Delete:
			lines = append(lines, fmt.Sprintf("delete %s (%s: %s)", a.Tag, a.Code, a.Why))
		}
	}
	if d.Blocked != "" {
		lines = append(lines, d.Blocked+" blocked: "+d.Why)
	}
	return strings.Join(lines, "\n")
}

func TestDecide(t *testing.T) {
	a100, h100 := Kind{Name: "a100", Node: gpus(8), Cost: 3}, Kind{Name: "h100", Node: gpus(8), Cost: 9}
	with := func(k Kind, change func(*Kind)) Kind { change(&k); return k }
	for _, c := range []struct {
		name  string
		kinds []Kind
		set   func(s *scene)
		want  string
	}{
		{"nothing to do", []Kind{a100}, func(*scene) {}, ""},
		{"a job for two nodes", []Kind{a100}, func(s *scene) { s.queue("j", request(2, 8)) }, "2 x a100 (queue: for job j)"},
		{"two jobs share a node", []Kind{a100}, func(s *scene) {
			s.queue("j", request(1, 4))
			s.queue("k", request(1, 4))
		}, "1 x a100 (queue: for job j)"},
		{"many jobs", []Kind{a100}, func(s *scene) {
			for _, id := range []string{"a", "b", "c", "d", "e"} {
				s.queue(id, request(1, 8))
			}
		}, "5 x a100 (queue: for job a, b, c and others)"},
		{"a free node is enough for one of two", []Kind{a100}, func(s *scene) {
			s.join(s.claim("a100", 1)[0], gpus(8))
			s.queue("j", request(2, 8))
		}, "1 x a100 (queue: for job j)"},
		{"what is on its way is not asked for again", []Kind{a100}, func(s *scene) {
			s.claim("a100", 2)
			s.queue("j", request(2, 8))
		}, ""},
		{"a node that was not asked for counts", []Kind{a100}, func(s *scene) {
			s.join(Claim{}, gpus(8))
			s.queue("j", request(1, 8))
		}, ""},
		{
			"never a part of a gang",
			[]Kind{with(a100, func(k *Kind) { k.Max = 3 })},
			func(s *scene) { s.queue("j", request(4, 8)) },
			"j blocked: a100: 3 more would not do",
		},
		{"behind a blocked job only backfill", []Kind{with(a100, func(k *Kind) { k.Max = 3 })}, func(s *scene) {
			s.queue("big", request(4, 8))
			s.queue("behind", request(2, 8))
			s.queue("passes", request(1, 8))
			s.Demands[2].Backfill = true
		}, "1 x a100 (queue: for job passes)\nbig blocked: a100: 3 more would not do"},
		{"the cheapest kind", []Kind{h100, a100}, func(s *scene) { s.queue("j", request(1, 8)) }, "1 x a100 (queue: for job j)"},
		{"the cheapest as a whole", []Kind{{Name: "small", Node: gpus(1), Cost: 1}, {Name: "big", Node: gpus(8), Cost: 2}}, func(s *scene) {
			s.queue("j", placement.Request{MinNodes: 4, MaxNodes: 4, PerNode: []int{1}, GPU: true, Strategy: placement.Pack})
		}, "1 x big (queue: for job j)"},
		{
			"priority before cost",
			[]Kind{a100, with(h100, func(k *Kind) { k.Priority = 1 })},
			func(s *scene) { s.queue("j", request(1, 8)) },
			"1 x h100 (queue: for job j)",
		},
		{"two kinds together", []Kind{with(a100, func(k *Kind) { k.Max = 3 }), with(h100, func(k *Kind) { k.Max = 2 })}, func(s *scene) {
			s.queue("j", request(4, 8))
		}, "3 x a100 (queue: for job j)\n1 x h100 (queue: for job j)"},
		{
			"too small a kind",
			[]Kind{{Name: "small", Node: gpus(4)}},
			func(s *scene) { s.queue("j", request(1, 8)) },
			"j blocked: small: 10 more would not do",
		},
		{"all GPUs of each node", []Kind{a100}, func(s *scene) { s.queue("j", request(2, placement.AllGPUs)) }, "2 x a100 (queue: for job j)"},
		{
			"CPUs and memory",
			[]Kind{{Name: "small", Node: placement.Node{CPUs: 4, Memory: 1 << 30}}, {Name: "big", Node: placement.Node{CPUs: 64, Memory: 1 << 40}}},
			func(s *scene) {
				s.queue("j", placement.Request{MinNodes: 1, MaxNodes: 1, PerNode: []int{8}, CPUs: 2, Memory: 1 << 20})
			}, "1 x big (queue: for job j)",
		},
		{"a job for nodes that it names", []Kind{a100}, func(s *scene) {
			r := request(1, 8)
			r.Order = placement.Order{By: placement.ByList, List: []string{"x1"}}
			s.queue("j", r)
		}, "j blocked: a100: 10 more would not do"},
		{"a job that lost one of its nodes", []Kind{a100}, func(s *scene) {
			claims := s.claim("a100", 2)
			o := s.join(claims[0], gpus(8))
			hold(o)
			share := o.Node
			s.join(claims[1], gpus(8))
			s.Pool.Lost(s.Now, "n2", claims[1].Tag, false)
			s.Offers = s.Offers[:1]
			s.queue("j", request(2, 8))
			s.Demands[0].Holds = []placement.Node{share}
		}, "1 x a100 (queue: for job j)"},
		{
			"a minimum",
			[]Kind{with(a100, func(k *Kind) { k.Min = 2 })},
			func(s *scene) { s.claim("a100", 1) },
			"1 x a100 (min: a100 has 1 of at least 2 nodes)",
		},
		{"a kind that failed is left alone", []Kind{a100, h100}, func(s *scene) {
			c := s.claim("a100", 1)[0]
			s.Pool.Apply(s.Now, "EPOCHX", Gone{c.Tag, "no capacity"})
			s.queue("j", request(1, 8))
		}, "1 x h100 (queue: for job j)"},
		{"a kind that promised too much is left alone", []Kind{a100}, func(s *scene) {
			s.join(s.claim("a100", 1)[0], gpus(4))
			s.queue("j", request(1, 8))
		}, "a100-epochx-1 failed: node n1 has 4 of the 8 GPUs of its kind; correct the kind\n" +
			"j blocked: a100: node n1 has 4 of the 8 GPUs of its kind; correct the kind"},
		{"a drained node that has left", []Kind{a100}, func(s *scene) {
			c := s.claim("a100", 1)[0]
			s.Pool.Joined(s.Now, "n1", c.Tag)
			s.Pool.Lost(s.Now, "n1", c.Tag, true)
		}, "delete a100-epochx-1 (left: node n1 was drained and has left)"},
		{"all kinds together", []Kind{with(a100, func(k *Kind) { k.Max = 3 }), with(h100, func(k *Kind) { k.Max = 2 })}, func(s *scene) {
			s.Max = 4
			s.queue("j", request(4, 8))
			s.queue("k", request(1, 8))
		}, "3 x a100 (queue: for job j)\n1 x h100 (queue: for job j)\nk blocked: a100: at its max of 3; h100: the cluster may have 4 nodes"},
		{"room for the minimum of another kind", []Kind{a100, with(h100, func(k *Kind) { k.Min = 2 })}, func(s *scene) {
			s.Max = 3
			s.claim("old", 1)
			s.queue("j", request(1, 8))
		}, "1 x h100 (min: h100 has 1 of at least 2 nodes)\n1 x h100 (queue: for job j)"},
		{"the first kinds leave room for the last", []Kind{{Name: "small", Node: gpus(4), Max: 4}, {Name: "big", Node: gpus(8), Max: 2}}, func(s *scene) {
			s.Max = 4
			s.queue("j", placement.Request{MinNodes: 6, MaxNodes: 6, PerNode: []int{4}, GPU: true, Strategy: placement.Pack})
		}, "2 x small (queue: for job j)\n2 x big (queue: for job j)"},
		{"claims of a kind that is no longer there are left alone", []Kind{a100}, func(s *scene) { s.claim("old", 3) }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(slices.Clone(c.kinds)...)
			c.set(s)
			if got := text(Decide(s.Situation)); got != c.want {
				t.Errorf("%s\nwant %s", got, c.want)
			}
		})
	}
}

func TestIdleNodesGo(t *testing.T) {
	s := newScene(Kind{Name: "a", Node: gpus(8), Min: 1})
	claims := s.claim("a", 3)
	hold(s.join(claims[0], gpus(8)))
	s.join(claims[1], gpus(8))
	s.join(claims[2], gpus(8))
	if got := text(s.later(4 * time.Minute)); got != "" {
		t.Errorf("too early: %s", got)
	}
	got := text(s.later(2 * time.Minute))
	if want := "drain n2 (idle: no job has needed it for 5m0s)\ndrain n3 (idle: no job has needed it for 5m0s)"; got != want {
		t.Errorf("%s", got)
	}
	s.Offers[1].Drained, s.Offers[2].Drained = true, true
	if got := text(s.later(4 * time.Minute)); got != "" {
		t.Errorf("its agent has time to leave: %s", got)
	}
	if got := text(s.later(2 * time.Minute)); !strings.Contains(got, "delete "+claims[1].Tag+" (idle: node n2 was drained and has not left within 5m0s)") {
		t.Errorf("%s", got)
	}
}

func TestANodeThatIsNeededAgainIsNotIdle(t *testing.T) {
	s := newScene(Kind{Name: "a", Node: gpus(8)})
	o := s.join(s.claim("a", 1)[0], gpus(8))
	s.later(4 * time.Minute)
	hold(o)
	s.later(time.Second)
	o.Held, o.Free = false, o.Node
	if got := text(s.later(4 * time.Minute)); got != "" {
		t.Errorf("its idle time goes on as if it had not been used: %s", got)
	}
	if got := text(s.later(2 * time.Minute)); !strings.HasPrefix(got, "drain n1") {
		t.Errorf("%q", got)
	}
}

// TestTheClockIsSetBack sets the clock back by a day. Each wait then lasts as long as usual.
func TestTheClockIsSetBack(t *testing.T) {
	for name, c := range map[string]struct {
		before func(s *scene, c Claim)
		within time.Duration
		want   string
	}{
		"idle": {func(s *scene, c Claim) { s.join(c, gpus(8)) }, 5 * time.Minute, "drain n1 (idle: "},
		"late": {func(s *scene, c Claim) { s.queue("j", request(1, 8)) }, 10 * time.Minute, "delete a-epochx-1 (late: "},
		"lost": {func(s *scene, c Claim) {
			s.Pool.Joined(s.Now, "n1", c.Tag)
			s.Pool.Lost(s.Now, "n1", c.Tag, false)
		}, rejoinTime, "delete a-epochx-1 (lost: "},
		"failed": {func(s *scene, c Claim) {
			s.Pool.Apply(s.Now, "EPOCHX", Gone{c.Tag, "no capacity"})
			s.queue("j", request(1, 8))
		}, maxBackoff, "1 x a (queue: for job j)"},
	} {
		s := newScene(Kind{Name: "a", Node: gpus(8)})
		c.before(s, s.claim("a", 1)[0])
		s.later(30 * time.Second)
		s.Now = s.Now.Add(-24 * time.Hour)
		begin := s.Now
		if got := text(s.later(25 * time.Hour)); !strings.HasPrefix(got, c.want) || s.Now.Sub(begin) > c.within {
			t.Errorf("%s: %q after %v", name, got, s.Now.Sub(begin))
		}
	}
	p := NewPool()
	for _, now := range []time.Time{at(0), at(-24 * time.Hour)} {
		p.Apply(now, "EPOCHX", Requested{Kind: "a", Nodes: 1})
		for _, c := range p.Sorted() {
			p.Apply(now, "EPOCHX", Gone{c.Tag, "no capacity"})
			p.Apply(now, "EPOCHX", Gone{c.Tag, "no capacity"})
		}
		if b := p.Backoffs["a"]; !b.lasts(now.Add(minBackoff - 1)) {
			t.Errorf("the kind is not left alone after a failure: %+v", b)
		}
	}
}

func TestARequestIsGivenUp(t *testing.T) {
	s := newScene(Kind{Name: "a", Node: gpus(8), Cost: 1}, Kind{Name: "b", Node: gpus(8), Cost: 2})
	c := s.claim("a", 1)[0]
	s.queue("j", request(1, 8))
	out := s.later(11 * time.Minute)
	if got := text(out); got != "delete "+c.Tag+" (late: it did not come within 10m0s)" {
		t.Fatal(got)
	}
	s.Pool.Apply(s.Now, "EPOCHX", Released{c.Tag, CodeLate, out.Actions[0].(Delete).Why})
	if got := text(Decide(s.Situation)); got != "1 x b (queue: for job j)" {
		t.Errorf("%s: want another kind", got)
	}
	if s.Pool.Refuses("EPOCHX", "n1", c.Tag) == "" {
		t.Error("its node may join")
	}
	s.Pool.Apply(s.Now, "EPOCHX", Gone{c.Tag, "deleted"})
	if len(s.Pool.Claims) != 0 {
		t.Error("it is still there")
	}
	s.Now = s.Now.Add(minBackoff)
	if got := text(Decide(s.Situation)); got != "1 x a (queue: for job j)" {
		t.Errorf("%s: want the first kind again", got)
	}
}

func TestARequestThatNoJobNeedsIsGivenUp(t *testing.T) {
	s := newScene(Kind{Name: "a", Node: gpus(8)})
	c := s.claim("a", 1)[0]
	if got := text(s.later(6 * time.Minute)); got != "delete "+c.Tag+" (unneeded: no job has needed it for 5m0s)" {
		t.Error(got)
	}
}

func TestAGangIsKeptForAShortWhile(t *testing.T) {
	s := newScene(Kind{Name: "a", Node: gpus(8), Max: 2, Idle: time.Second})
	claims := s.claim("a", 2)
	s.join(claims[0], gpus(8))
	s.Pool.Apply(s.Now, "EPOCHX", Gone{claims[1].Tag, "no capacity"})
	s.Pool.Apply(s.Now, "EPOCHX", Gone{claims[1].Tag, "no capacity"})
	s.queue("j", request(2, 8))
	if got := text(s.later(29 * time.Second)); !strings.HasPrefix(got, "j blocked: a: not asked for until ") {
		t.Errorf("its first node is not kept: %s", got)
	}
	if got := text(s.later(2 * time.Second)); got != "1 x a (queue: for job j)" {
		t.Error(got)
	}
	s.Pool.Backoffs["a"] = Backoff{Failures: 9, Until: s.Now.Add(maxBackoff)}
	if got := text(s.later(3 * time.Second)); !strings.HasPrefix(got, "drain n1") {
		t.Errorf("it is kept for long: %s", got)
	}
}

func TestALostNodeHasTimeToComeBack(t *testing.T) {
	s := newScene(Kind{Name: "a", Node: gpus(8), Max: 1})
	c := s.claim("a", 1)[0]
	s.Pool.Joined(s.Now, "n1", c.Tag)
	s.Pool.Lost(s.Now, "n1", c.Tag, false)
	if got := text(s.later(59 * time.Second)); got != "" {
		t.Error(got)
	}
	if got := text(s.later(2 * time.Second)); got != "delete "+c.Tag+" (lost: node n1 was lost and has not come back within 1m0s)" {
		t.Error(got)
	}
}

func TestFailuresBackOff(t *testing.T) {
	p, now := NewPool(), at(0)
	var waits []time.Duration
	for range 8 {
		p.Apply(now, "EPOCHX", Requested{Kind: "a", Nodes: 3})
		for _, c := range p.Sorted() {
			p.Apply(now, "EPOCHX", Gone{c.Tag, "no capacity"}) // three at once are one failure
			p.Apply(now, "EPOCHX", Gone{c.Tag, "no capacity"})
		}
		until := p.Backoffs["a"].Until
		waits, now = append(waits, until.Sub(now)), until
	}
	if got, want := fmt.Sprint(waits), "[30s 1m0s 2m0s 4m0s 8m0s 15m0s 15m0s 15m0s]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	now = now.Add(maxBackoff + time.Second)
	p.Apply(now, "EPOCHX", Requested{Kind: "a", Nodes: 1})
	p.Joined(now, "n1", p.Sorted()[0].Tag)
	p.Apply(now, "EPOCHX", Failed{p.Sorted()[0].Tag, "half a node"})
	if got := p.Backoffs["a"].Until.Sub(now); got != minBackoff {
		t.Errorf("%v after a kind was well for long", got)
	}
}

func TestOneNodeForOneClaim(t *testing.T) {
	p := NewPool()
	p.Apply(at(0), "EPOCHX", Requested{Kind: "a", Nodes: 1})
	tag := p.Sorted()[0].Tag
	p.Joined(at(1), "n1", tag)
	if p.Refuses("EPOCHX", "n1", tag) != "" || p.Refuses("EPOCHX", "n2", "other") != "" {
		t.Error("nodes are refused")
	}
	if p.Refuses("EPOCHX", "n2", tag) == "" {
		t.Error("a second node has the same tag")
	}
	p.Apply(at(2), "EPOCHX", Gone{tag, "an empty list"})
	if !p.Claims[tag].Released.IsZero() {
		t.Error("a node that is there is given up")
	}
	p.Lost(at(3), "n1", tag, false)
	p.Apply(at(4), "EPOCHX", Gone{tag, "it has ended"})
	p.Apply(at(5), "EPOCHX", Gone{tag, "it was deleted"})
	if len(p.Claims) > 0 || p.Refuses("EPOCHX", "n1", tag) == "" {
		t.Errorf("a node that was given up may come again; the claims are %v", p.Claims)
	}
	for _, other := range []string{"a-epochy-1", "a-epochx-2", "a-epochx-0", "a-epochx-01", "-epochx-1", "epochx-1", "a-epochx-", "a"} {
		if why := p.Refuses("EPOCHX", "n1", other); why != "" {
			t.Errorf("%s is not of this log: %s", other, why)
		}
	}
}
