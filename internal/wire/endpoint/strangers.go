package endpoint

import (
	"net"
	"net/netip"
	"slices"
	"sync"
)

// workers lets so many say who they are at a time, and the others wait: all are the job's user's.
func workers() func(net.Conn) (known func()) {
	places := make(chan struct{}, strangers)
	return func(net.Conn) func() {
		places <- struct{}{}
		return func() { <-places }
	}
}

// controllers are connections that have not said yet who they are, in the order in which they came.
// They may be anybody's.
type controllers struct {
	mu   sync.Mutex
	here []controller
}

type controller struct {
	net.Conn
	from netip.Addr
}

// enter never waits. If there are too many connections, it closes the oldest one of the machine that
// has most, so that no machine keeps another one out.
func (s *controllers) enter(conn net.Conn) (known func()) {
	from, _ := netip.ParseAddrPort(conn.RemoteAddr().String())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.here = append(s.here, controller{conn, from.Addr()}); len(s.here) > strangers {
		of, most := map[netip.Addr]int{}, 0
		for _, c := range s.here {
			of[c.from]++
			most = max(most, of[c.from])
		}
		i := slices.IndexFunc(s.here, func(c controller) bool { return of[c.from] == most })
		s.here[i].Close() // its greeting fails, and it is dropped
		s.here = slices.Delete(s.here, i, i+1)
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.here = slices.DeleteFunc(s.here, func(c controller) bool { return c.Conn == conn })
	}
}
