package hyperpod

import (
	"fmt"
	"time"

	"github.com/golaunch/golaunch/agent/internal/ranksocket"
)

// Due receives a value when a rank becomes overdue, repeatedly while a rank is overdue, and when no
// rank is overdue any more.
func (s *Server) Due() <-chan struct{} { return s.due }

// Waits returns what each rank does, in the order of the ranks. It omits ranks that wait for
// another rank.
func (s *Server) Waits() (waits []ranksocket.Wait) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, p := range s.places {
		w := ranksocket.Wait{Rank: p.Rank.Rank, For: now.Sub(p.since), Step: -1, Heard: p.heard}
		switch {
		case p.does == returning:
			w.Does = fmt.Sprintf("on its way back to the barrier, which may take %v", s.o.Limit)
			w.Limited, w.Overdue = true, s.overdue(p, now)
		case p.does == atBarrier && s.broken != nil:
			w.Does, w.Overdue = "at the barrier, and the nodes cannot agree: "+s.broken.Error(), true
		case p.does == running:
			w.Does = "past the barrier"
		default:
			continue // the rank waits for the others, or may never use the socket
		}
		waits = append(waits, w)
	}
	return waits
}

// overdue reports whether a rank is certainly late: the last look also found it late.
func (s *Server) overdue(p *place, now time.Time) bool {
	return p.does == returning && p.suspect && now.Sub(p.since) >= s.o.Limit
}

// look repeats messages that ranks may have missed, and notices overdue ranks.
func (s *Server) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	before := s.late
	s.late = false
	for _, p := range s.places {
		if !p.tell.IsZero() && !now.Before(p.tell) {
			s.tellAgain(p, now)
		}
		if p.does == returning && now.Sub(p.since) >= s.o.Limit {
			s.late = s.late || p.suspect
			p.suspect = true
		}
		s.late = s.late || p.does == atBarrier && s.broken != nil
	}
	if s.late && (!before || now.Sub(s.told) >= tellEvery) || before && !s.late {
		s.told = now
		select {
		case s.due <- struct{}{}:
		default:
		}
	}
	s.arm(now)
}

// tellEvery is how often an overdue rank is reported again.
const tellEvery = 5 * time.Second

// tellAgain tells a rank that a run begins or has ended. The caller has the mutex.
func (s *Server) tellAgain(p *place, now time.Time) {
	p.tell = time.Time{}
	switch p.does {
	case running:
		if p.told && p.heard.After(p.since) {
			return
		}
		p.send(said{Type: typeStart, Env: s.env(p), Job: s.job}, s.sockets.Complain)
		if !p.told {
			p.told, p.tell = true, now.Add(again)
		}
	case returning:
		p.send(said{Type: typeFault, RestartCount: new(s.count + 1)}, s.sockets.Complain)
		p.tell = now.Add(again)
	}
}

// arm sets the timer for the next look. The caller has the mutex.
func (s *Server) arm(now time.Time) {
	if s.ended {
		return
	}
	var next time.Time
	sooner := func(at time.Time) {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	for _, p := range s.places {
		sooner(p.tell)
		if p.does == returning && !p.suspect {
			sooner(p.since.Add(s.o.Limit))
		}
		if p.does == returning && p.suspect && !s.late {
			sooner(now.Add(time.Second))
		}
	}
	if s.late {
		sooner(s.told.Add(tellEvery))
	}
	if !next.IsZero() {
		s.timer.Reset(next.Sub(now))
	}
}
