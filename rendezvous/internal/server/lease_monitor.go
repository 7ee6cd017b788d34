package server

import (
	"sync"
	"time"
)

// LeaseMonitor knows since when an agent has been silent. The goroutine that reads an agent's
// stream answers its heartbeats directly, unless another process may have become the coordinator.
// So heartbeats never wait behind the failures of thousands of ranks.
type LeaseMonitor struct {
	// Patience is how long the agent may be silent, by the lease that it was given.
	Patience time.Duration

	silence *time.Timer

	mu    sync.Mutex
	heard time.Time
	// answered is the stream whose heartbeats are answered, if any. A node that is or may be
	// counted as lost must not believe that it still has its lease.
	answered *AgentStream
}

// Start begins, and calls silent when the agent has been silent for too long.
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

// Stop stops waiting for the agent, and answers it no more.
func (m *LeaseMonitor) Stop() {
	m.silence.Stop()
	m.Answer(nil)
}

func (m *LeaseMonitor) renew() {
	m.heard = time.Now()
	m.silence.Reset(m.Patience)
}

// Heartbeat is false if heartbeats on that stream are not answered.
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

// LastHeard is when the agent was last heard.
func (m *LeaseMonitor) LastHeard() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.heard
}

// Overdue is by how much the agent has been silent for too long. From then on heartbeats are not
// answered.
func (m *LeaseMonitor) Overdue(at time.Time) (heard time.Time, by time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	by = at.Sub(m.heard) - m.Patience
	if by >= 0 {
		m.answered = nil
	}
	return m.heard, by
}
