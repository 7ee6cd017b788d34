package main

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

var load = Load{Ranks: 8, Task: 4 << 10, Evidence: 8 << 10, Answer: 4 << 10, Lines: 10_000}

// model is any, with all that a cluster does.
func model(t *rapid.T) (Model, []work) {
	number := func(name string, from, to int) int { return rapid.IntRange(from, to).Draw(t, name) }
	micro := func(name string) float64 { return float64(number(name, 0, 50)) / (1 << 20) }
	m := Model{
		Nodes: number("nodes", 1, 60), Width: number("width", 1, 20), Merges: rapid.Bool().Draw(t, "merges"),
		Cores: number("cores", 1, 8), AgentCores: number("agent cores", 1, 3),
		Card: float64(int(1) << number("card", 20, 36)), AgentCard: float64(int(1) << number("agent card", 20, 36)), Trip: micro("trip"),
		Cost: Cost{Join: 30 * micro("join"), Alone: micro("alone"), Among: micro("among"), Byte: micro("byte") / 1024, Admit: micro("admit"), Step: micro("step")},
	}
	return m, load.works(m.Cost)
}

// near says that two numbers are the same but for what float64 rounds.
func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(math.Abs(a), math.Abs(b), 1e-6) }

// TestCoordinator holds that the coordinator of any tree gets all that is said, once, and sends each node its own, once, and what is the same for
// all once over each of its connections, and that it pays for that and nothing else. What agents merge loses headers, and evidence.
func TestCoordinator(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, works := model(t)
		for _, w := range works {
			for _, r := range w.rounds {
				r.Reader = false
				want := Result{Head: float64(m.Nodes) * r.Step * float64(r.News.Count+r.Answer.Count)}
				for v, last := m.below(0); v < last; v++ {
					want = want.plus(m.above(r, m.sizes()[v]))
				}
				if got := m.Run(r); got.In != want.In || got.Out != want.Out || !near(got.Head, want.Head) {
					t.Fatalf("%s: %+v, want %+v", w.name, got, want)
				}
			}
		}
	})
}

func (r Result) plus(o Result) Result {
	return Result{Head: r.Head + o.Head, In: r.In + o.In, Out: r.Out + o.Out}
}

// above is what the coordinator has to do for a connection that is above so many nodes.
func (m Model) above(r Round, nodes int) (sum Result) {
	if r.Joins != None {
		sum.Head = m.Join
	}
	if m.Merges {
		for _, said := range []Message{r.News, r.Answer} {
			if said.Count > 0 {
				one := Message{Count: 1, Bytes: nodes * (said.Bytes - said.Evidence)}
				one.Bytes += min(nodes*said.Evidence, 64*said.Evidence/said.Count)
				sum = sum.plus(Result{Head: m.end(one), In: onWire(one)})
			}
		}
		orders := Message{Count: 1, Bytes: r.Same.Bytes + nodes*r.Order.Bytes}
		return sum.plus(Result{Head: m.end(orders), Out: onWire(orders)})
	}
	end := m.end
	if nodes > 1 {
		end = func(of Message) float64 { return m.Among*float64(of.Count) + m.Byte*float64(of.Bytes) }
	}
	n := float64(nodes)
	return sum.plus(Result{
		Head: m.end(r.Same) + n*(end(r.News)+end(r.Order)+end(r.Answer)),
		In:   nodes * (onWire(r.News) + onWire(r.Answer)), Out: onWire(r.Same) + nodes*onWire(r.Order),
	})
}

// TestOnWire counts headers: one of each segment, and those of each message.
func TestOnWire(t *testing.T) {
	for m, want := range map[Message]int{{}: 0, {Count: 1}: 126, {Count: 2, Bytes: 10}: 262, {Count: 1, Bytes: 1448}: 1448 + 36 + 2*90} {
		if got := onWire(m); got != want {
			t.Errorf("%+v: %d bytes, want %d", m, got, want)
		}
	}
}

// TestWideTreeIsAStar holds that a tree whose coordinator has room for all is no tree.
func TestWideTreeIsAStar(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, works := model(t)
		m.Merges, m.Width = false, m.Nodes
		wider := m
		wider.Width += rapid.IntRange(1, 100).Draw(t, "wider")
		for _, w := range works {
			if a, b := m.Run(w.rounds...), wider.Run(w.rounds...); a != b {
				t.Fatalf("%s: %+v, and %+v with more room", w.name, a, b)
			}
		}
	})
}

// TestStarOfCores has the cores of the coordinator alone count. They share what all messages cost, and the goroutine does its part alone: at the
// same time at best, and after that at worst.
func TestStarOfCores(t *testing.T) {
	for _, cores := range []int{1, 2, 4, 16, 64} {
		m := Model{Nodes: 2000, Width: 2000, Cores: cores, AgentCores: 1, Card: 1e18, AgentCard: 1e18, Cost: costs}
		for _, w := range load.works(m.Cost) {
			for _, r := range w.rounds {
				r.Reader = false
				ends := m.end(r.News) + m.end(r.Order) + m.end(r.Answer)
				if r.Joins != None {
					ends += m.Join
				}
				goroutine := r.Step * float64(r.News.Count+r.Answer.Count)
				all := ends + m.end(r.Same) + goroutine
				if r.News.Count == 0 { // otherwise the last may get it when the round is over
					ends += m.end(r.Same)
				}
				got, n := m.Run(r), float64(m.Nodes)
				if math.Abs(got.Head-n*all) > 1e-6*n*all {
					t.Errorf("%s: %v s of cores, want %v", w.name, got.Head, n*all)
				}
				least, most := n*max((ends+goroutine)/float64(cores), goroutine), n*(all/float64(cores)+goroutine)
				if got.Took < 0.999*least || got.Took > 1.01*most {
					t.Errorf("%s on %d cores: %v s, want %v to %v", w.name, cores, got.Took, least, most)
				}
			}
		}
	}
}

var costs = Cost{Join: 1e-3, Alone: 20e-6, Among: 3e-6, Byte: 2e-9, Admit: 13e-6, Step: 6e-6}

// end is what one end of a connection does for messages on it.
func (m Model) end(of Message) float64 {
	if of.Count == 0 {
		return 0
	}
	return m.Alone + m.Among*float64(of.Count-1) + m.Byte*float64(of.Bytes)
}

// TestStarOfACard has the coordinator's card alone count: the last order leaves after all others, and its answer comes back.
func TestStarOfACard(t *testing.T) {
	m := Model{Nodes: 1000, Width: 1000, Cores: 1, AgentCores: 1, Card: 8e6, AgentCard: 8e6, Trip: 0.01}
	r := Round{Order: Message{Count: 1, Bytes: 1000}, Answer: Message{Count: 1, Bytes: 10}}
	order, answer := float64(onWire(r.Order))/1e6, float64(onWire(r.Answer))/1e6
	if want := 1000*order + m.Trip + answer; !near(m.Run(r).Took, want) {
		t.Errorf("%v s, want %v", m.Run(r).Took, want)
	}
}

// TestTreeOfATrip has the way alone count, at each level of a tree.
func TestTreeOfATrip(t *testing.T) {
	for _, merges := range []bool{false, true} {
		m := Model{Nodes: 16 + 16*16 + 1, Width: 16, Merges: merges, Cores: 1, AgentCores: 1, Card: 1e18, AgentCard: 1e18, Trip: 1}
		r := Round{Order: Message{Count: 1, Bytes: 1}, Answer: Message{Count: 1, Bytes: 1}}
		if got := m.Run(r).Took; !near(got, 3) {
			t.Errorf("merges %v: %v s, want 3", merges, got)
		}
	}
}

// TestJoins counts the handshakes of the busiest agent: its own, and where all connect those of the agents below it.
func TestJoins(t *testing.T) {
	m := Model{Nodes: 4 + 16, Width: 4, Cores: 1, AgentCores: 1, Card: 1e18, AgentCard: 1e18, Cost: Cost{Join: 1}}
	for joins, want := range map[Joins]float64{None: 0, Below: 1, All: 5} {
		if got := m.Run(Round{Joins: joins, Same: Message{Count: 1}}).Agent; got != want {
			t.Errorf("%d handshakes: %v, want %v", joins, got, want)
		}
	}
}

// TestUnits holds that nothing but time has a unit: all costs doubled take double the time.
func TestUnits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, works := model(t)
		slow := m
		slow.Card, slow.AgentCard, slow.Trip = m.Card/2, m.AgentCard/2, 2*m.Trip
		slow.Cost = Cost{Join: 2 * m.Join, Alone: 2 * m.Alone, Among: 2 * m.Among, Byte: 2 * m.Byte, Admit: 2 * m.Admit, Step: 2 * m.Step}
		slower := load.works(slow.Cost)
		for i, w := range works {
			a, b := m.Run(w.rounds...), slow.Run(slower[i].rounds...)
			if !near(2*a.Took, b.Took) || !near(2*a.Head, b.Head) || !near(2*a.Agent, b.Agent) || a.In != b.In || a.Out != b.Out {
				t.Fatalf("%s: %+v, and %+v at half the speed", w.name, a, b)
			}
		}
	})
}

// TestMore holds that what is better does not make things slower, but for a tenth: what comes earlier may come in a worse order.
func TestMore(t *testing.T) {
	m := Model{Nodes: 1000, Cores: 2, AgentCores: 2, Card: 1e9, AgentCard: 1e9, Trip: 100e-6, Cost: costs}
	for _, m.Width = range []int{1000, 32, 16} {
		for i, w := range load.works(m.Cost) {
			took := m.Run(w.rounds...).Took
			better := func(name string, change func(*Model)) {
				more := m
				change(&more)
				if got := more.Run(load.works(more.Cost)[i].rounds...).Took; got > 1.1*took {
					t.Errorf("%s, width %d: %v s, and %v s with %s", w.name, m.Width, took, got, name)
				}
			}
			better("twice the cores", func(m *Model) { m.Cores *= 2 })
			better("ten times the card", func(m *Model) { m.Card, m.AgentCard = 10*m.Card, 10*m.AgentCard })
			better("half the cost of messages", func(m *Model) { m.Alone, m.Among, m.Byte = m.Alone/2, m.Among/2, m.Byte/2 })
			better("half the nodes", func(m *Model) { m.Nodes /= 2 })
		}
	}
}

// TestCut counts the nodes of a full tree of three levels.
func TestCut(t *testing.T) {
	m := Model{Nodes: 4 + 16 + 64, Width: 4}
	inner, mean, most := m.cut()
	if inner != 20 || most != 20 || mean != (4*20+16*4)/20.0 {
		t.Errorf("%d agents with others below, %v and %v nodes cut off", inner, mean, most)
	}
}
