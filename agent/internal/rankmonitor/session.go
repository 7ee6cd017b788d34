package rankmonitor

import (
	"fmt"
	"time"
)

// session notes the messages of a rank's process since its first message. It follows
// rank_monitor_server.py of NVRx 0.7, with one exception: any section that is open for too long
// counts.
type session struct {
	limits *Limits
	warmUp int
	// newer says that the client is of 0.6 or later. Such clients report iterations.
	newer bool
	began time.Time
	// heard is when the rank last sent something.
	heard time.Time
	// beat is the last heartbeat; zero before the first.
	beat time.Time
	// open are the open sections, with the time at which each began. closed is when the last
	// section ended.
	open   map[string]time.Time
	closed time.Time
	// first and iteration are the first and the newest iteration of section step; -1 before the
	// first.
	first, iteration int64
	// stepped says that section step has begun.
	stepped bool
	// suspect is when the session was first found overdue; zero if it was not.
	suspect time.Time
}

// overdue reports whether the session is certainly overdue: it was already overdue settle ago, and
// the rank has sent nothing since.
func (s *session) overdue(now time.Time) bool {
	return !s.suspect.IsZero() && now.Sub(s.suspect) >= settle
}

// look notes whether the session is overdue, and returns when to look again; zero means never.
func (s *session) look(now time.Time) time.Time {
	switch by := s.next().by; {
	case by.IsZero() || now.Before(by):
		s.suspect = time.Time{}
		return by
	case s.suspect.IsZero():
		s.suspect = now
	}
	return s.suspect.Add(settle)
}

func newSession(limits *Limits, warmUp int, newer bool, now time.Time) *session {
	return &session{
		limits: limits, warmUp: warmUp, newer: newer, began: now, heard: now, closed: now, open: map[string]time.Time{}, first: -1, iteration: -1,
	}
}

func (s *session) heartbeat(now time.Time) { s.beat = now }

// These sections have a meaning of their own.
const (
	stepSection   = "step"
	warmUpSection = "warmup"
)

// section notes a rank's message about a section, and returns what is wrong with the message.
func (s *session) section(m sectionMsg, now time.Time) (wrong string) {
	if m.name == stepSection && m.iteration >= 0 {
		if s.iteration = m.iteration; s.first < 0 {
			s.first = m.iteration
		}
	}
	_, isOpen := s.open[m.name]
	switch m.action {
	case openSection:
		switch {
		case isOpen:
			return fmt.Sprintf("Section '%s' is already open.", m.name)
		case len(s.open) >= maxSections || len(m.name) > maxName:
			return fmt.Sprintf("golaunch follows at most %d sections with names of up to %d bytes.", maxSections, maxName)
		}
		s.open[m.name] = now
		s.stepped = s.stepped || m.name == stepSection
	case closeSection:
		if !isOpen {
			return fmt.Sprintf("Section '%s' is not open.", m.name)
		}
		if delete(s.open, m.name); len(s.open) == 0 {
			s.closed = now
		}
	case closeAllSections:
		clear(s.open)
		s.closed = now
	}
	return ""
}

// wait is what a rank does, since when, and by when the rank must send something else; zero for no
// such time.
type wait struct {
	does      string
	since, by time.Time
}

func waiting(does string, since time.Time, limit time.Duration) wait {
	if limit == 0 {
		return wait{does, since, time.Time{}}
	}
	shown := limit.Round(time.Second)
	if limit < 10*time.Second {
		shown = max(time.Millisecond, limit.Round(time.Millisecond))
	}
	return wait{fmt.Sprintf("%s, which may take %v", does, shown), since, since.Add(limit)}
}

// next returns the wait that ends first. If no wait has a limit, it returns the one that began
// last.
func (s *session) next() wait {
	first := s.heartbeatWait()
	for name, since := range s.open {
		first = sooner(first, waiting("in section "+name, since, s.sectionLimit(name)))
	}
	if len(s.open) == 0 {
		limit := s.limits.OutOfSection
		if _, warm := s.limits.Sections[warmUpSection]; s.newer && len(s.limits.Sections) > 0 && !warm && !s.stepped {
			limit = 0
		}
		first = sooner(first, waiting("between sections", s.closed, limit))
	}
	return first
}

func (s *session) heartbeatWait() wait {
	if s.beat.IsZero() {
		return waiting("before its first heartbeat", s.began, s.limits.FirstHeartbeat)
	}
	return waiting("after a heartbeat", s.beat, s.limits.Heartbeat)
}

// sectionLimit is how long a section may be open. The first steps may take as long as section
// warmup, if there is one.
func (s *session) sectionLimit(name string) time.Duration {
	if warm, ok := s.limits.Sections[warmUpSection]; ok && name == stepSection && s.first >= 0 && s.iteration-s.first < int64(s.warmUp) {
		return warm
	}
	return s.limits.Sections[name]
}

// sooner returns the wait that ends first. A wait with a limit precedes one without. Of two waits
// without a limit it returns the later wait, because the newer activity says more.
func sooner(a, b wait) wait {
	switch {
	case a.by.IsZero() && b.by.IsZero():
		if b.since.Before(a.since) {
			return a
		}
		return b
	case a.by.IsZero():
		return b
	case b.by.IsZero(), a.by.Before(b.by):
		return a
	}
	return b
}
