package endpoint

import (
	"net"
	"net/netip"
	"slices"
	"sync"
)

// workers admits up to maxUnknown unidentified workers at a time; others wait. All belong to the
// job's user.
func workers() func(net.Conn) (known func()) {
	places := make(chan struct{}, maxUnknown)
	return func(net.Conn) func() {
		places <- struct{}{}
		return func() { <-places }
	}
}

// controllers are unidentified connections, the oldest first. Any machine may make them.
type controllers struct {
	mu   sync.Mutex
	here []controller
}

type controller struct {
	net.Conn
	from netip.Addr
}

// enter never waits. If there are too many connections, it closes the oldest one of the machine
// with the most connections, so that no machine can keep others out.
func (s *controllers) enter(conn net.Conn) (known func()) {
	from, _ := netip.ParseAddrPort(conn.RemoteAddr().String())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.here = append(s.here, controller{conn, from.Addr()}); len(s.here) > maxUnknown {
		of, most := map[netip.Addr]int{}, 0
		for _, c := range s.here {
			of[c.from]++
			most = max(most, of[c.from])
		}
		i := slices.IndexFunc(s.here, func(c controller) bool { return of[c.from] == most })
		s.here[i].Close() // its hello then fails, and it is dropped
		s.here = slices.Delete(s.here, i, i+1)
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.here = slices.DeleteFunc(s.here, func(c controller) bool { return c.Conn == conn })
	}
}
