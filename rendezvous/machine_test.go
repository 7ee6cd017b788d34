package rendezvous

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/golaunch/golaunch/internal/wire/session"
	"github.com/golaunch/golaunch/placement"
)

// dice is a random source for several goroutines.
type dice struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func newDice(seed, stream uint64) *dice { return &dice{rng: rand.New(rand.NewPCG(seed, stream))} }

func (d *dice) intN(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.IntN(n)
}

// chance returns true once in n times.
func (d *dice) chance(n int) bool { return d.intN(n) == 0 }

// upTo returns a random time above 0.
func (d *dice) upTo(limit time.Duration) time.Duration {
	return time.Duration(1 + d.intN(max(1, int(limit))))
}

// machine is a node with its network. Agent processes run on it one after another.
type machine struct {
	*dice
	s    *sim
	node placement.Node

	mu sync.Mutex
	p  *proc
	// cut says that no connection can be made. wake is closed when a paused agent continues; it is
	// nil when no agent is paused.
	cut  bool
	wake chan struct{}
	// changed is closed when the network or the coordinator may be reachable again.
	changed chan struct{}
	// fault counts the faults of the machine. sound is when the last fault ended; it is zero while
	// a fault lasts.
	fault int
	sound time.Time
}

// live keeps an agent on the machine for as long as the world lasts.
func (m *machine) live() {
	for m.s.ctx.Err() == nil {
		p := &proc{
			machine: m, inbox: make(chan func()), dead: make(chan struct{}), over: make(chan struct{}), jobs: map[string]map[int]*simUnit{},
		}
		p.cable = newCable(m.s.connect)
		var err error
		p.Session, err = session.Join(m.s.ctx, session.Options{
			Target: "head:1", Node: m.node, Dial: p.dial, Proof: p.cable.proof, Clock: p.clock, Heard: p.heard, Warn: func(error) {},
		})
		if err == nil {
			m.set(p)
			p.run()
		}
		m.touch()
		m.rest(m.upTo(simLease / 2))
	}
}

func (m *machine) set(p *proc) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.p = p
}

func (m *machine) agent() *proc {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.p
}

// rest waits, but not beyond the end of the world.
func (m *machine) rest(d time.Duration) {
	select {
	case <-time.After(d):
	case <-m.s.ctx.Done():
	}
}

// harm applies a fault to the machine. The caller must call mended when the fault ends.
func (m *machine) harm(f func()) (mended func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault++
	m.sound = time.Time{}
	f()
	fault := m.fault
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.fault == fault {
			m.sound = time.Now()
		}
	}
}

// touch applies a fault that is over at once.
func (m *machine) touch() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault++
	if !m.sound.IsZero() {
		m.sound = time.Now()
	}
}

// unscathed returns for how long the machine has had no fault.
func (m *machine) unscathed() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sound.IsZero() {
		return 0
	}
	return time.Since(m.sound)
}

func (m *machine) faults() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.fault
}

// stir wakes everything that waits for the network.
func (m *machine) stir() {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.changed)
	m.changed = make(chan struct{})
}

// whole reports whether the machine has no fault at present.
func (m *machine) whole() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.sound.IsZero()
}
