package tcpstore

import (
	"net/netip"
	"sync"
	"time"
)

// A store gives at most maxWarnings warnings a minute about one machine, which is one for each rank
// of a node with 16 ranks. It warns about at most maxWarned machines in that minute.
const (
	maxWarnings = 16
	maxWarned   = 1024
)

// warningLimit prevents a flood of warnings. told counts the warnings for each machine since the
// time since.
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
