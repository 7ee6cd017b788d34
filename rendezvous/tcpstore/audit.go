package tcpstore

import (
	"net/netip"
	"sync"
	"time"
)

// Each machine may cause so many warnings a minute: one for each rank that a node has. Of so many machines one is warned at all.
const (
	maxWarnings = 16
	maxAudited  = 1024
)

// audit keeps warnings from becoming a flood.
type audit struct {
	mu    sync.Mutex
	since time.Time
	told  map[netip.Addr]int
}

func (a *audit) due(machine netip.Addr, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.told == nil || now.Sub(a.since) >= time.Minute {
		a.since, a.told = now, map[netip.Addr]int{}
	}
	if _, known := a.told[machine]; !known && len(a.told) == maxAudited {
		return false
	}
	a.told[machine]++
	return a.told[machine] <= maxWarnings
}
