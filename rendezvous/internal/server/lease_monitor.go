package server

import (
	"sync"
	"time"
)

// LeaseMonitor knows for how long an agent has been silent. While no other process can have become
// the coordinator, the goroutine that reads an agent's stream answers the agent's heartbeats
// directly. So heartbeats never wait behind the failures of thousands of ranks.
type LeaseMonitor struct {
	// Patience is how long the agent may be silent, according to its lease.
	Patience time.Duration

	silence *time.Timer

	mu    sync.Mutex
	heard time.Time
	// answered is the stream whose heartbeats are answered. It is nil for an agent that is lost or
	// overdue, because such an agent must not believe that it still has its lease.
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

// Heartbeat notes a heartbeat on a stream. It returns false if heartbeats on this stream must not
// be answered.
func (m *LeaseMonitor) Heartbeat(s *AgentStream) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.answered != s {
		return false
	}
	m.renew()
	return true
}

// Answer makes s the only stream whose heartbeats are answered. If s is nil, no heartbeats are
// answered.
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

// Overdue returns when the agent was last heard, and by how much its silence exceeds its patience.
// If by is not negative, the agent's heartbeats are not answered any more.
func (m *LeaseMonitor) Overdue(at time.Time) (heard time.Time, by time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	by = at.Sub(m.heard) - m.Patience
	if by >= 0 {
		m.answered = nil
	}
	return m.heard, by
}
