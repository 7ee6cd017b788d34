// Package arrivals tells which processes of a job have connected to its store, and which was the
// last.
package arrivals

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/rendezvous/tcpstore"
)

// countAfter is how long after a change of a store its processes are counted. Each process that
// connects causes several changes.
const countAfter = 50 * time.Millisecond

// Counter finds the last process that connects to a store.
type Counter struct {
	// Due receives a value when it is time for Take. It is nil if nothing has changed since the
	// last Take.
	Due <-chan time.Time
	all bool
}

// Changed notes that the store has changed.
func (c *Counter) Changed() {
	if c.Due == nil && !c.all {
		c.Due = time.After(countAfter)
	}
}

// Take counts the processes by their PIDs, which torch before 2.5 does not send. Once all processes
// have connected, Take returns the last one and the time, but only once. Otherwise it returns nil.
func (c *Counter) Take(now time.Time, clients []tcpstore.ClientStatus, worldSize int) (last *job.Client, at time.Time) {
	c.Due = nil
	came := map[job.Client]time.Time{}
	for _, client := range clients {
		p := job.Client{Addr: client.Peer.Addr(), PID: client.PID}
		connected := cmp.Or(client.Came, now)
		if first, known := came[p]; client.Spoke && (!known || connected.Before(first)) {
			came[p] = connected
		}
	}
	if len(came) < worldSize {
		return nil, at
	}
	for p, first := range came {
		if first.After(at) {
			last, at = &p, first
		}
	}
	c.all = true
	return last, at
}

// Meeting lists the processes at a store. It is zero if no process has connected, or if all have
// connected and none waits.
func Meeting(clients []tcpstore.ClientStatus, worldSize int) (m job.Meeting) {
	seen, waiters := map[job.Client]bool{}, map[string]map[job.Client]bool{}
	for _, c := range clients {
		if !c.Spoke {
			continue
		}
		p := job.Client{Addr: c.Peer.Addr(), PID: c.PID}
		if p.PID == 0 || !seen[p] { // torch before 2.5 does not send its pid
			seen[p] = true
			m.Clients = append(m.Clients, p)
		}
		if c.Missing > 0 && len(c.Waiting) > 0 && p.PID != 0 {
			key := c.Waiting[0]
			if waiters[key] == nil {
				waiters[key] = map[job.Client]bool{}
			}
			waiters[key][p] = true
		}
	}
	if len(waiters) == 0 && len(m.Clients) >= worldSize {
		return job.Meeting{}
	}
	for _, key := range slices.Sorted(maps.Keys(waiters)) {
		if len(waiters[key]) > len(waiters[m.Key]) {
			m.Key = key
		}
	}
	for i, p := range m.Clients {
		if waiters[m.Key][p] {
			m.Clients[i].Key = m.Key
		}
	}
	m.Came, m.Waiting = len(m.Clients), len(waiters[m.Key])
	return m
}
