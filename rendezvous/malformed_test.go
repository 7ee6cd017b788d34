package rendezvous

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/session"
)

// act applies one random fault or action to the world.
func (s *sim) act() {
	m := s.machines[s.intN(len(s.machines))]
	p := m.agent()
	switch n := s.intN(24); {
	case n < 5:
		s.submit()
	case n < 8:
		s.failRank()
	case n == 8 && s.up.Load():
		s.crash()
	case n == 20 && s.up.Load() && s.trio == nil:
		s.slowDisk(s.upTo(simLease))
	case n == 21 && s.up.Load():
		s.tell("a snapshot takes the place of the log")
		s.hosted.c.post(s.hosted.c.log.Compact)
	case n == 9 && s.prompt():
		s.ask("cancel", s.cancelAny)
	case n == 10 && s.prompt():
		s.ask("drain of "+m.node.Name, func(c *session.Client) error { _, err := c.Drain(s.ctx, m.node.Name); return err })
	case p == nil || !m.whole():
	case n == 11:
		s.tell("%s is killed", m.node.Name)
		m.touch()
		p.die()
	case n == 12:
		s.tell("%s leaves", m.node.Name)
		m.touch()
		go p.post(func() { p.leaving = true })
	case n == 13:
		go p.post(func() { p.say("", wire.Draining{Within: m.upTo(simLease), Why: "of a notice"}) })
	case n == 14:
		s.delay(m, p)
	case n == 15:
		s.pause(m, p)
	case n > 21:
		s.breakOff(m, p, n == 22)
		s.submit() // so that the agent has orders
	default:
		s.cut(m, p, n%3)
		s.pass(s.upTo(simLease / 4))
		s.failRank() // so that the agent has orders
	}
}

// cut makes the network of a machine fail one way or both, and mends it some time later.
func (s *sim) cut(m *machine, p *proc, way int) {
	s.tell("%s is cut %s", m.node.Name, []string{"up", "down", "both ways"}[way])
	limit := simLease + simKillTime
	if way == 1 {
		limit += simLease
	}
	s.trouble(m, p, s.upTo(simLease*3/2), limit, func() {
		m.cut = true
		p.cable.up.Store(way != 1)
		p.cable.down.Store(way != 0)
	}, func() {
		m.cut = false
		p.cable.mend()
	})
}

// breakOff ends a machine's connection, as a proxy may. The agent must reconnect, and nothing else
// may happen. If half is set, the agent does not notice the end.
func (s *sim) breakOff(m *machine, p *proc, half bool) {
	s.tell("the connection of %s is broken off", m.node.Name)
	conn := p.cable.newest()
	conn.dead.Store(half)
	conn.end(nil)
}

// delay delays everything to a machine, and later cuts it off.
func (s *sim) delay(m *machine, p *proc) {
	late, until := s.upTo(simLease/4), s.upTo(simLease)
	s.tell("%s gets everything %v late, and is cut off after %v", m.node.Name, late, until)
	over := false
	s.trouble(m, p, until+2*simLease, until+simLease+simKillTime, func() {
		p.cable.late.Store(int64(late))
		time.AfterFunc(until, func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			if !over {
				m.cut = true
				p.cable.up.Store(true)
			}
		})
	}, func() {
		over, m.cut = true, false
		p.cable.late.Store(0)
		p.cable.mend()
	})
}

func (s *sim) pause(m *machine, p *proc) {
	s.tell("%s is paused", m.node.Name)
	wake := make(chan struct{})
	s.trouble(m, p, s.upTo(2*simLease), simLease+simKillTime, func() { m.wake = wake }, func() {
		m.wake = nil
		close(wake)
	})
}

// trouble applies a fault for some time. If the coordinator must notice the fault, it must do so
// within a limit.
func (s *sim) trouble(m *machine, p *proc, d, limit time.Duration, begin, end func()) {
	mended := m.harm(begin)
	fault := m.faults()
	s.expectLoss(m, p, fault, limit)
	time.AfterFunc(d, func() {
		m.mu.Lock()
		end()
		m.mu.Unlock()
		mended()
		s.tell("%s is whole again", m.node.Name)
		m.stir()
	})
}

// expectLoss checks that the coordinator counts a silent node as lost in time, if no other fault
// has affected the node meanwhile. A coordinator that was started since then has the whole limit
// again.
func (s *sim) expectLoss(m *machine, p *proc, fault int, limit time.Duration) {
	since := s.since.Load()
	time.AfterFunc(limit+time.Minute, func() {
		if m.faults() != fault || m.unscathed() > 0 || s.ctx.Err() != nil {
			return
		}
		if !s.up.Load() || s.since.Load() != since {
			s.expectLoss(m, p, fault, limit)
			return
		}
		there, _ := ask(s.hosted.c, func() (bool, error) {
			member := s.hosted.c.members[m.node.Name]
			return member != nil, nil
		})
		if there {
			s.fail("%s has been silent for %v and is not found", m.node.Name, limit)
		}
	})
}

// crash ends the coordinator for a time that is shorter or longer than a lease.
func (s *sim) crash() {
	s.tell("the coordinator is killed")
	s.shut()
	s.takeovers++
	s.back = time.Now().Add(s.upTo(simLease * 3 / 2))
}

// failRank makes a rank fail that is alive.
func (s *sim) failRank() {
	all := s.living(nil)
	ranks := slices.SortedFunc(maps.Keys(all), func(a, b rankOf) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	if len(ranks) == 0 {
		return
	}
	rank := ranks[s.intN(len(ranks))]
	s.tell("rank %d of %s fails", rank.rank, rank.job)
	if p := s.home(rank); p != nil {
		p.exit(rank, all[rank], 1+s.intN(3))
	}
}

// fate returns how long a rank lives if no fault affects it, and how it then ends.
func (s *sim) fate(d *dice) (time.Duration, func() int) {
	span, fails := d.upTo(4*simLease), d.chance(20)
	if d.chance(20) {
		span = time.Second
	}
	return span, func() int {
		if fails && !s.calm.Load() {
			return 9
		}
		return 0
	}
}

func (s *sim) cancelAny(c *session.Client) error {
	for _, id := range slices.Sorted(maps.Keys(s.jobs)) {
		s.tell("%s is cancelled", id)
		_, err := c.Stop(s.ctx, id, 130, "enough")
		return err
	}
	return nil
}
