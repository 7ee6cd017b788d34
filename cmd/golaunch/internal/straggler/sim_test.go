package straggler

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// A world is a job of nodes with GPUs, in which one thing may become slow. It consists of steps.
// Ranks compute for a time with noise. Tensor parallel ranks wait for each other in every layer,
// pipeline stages for each other's microbatches (1F1B), and all ranks in the collective that ends
// the step. A step of a rank has three parts: first its GPU idles while it waits for its host, then
// the GPU computes and waits by turns, then it waits.
type world struct {
	*rand.Rand
	nodes, per, tp, pp int
	// step is the time of a step's computing, in seconds, and comm the time of the collective at
	// its end.
	step, comm float64
	// noise is per microbatch, and a step has micro microbatches; stage is the relative work of
	// each stage.
	noise float64
	micro int
	stage []float64
	// idle, wait and full are the power that GPUs draw; full is by rank, and drift is its change in
	// an hour.
	idle, wait float64
	full       []float64
	drift      float64
	// skew is how far a node's clock is ahead, and sampled is the period of its agent, in seconds.
	skew    []float64
	sampled float64
	// save and eval have a number of steps between two saves or evaluations, and their duration in
	// seconds. Rank 0 alone is active in such a phase, or all ranks are. hiccups is the mean number
	// of steps of a rank between two hiccups.
	save, eval phase
	hiccups    int
	startup    float64
	fault      fault
	told       told
	// apart is true if ranks do not wait for each other.
	apart bool
}

type phase struct {
	every   int
	seconds float64
	alone   bool
}

// fault makes ranks slower from a time in seconds on.
type fault struct {
	kind  string // "", gpu, host, hot, link
	ranks []int
	whole bool
	by    float64
	from  float64
}

// told has the available signals.
type told struct {
	power, use, cpu, beats, early, lines bool
	// missing is the share of nodes that report nothing.
	missing float64
}

func (w *world) ranks() int { return w.nodes * w.per }

func (w *world) dp() int { return w.ranks() / w.tp / w.pp }

// place says where the world's ranks are.
func (w *world) place() Place {
	p := Place{Every: time.Duration(w.sampled * float64(time.Second))}
	for n := range w.nodes {
		p.Names = append(p.Names, fmt.Sprintf("n%d", n))
		for range w.per {
			p.Node = append(p.Node, n)
		}
	}
	return p
}

// part is the activity of a rank in a stretch: until host its GPU idles, until end the GPU draws
// mix, and then it waits. came is when the rank reached the collective.
type part struct{ host, end, mix, came float64 }

// energy returns the energy that a rank has drawn until a time in the stretch, and use returns for
// how long kernels ran.
func (w *world) energy(p part, at float64) (energy, use float64) {
	idle := min(at, p.host)
	mixed := min(max(at-p.host, 0), p.end-p.host)
	return idle*w.idle + mixed*p.mix + (at-idle-mixed)*w.wait, at - idle
}

// clock is the state of a run.
type clock struct {
	w    *world
	to   *Watch
	now  float64
	tick float64
	// next is when each node's agent takes its next sample, and last is when it took its last one.
	next, last []float64
	// drawn and used are the energy and the use of ranks at the beginning of the stretch; seen has
	// the values that the agent saw last.
	drawn, used, seenDrawn, seenUsed []float64
	bias                             []float64
	steps                            []int64
	beat, before                     []float64
	own                              []float64 // the time of each rank, if ranks do not wait for each other
	parts                            []part
	times                            []float64
	mute                             []bool
	slow                             float64 // for how long the world has trained since the fault
	after                            func(now float64)
}

var dawn = time.Unix(1_700_000_000, 0)

func at(seconds float64) time.Time { return dawn.Add(time.Duration(seconds * float64(time.Second))) }

// run plays a world for some seconds, and calls after after each tick.
func (w *world) run(seconds float64, after func(c *clock, now float64)) *clock {
	to, err := New(w.place())
	if err != nil {
		panic(err)
	}
	n := w.ranks()
	c := &clock{w: w, to: to, tick: 1}
	c.after = func(now float64) { after(c, now) }
	c.next, c.last = make([]float64, w.nodes), make([]float64, w.nodes)
	c.drawn, c.used, c.seenDrawn, c.seenUsed = make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)
	c.bias, c.beat, c.before, c.own = make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)
	c.steps, c.parts, c.mute = make([]int64, n), make([]part, n), make([]bool, n)
	for i := range c.next {
		c.next[i] = w.Float64() * w.sampled
		missing := w.Float64() < w.told.missing && !slices.ContainsFunc(w.fault.ranks, func(r int) bool { return r/w.per == i })
		for r := i * w.per; r < (i+1)*w.per; r++ {
			c.mute[r] = missing
		}
	}
	c.startup(w.startup)
	for step := 1; c.now < seconds; step++ {
		c.train()
		if w.save.every > 0 && step%w.save.every == 0 {
			c.pause(w.save, 0)
		}
		if w.eval.every > 0 && step%w.eval.every == 0 {
			c.pause(w.eval, 0.9)
		}
	}
	return c
}

// startup simulates imports, with idle GPUs, and compilation by turns.
func (c *clock) startup(seconds float64) {
	for left := seconds; left > 0; left -= 5 {
		for r := range c.parts {
			host := 3 + 2*c.w.Float64()
			c.parts[r] = part{host: host, end: 5, mix: c.w.wait + 0.2*c.w.Float64()}
		}
		c.stretch(5)
	}
}

// pause simulates a checkpoint or an evaluation: one rank is active while the others wait, or all
// ranks are active.
func (c *clock) pause(p phase, power float64) {
	for r := range c.parts {
		switch {
		case p.alone && r != 0:
			c.parts[r] = part{}
		case power > 0:
			c.parts[r] = part{end: p.seconds * (0.95 + 0.05*c.w.Float64()), mix: c.w.full[r] * power}
		default:
			host := p.seconds * (0.8 + 0.2*c.w.Float64())
			c.parts[r] = part{host: host, end: host}
		}
	}
	c.stretch(p.seconds)
	c.slow = max(0, c.slow-pauseSlots-1)
}

// work returns the times that a rank's host and GPU take for their part of a step, and the power
// that the GPU draws meanwhile.
func (c *clock) work(r, stage int) (host, gpu, draw float64) {
	w, f := c.w, &c.w.fault
	gpu = w.step * w.stage[stage] * math.Exp(w.NormFloat64()*w.noise/math.Sqrt(float64(w.micro)))
	draw = w.full[r]
	if w.hiccups > 0 && w.IntN(w.hiccups) == 0 {
		host += 0.3 + 2.5*w.Float64()
	}
	if w.IntN(60) == 0 {
		host += 0.02 + 0.06*w.Float64() // garbage collection
	}
	if c.now < f.from || !slices.Contains(f.ranks, r) {
		return host, gpu, draw
	}
	switch f.kind {
	case "gpu":
		gpu *= 1 + f.by
	case "hot":
		gpu, draw = gpu*(1+f.by), w.idle+(draw-w.idle)/(1+f.by)/(1+f.by)
	case "host":
		host += f.by * gpu
	}
	return host, gpu, draw
}

// train simulates one step.
func (c *clock) train() {
	w := c.w
	if w.apart {
		c.alone()
		return
	}
	dp, comm, longest := w.dp(), w.comm*w.step*(0.95+0.1*w.Float64()), 0.0
	if w.fault.kind == "link" && c.now >= w.fault.from {
		comm += w.fault.by * w.step
	}
	for d := range dp {
		heavy, sum := 0.0, 0.0
		for s := range w.pp {
			group := 0.0
			for i := range w.tp {
				r := i + w.tp*(d+dp*s)
				host, gpu, draw := c.work(r, s)
				c.parts[r] = part{host: host, end: host + gpu, mix: draw}
				group = max(group, host+gpu)
			}
			heavy, sum = max(heavy, group), sum+group
		}
		m := float64(w.micro)
		whole := (m-1)/m*heavy + sum/m
		c.mix(d, whole)
		longest = max(longest, whole)
	}
	end := c.now + longest + comm
	c.times = append(c.times, longest+comm)
	if begun := max(c.now, w.fault.from); end > begun {
		c.slow += end - begun
	}
	for r := range c.parts {
		if w.told.early {
			c.announce(r, c.now+c.parts[r].came)
		}
	}
	c.stretch(longest + comm)
	if !w.told.early {
		for r := range c.parts {
			c.announce(r, end)
		}
	}
}

// mix spreads the waits of a replica's ranks for each other evenly over the given time, which is
// whole.
func (c *clock) mix(d int, whole float64) {
	w := c.w
	for s := range w.pp {
		for i := range w.tp {
			p := &c.parts[i+w.tp*(d+w.dp()*s)]
			p.came = whole
			if w.tp*w.pp == 1 {
				p.came = p.end
				continue
			}
			if busy := p.end - p.host; whole > p.host {
				p.mix = (busy*p.mix + (whole-p.host-busy)*w.wait) / (whole - p.host)
			}
			p.end = max(whole, p.end)
		}
	}
}

// announce writes a heartbeat a little after a step.
func (c *clock) announce(r int, when float64) {
	c.steps[r]++
	c.before[r] = c.beat[r]
	c.beat[r] = when + 0.001 + 0.004*c.w.Float64() + c.w.skew[r/c.w.per]
}

// alone simulates a tenth of a second of ranks that do not wait for each other.
func (c *clock) alone() {
	if c.now >= c.w.fault.from {
		c.slow += 0.1
	}
	for r := range c.own {
		for c.own[r] <= c.now {
			host, gpu, _ := c.work(r, 0)
			c.own[r] = max(c.own[r], c.now-1) + host + gpu
			c.announce(r, c.own[r])
		}
		c.parts[r] = part{end: 0.1, mix: c.w.full[r]}
	}
	c.stretch(0.1)
}

// stretch simulates a stretch of time in which each rank does its part, and the agents take
// samples.
func (c *clock) stretch(seconds float64) {
	begin, end := c.now, c.now+seconds
	for c.now < end {
		until := min(end, c.tick)
		for n := range c.next {
			for c.next[n] < until {
				c.look(n, c.next[n], begin)
				c.next[n] += c.w.sampled * (0.95 + 0.1*c.w.Float64())
			}
		}
		if c.now = until; until == c.tick {
			c.pulse()
			c.tick++
		}
	}
	for r, p := range c.parts {
		energy, use := c.w.energy(p, seconds)
		c.drawn[r], c.used[r] = c.drawn[r]+energy, c.used[r]+use
	}
}

// pulse makes a tick of the watch.
func (c *clock) pulse() {
	c.to.Tick(at(c.tick))
	c.after(c.tick)
}

// look makes an agent's samples of its ranks.
func (c *clock) look(n int, now, begin float64) {
	w, took := c.w, now-c.last[n]
	c.last[n] = now
	for r := n * w.per; r < (n+1)*w.per && took > 0; r++ {
		s, t := Nothing(r), w.told
		energy, use := w.energy(c.parts[r], now-begin)
		energy, use = energy+c.drawn[r], use+c.used[r]
		power, busy := (energy-c.seenDrawn[r])/took, (use-c.seenUsed[r])/took
		c.seenDrawn[r], c.seenUsed[r] = energy, use
		c.bias[r] += w.drift * w.NormFloat64() * math.Sqrt(took/3600)
		if t.power {
			s.Power = power*(1+c.bias[r]) + 0.01*w.NormFloat64()
		}
		if t.use {
			s.Use = math.Min(1, math.Max(0, busy+0.01*w.NormFloat64()))
		}
		if t.cpu {
			s.CPU = math.Max(0, (power-w.wait)/(w.full[r]-w.wait)+0.02*w.NormFloat64())
		}
		// An announced heartbeat may still be in the future.
		if beat, step := c.beat[r], c.steps[r]; t.beats && step > 0 && beat-w.skew[n] <= now {
			s.Step, s.Beat = step, at(beat)
		} else if t.beats && step > 1 {
			s.Step, s.Beat = step-1, at(c.before[r])
		}
		if t.lines {
			s.Lines = 10 * float64(c.steps[r])
		}
		if !c.mute[r] {
			c.to.Take(at(now), s)
		}
	}
}
