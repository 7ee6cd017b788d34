package server

import (
	"sync"
	"time"
)

// LeaseMonitor knows for how long an agent has been silent. The goroutine that reads an agent's
// stream answers the agent's heartbeats directly, unless another process may have become the
// coordinator. So heartbeats never wait behind the failures of thousands of ranks.
type LeaseMonitor struct {
	// Patience is how long the agent may be silent, according to its lease.
	Patience time.Duration

	silence *time.Timer

	mu    sync.Mutex
	heard time.Time
	// answered is the stream whose heartbeats are answered, if any. A node that is counted as lost,
	// or may be, must not believe that it still has its lease.
	answered *AgentStream
}

// Start begins the watch. It calls silent when the agent has been silent for too long.
func (m *LeaseMonitor) Start(patience time.Duration, silent func()) {
	m.Patience, m.heard = patience, time.Now()
	m.silence = time.AfterFunc(patience, silent)
}

// Hear notes that the agent has sent something.
func (m *LeaseMonitor) Hear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.renew()
}

// Reprieve gives the agent some more time to be heard.
func (m *LeaseMonitor) Reprieve(more time.Duration) { m.silence.Reset(more) }

// Stop ends the watch. From then on the agent gets no answers.
func (m *LeaseMonitor) Stop() {
	m.silence.Stop()
	m.Answer(nil)
}

func (m *LeaseMonitor) renew() {
	m.heard = time.Now()
	m.silence.Reset(m.Patience)
}

// Heartbeat returns false if heartbeats on that stream are not answered.
func (m *LeaseMonitor) Heartbeat(s *AgentStream) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.answered != s {
		return false
	}
	m.renew()
	return true
}

// Answer answers heartbeats on that stream only, or on no stream if it is nil.
func (m *LeaseMonitor) Answer(s *AgentStream) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answered = s
}

// LastHeard returns when the agent last sent something.
func (m *LeaseMonitor) LastHeard() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.heard
}

// Overdue returns how long the agent has been silent beyond its patience. If the agent is overdue,
// its heartbeats are not answered any more.
func (m *LeaseMonitor) Overdue(at time.Time) (heard time.Time, by time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	by = at.Sub(m.heard) - m.Patience
	if by >= 0 {
		m.answered = nil
	}
	return m.heard, by
}
