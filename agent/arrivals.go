package agent

import (
	"cmp"
	"time"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/rendezvous/tcpstore"
)

// arrivalTime is how long after a change of a store its processes are counted: each that connects
// causes several changes.
const arrivalTime = 50 * time.Millisecond

// arrivals finds the process that is the last to connect to a store.
type arrivals struct {
	// count is nil unless something has changed since the last count.
	count <-chan time.Time
	all   bool
}

// changed notes a change of the store.
func (a *arrivals) changed() {
	if a.count == nil && !a.all {
		a.count = time.After(arrivalTime)
	}
}

// take counts the processes, by their PIDs, which torch before 2.5 does not send. It returns the one that came last, and when, once all have come; nil
// before that and later.
func (a *arrivals) take(now time.Time, clients []tcpstore.ClientStatus, worldSize int) (last *job.Client, at time.Time) {
	a.count = nil
	came := map[job.Client]time.Time{}
	for _, c := range clients {
		p := job.Client{Addr: c.Peer.Addr(), PID: c.PID}
		connected := cmp.Or(c.Came, now)
		if first, known := came[p]; c.Spoke && (!known || connected.Before(first)) {
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
	a.all = true
	return last, at
}
