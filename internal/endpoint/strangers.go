package endpoint

import (
	"net"
	"net/netip"
	"slices"
	"sync"
)

// workers lets so many be about to say who they are; the others wait. They are all the job's user's.
func workers() func(net.Conn) (known func()) {
	places := make(chan struct{}, strangers)
	return func(net.Conn) func() {
		places <- struct{}{}
		return func() { <-places }
	}
}

// controllers are those who are about to say who they are, and may be anybody, in the order in which they came.
type controllers struct {
	mu   sync.Mutex
	here []controller
}

type controller struct {
	net.Conn
	from netip.Addr
}

// enter never waits: of too many, the one that came first from the machine that has most is given up, so that a machine keeps no other one out.
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
