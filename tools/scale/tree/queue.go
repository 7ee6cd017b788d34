package main

// clock has what is to happen, in the order of time, and of that in which it was said. Times are in seconds.
type clock struct {
	now  float64
	said int
	heap []event
}

type event struct {
	at   float64
	said int
	do   func()
}

func (e event) before(o event) bool { return e.at < o.at || e.at == o.at && e.said < o.said }

// at has f happen at a time that is not past.
func (c *clock) at(t float64, f func()) {
	c.said++
	c.heap = append(c.heap, event{t, c.said, f})
	for i := len(c.heap) - 1; i > 0 && c.heap[i].before(c.heap[(i-1)/2]); i = (i - 1) / 2 {
		c.heap[i], c.heap[(i-1)/2] = c.heap[(i-1)/2], c.heap[i]
	}
}

// run has everything happen.
func (c *clock) run() {
	for len(c.heap) > 0 {
		e := c.pop()
		c.now = e.at
		e.do()
	}
}

func (c *clock) pop() event {
	h := c.heap
	first, last := h[0], len(h)-1
	h[0], h[last] = h[last], event{}
	h = h[:last]
	for i := 0; 2*i+1 < last; {
		least := 2*i + 1
		if least+1 < last && h[least+1].before(h[least]) {
			least++
		}
		if !h[least].before(h[i]) {
			break
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
	c.heap = h
	return first
}

// cores do tasks one after another, each on one of them. Urgent tasks go before those that wait, not before those that are done.
type cores struct {
	clock           *clock
	idle            int
	urgent, waiting []task
	// used is the time of cores that was used, in seconds.
	used float64
}

type task struct {
	cost float64
	then func()
}

func (c *cores) do(cost float64, urgent bool, then func()) {
	t := task{cost, then}
	switch {
	case c.idle > 0:
		c.idle--
		c.begin(t)
	case urgent:
		c.urgent = append(c.urgent, t)
	default:
		c.waiting = append(c.waiting, t)
	}
}

func (c *cores) begin(t task) {
	c.used += t.cost
	c.clock.at(c.clock.now+t.cost, func() {
		switch {
		case len(c.urgent) > 0:
			next := c.urgent[0]
			c.urgent = c.urgent[1:]
			c.begin(next)
		case len(c.waiting) > 0:
			next := c.waiting[0]
			c.waiting = c.waiting[1:]
			c.begin(next)
		default:
			c.idle++
		}
		t.then()
	})
}

// card is one direction of a network card. What it passes waits for what came before.
type card struct {
	free float64
	// bytes are those that have passed.
	bytes int
}

// pass says when so many bytes have passed that are there at a time, at a speed in bytes a second.
func (c *card) pass(at float64, bytes int, speed float64) (from, to float64) {
	from = max(at, c.free)
	c.free = from + float64(bytes)/speed
	c.bytes += bytes
	return from, c.free
}
