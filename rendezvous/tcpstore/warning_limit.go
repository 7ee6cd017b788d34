package tcpstore

import (
	"net/netip"
	"sync"
	"time"
)

// At most maxWarnings warnings a minute concern one machine, one for each rank of a node, and at
// most maxWarned machines are warned of.
const (
	maxWarnings = 16
	maxWarned   = 1024
)

// warningLimit keeps warnings from becoming a flood.
type warningLimit struct {
	mu    sync.Mutex
	since time.Time
	told  map[netip.Addr]int
}

func (a *warningLimit) due(machine netip.Addr, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.told == nil || now.Sub(a.since) >= time.Minute {
		a.since, a.told = now, map[netip.Addr]int{}
	}
	if _, known := a.told[machine]; !known && len(a.told) == maxWarned {
		return false
	}
	a.told[machine]++
	return a.told[machine] <= maxWarnings
}
