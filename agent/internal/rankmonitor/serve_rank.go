package rankmonitor

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/golaunch/golaunch/agent/internal/ranksocket"
)

// serveRank talks with a process of the rank at a place until the process ends.
func (s *Server) serveRank(conn net.Conn, place int) {
	c := &client{server: s, conn: conn, place: place, confirm: true}
	defer c.leave()
	for {
		m, err := next(conn)
		if err == nil {
			err = c.hear(m)
		}
		if err != nil {
			s.sockets.Complain(fmt.Sprintf("rank %d", s.o.Ranks[place]), err)
			return
		}
	}
}

// client is a connection of a rank.
type client struct {
	server *Server
	conn   net.Conn
	place  int
	// limits are the limits of session. session is nil before the session begins. The server's
	// mutex guards both.
	limits  Limits
	session *session
	// confirm says that the client waits for the answer to each message.
	confirm bool
}

var errNoSession = errors.New("a message before its session began")

func (c *client) hear(m any) error {
	switch m := m.(type) {
	case authMsg:
		return ranksocket.Say(c.conn, okAnswer())
	case initMsg:
		return c.begin(m)
	case updateMsg:
		c.update(m)
		return ranksocket.Say(c.conn, okAnswer())
	case heartbeatMsg:
		return c.tell(func(now time.Time) string {
			c.session.heartbeat(now)
			return ""
		})
	case sectionMsg:
		return c.tell(func(now time.Time) string { return c.session.section(m, now) })
	}
	return errMessage
}

// begin begins a session. Clients of 0.6 and later need no answers. Clients of 0.4.1 wait for
// answers with any configuration.
func (c *client) begin(m initMsg) error {
	s := c.server
	warmUp := s.o.Config.WarmUp
	if m.warmUp >= 0 {
		warmUp = int(min(m.warmUp, 1<<31))
	}
	c.confirm = s.o.Config.Confirm || !m.newer
	s.mu.Lock()
	c.limits = s.o.Learned.of(c.place, s.o.Config.Limits)
	delete(s.sessions, c.session)
	c.session = newSession(&c.limits, warmUp, m.newer, time.Now())
	s.sessions[c.session] = s.o.Ranks[c.place]
	s.mu.Unlock()
	s.check()
	return ranksocket.Say(c.conn, configAnswer(s.o.Config, c.limits, !c.confirm))
}

// update sets the limits that a rank has learned, for this attempt and the next ones.
func (c *client) update(m updateMsg) {
	s := c.server
	s.mu.Lock()
	if m.heartbeats != nil {
		c.limits.FirstHeartbeat, c.limits.Heartbeat = m.heartbeats.FirstHeartbeat, m.heartbeats.Heartbeat
	}
	if m.sections != nil {
		c.limits.Sections, c.limits.OutOfSection = m.sections.Sections, m.sections.OutOfSection
	}
	s.o.Learned.set(c.place, c.limits)
	s.mu.Unlock()
	s.check()
}

// tell notes a message of a rank, and answers if the rank waits for an answer.
func (c *client) tell(note func(now time.Time) (wrong string)) error {
	s := c.server
	s.mu.Lock()
	if c.session == nil {
		s.mu.Unlock()
		return errNoSession
	}
	now := time.Now()
	c.session.heard = now
	wrong := note(now)
	by := c.session.look(now)
	look := s.late || !by.IsZero() && (s.armed.IsZero() || by.Before(s.armed))
	s.mu.Unlock()
	if look {
		s.check()
	}
	switch {
	case !c.confirm:
		return nil
	case wrong != "":
		return ranksocket.Say(c.conn, errorAnswer(wrong))
	}
	return ranksocket.Say(c.conn, okAnswer())
}

// leave ends the session. A rank may continue without a session.
func (c *client) leave() {
	s := c.server
	s.mu.Lock()
	delete(s.sessions, c.session)
	late := s.late
	s.mu.Unlock()
	if late {
		s.check()
	}
}

// Due receives a value when a rank becomes overdue, repeatedly while a rank is overdue, and when no
// rank is overdue any more.
func (s *Server) Due() <-chan struct{} { return s.due }

// Waits returns what the connected ranks do, in the order of the ranks.
func (s *Server) Waits() (waits []ranksocket.Wait) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for one, rank := range s.sessions {
		w := one.next()
		waits = append(waits, ranksocket.Wait{
			Rank: rank, Does: w.does, For: now.Sub(w.since), Limited: !w.by.IsZero(), Overdue: one.overdue(now), Step: one.iteration, Heard: one.heard,
		})
	}
	slices.SortFunc(waits, func(a, b ranksocket.Wait) int { return a.Rank - b.Rank })
	return waits
}

// check checks whether a rank is overdue, and sets the timer for the next check.
func (s *Server) check() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	now, before, first := time.Now(), s.late, time.Time{}
	s.late = false
	for one := range s.sessions {
		by := one.look(now)
		if one.overdue(now) {
			s.late = true
		} else if !by.IsZero() && (first.IsZero() || by.Before(first)) {
			first = by
		}
	}
	if s.late && (!before || now.Sub(s.told) >= again) || before && !s.late {
		s.told = now
		select {
		case s.due <- struct{}{}:
		default:
		}
	}
	if next := s.told.Add(again); s.late && (first.IsZero() || next.Before(first)) {
		first = next
	}
	if s.armed = first; !first.IsZero() {
		s.timer.Reset(first.Sub(now))
	}
}
