package main

// world is a model in which a round happens.
type world struct {
	Model
	Round
	clock
	nodes []node
	sizes []int
	// ordered says that the coordinator has given its orders, and left how many messages it has yet to take.
	ordered bool
	left    int
	// steps wait for the coordinator's goroutine, which does one at a time.
	steps []task
	busy  bool
	// over is when it last took something, or its reader got something.
	over float64
}

type node struct {
	cpu     *cores
	in, out card
	// apart are the joins above that are not done, and held is what waits for them.
	apart bool
	held  []func()
	// orders are those that have not come, and merging what this node and those below it have said, of the news and of the answers.
	orders  int
	merging [2]merged
}

// What can be said in a round.
const (
	news = iota
	answers
)

// merged is what nodes have said of one thing, which goes on as one message when all have.
type merged struct{ nodes, bytes, evidence int }

func newWorld(m Model, r Round) *world {
	w := &world{Model: m, Round: r, nodes: make([]node, m.Nodes+1), sizes: m.sizes()}
	for v := range w.nodes {
		w.nodes[v].cpu = &cores{clock: &w.clock, idle: m.AgentCores}
		w.nodes[v].apart = v > 0 && (r.Joins == All || r.Joins == Below && m.parent(v) == 0)
		w.nodes[v].orders = min(r.Same.Count, 1) + min(r.Order.Count, 1)
	}
	w.nodes[0].cpu.idle = m.Cores
	w.left = m.Nodes * (r.News.Count + r.Answer.Count)
	return w
}

func (w *world) run() Result {
	for v := 1; v <= w.Nodes; v++ {
		if w.nodes[v].apart {
			w.join(v)
		}
		if w.News.Count > 0 {
			w.say(v, news, w.News)
		}
	}
	if w.News.Count == 0 {
		w.order()
	}
	w.clock.run()
	if w.left != 0 {
		panic("the coordinator waits for what nobody says")
	}
	r := Result{Took: w.over, Head: w.nodes[0].cpu.used, In: w.nodes[0].in.bytes, Out: w.nodes[0].out.bytes}
	for _, n := range w.nodes[1:] {
		r.Agent = max(r.Agent, n.cpu.used)
	}
	return r
}

// join connects a node with the one above it: TCP and TLS take a round trip each, and hello another half.
func (w *world) join(v int) {
	w.nodes[v].cpu.do(w.Cost.Join, false, func() {
		w.at(w.now+2*w.Trip, func() {
			w.nodes[w.parent(v)].cpu.do(w.Cost.Join, false, func() {
				n := &w.nodes[v]
				n.apart = false
				for _, f := range n.held {
					f()
				}
				n.held = nil
			})
		})
	})
}

// send has a message pass from a node to a neighbour: the core and the card of each, one after another.
func (w *world) send(from, to int, m Message, cost float64, then func()) {
	if below := &w.nodes[max(from, to)]; below.apart {
		below.held = append(below.held, func() { w.send(from, to, m, cost, then) })
		return
	}
	cost += w.Byte * float64(m.Bytes)
	bytes := onWire(m)
	w.nodes[from].cpu.do(cost, false, func() {
		begin, end := w.nodes[from].out.pass(w.now, bytes, w.speed(from))
		w.at(begin+w.Trip/2, func() {
			_, last := w.nodes[to].in.pass(w.now, bytes, w.speed(to))
			w.at(max(last, end+w.Trip/2), func() { w.nodes[to].cpu.do(cost, false, then) })
		})
	})
}

// speed is that of a node's card, in bytes a second.
func (w *world) speed(v int) float64 {
	if v == 0 {
		return w.Card / 8
	}
	return w.AgentCard / 8
}

// alone is what so many messages cost, one after another, on a connection on which nothing else comes.
func (w *world) alone(m Message) float64 {
	return w.Alone + w.Among*float64(m.Count-1)
}

// cost is what messages cost on the connection above a node.
func (w *world) cost(v int, m Message) float64 {
	if w.sizes[v] > 1 {
		return w.Among * float64(m.Count)
	}
	return w.alone(m)
}

// order has the coordinator order what is to be.
func (w *world) order() {
	w.ordered = true
	if w.Merges {
		w.spread(0)
		return
	}
	if w.Same.Count > 0 {
		w.share(0)
	}
	if w.Order.Count > 0 {
		for v := 1; v <= w.Nodes; v++ {
			w.pass(0, v)
		}
	}
}

// spread sends all orders for each node below v, and those below that, in one message.
func (w *world) spread(v int) {
	for from, to := w.below(v); from < to; from++ {
		m := Message{Count: 1, Bytes: w.Same.Bytes + w.sizes[from]*w.Order.Bytes}
		w.send(v, from, m, w.alone(m), func() {
			w.nodes[from].orders = 1
			w.obey(from)
			w.spread(from)
		})
	}
}

// share sends what is the same for all to the nodes below v, once each.
func (w *world) share(v int) {
	for from, to := w.below(v); from < to; from++ {
		w.send(v, from, w.Same, w.alone(w.Same), func() {
			w.share(from)
			w.obey(from)
		})
	}
}

// pass sends one node's own order on from v.
func (w *world) pass(v, node int) {
	next := node
	for w.parent(next) != v {
		next = w.parent(next)
	}
	w.send(v, next, w.Order, w.cost(next, w.Order), func() {
		if next == node {
			w.obey(node)
			return
		}
		w.pass(next, node)
	})
}

// obey has a node answer when it has its orders.
func (w *world) obey(v int) {
	if w.nodes[v].orders--; w.nodes[v].orders <= 0 && w.Answer.Count > 0 {
		w.say(v, answers, w.Answer)
	}
}

// say has a node say its news, or its answer.
func (w *world) say(v, what int, m Message) {
	if w.Merges {
		w.merge(v, what, merged{1, m.Bytes - m.Evidence, m.Evidence}, m)
		return
	}
	w.carry(v, m)
}

// carry sends a message up from v, as it is.
func (w *world) carry(v int, m Message) {
	above := w.parent(v)
	w.send(v, above, m, w.cost(v, m), func() {
		if above == 0 {
			w.take(m, 1)
			return
		}
		w.carry(above, m)
	})
}

// merge adds to what v has to tell, which goes up when all below it have said theirs. m is what each of them says.
func (w *world) merge(v, what int, more merged, m Message) {
	sum := &w.nodes[v].merging[what]
	sum.nodes, sum.bytes = sum.nodes+more.nodes, sum.bytes+more.bytes
	sum.evidence += more.evidence
	if m.Evidence > 0 {
		sum.evidence = min(sum.evidence, maxWeighed*m.Evidence/m.Count)
	}
	if sum.nodes < w.sizes[v] {
		return
	}
	above, all := w.parent(v), *sum
	whole := Message{Count: 1, Bytes: all.bytes + all.evidence}
	w.send(v, above, whole, w.alone(whole), func() {
		if above == 0 {
			w.take(Message{Count: m.Count, Bytes: whole.Bytes}, all.nodes)
			return
		}
		w.merge(above, what, all, m)
	})
}

// take has the coordinator's goroutine take what so many nodes have said.
func (w *world) take(m Message, nodes int) {
	if w.Reader {
		w.nodes[0].cpu.do(w.Among*float64(m.Count)+w.Byte*float64(m.Bytes), false, func() {
			_, end := w.nodes[0].out.pass(w.now, onWire(m), w.speed(0))
			w.over = max(w.over, end)
		})
	}
	w.steps = append(w.steps, task{w.Step * float64(m.Count*nodes), func() { w.taken(m.Count * nodes) }})
	w.next()
}

func (w *world) next() {
	if w.busy || len(w.steps) == 0 {
		return
	}
	w.busy = true
	t := w.steps[0]
	w.steps = w.steps[1:]
	w.nodes[0].cpu.do(t.cost, true, func() {
		w.busy = false
		t.then()
		w.next()
	})
}

func (w *world) taken(messages int) {
	w.left -= messages
	w.over = max(w.over, w.now)
	if !w.ordered {
		w.order()
	}
}
