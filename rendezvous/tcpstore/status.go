package tcpstore

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Status is a snapshot of a store.
type Status struct {
	// Keys is the number of keys; Bytes is what they, the queues and the requests at hand take, overhead included.
	Keys  int
	Bytes int64
	// Clients are the connections, by address and port: one for each store that a process opened, which is one for most programs.
	Clients []ClientStatus
}

// ClientStatus is one connection, to the store or to a proxy of it. Address and PID tell whose it is: a launcher knows the pids of its ranks.
type ClientStatus struct {
	Peer netip.AddrPort
	// Spoke is false for one that has sent nothing: of the two connections that torch before 2.1 makes, the second never does.
	Spoke bool
	// PID is the client's own process id, in its own pid namespace; 0 if it did not say (torch before 2.5).
	PID int
	// Waiting has the first keys, 8 at most, that are still missing, as the client names them; Missing is how many there are, and
	// Since when the wait began. All are zero for a client that does not wait.
	Waiting []string
	Missing int
	Since   time.Time
}

// maxShown bounds the keys in a [ClientStatus].
const maxShown = 8

// Changes receives when the clients or what they wait for may have changed: once for all changes since it last did. It is closed
// with the store.
//
//	for range s.Changes() {
//		show(s.Status())
//	}
func (s *Store) Changes() <-chan struct{} { return s.changes }

// Status says who is connected and who waits for what. It is empty once the store is closed.
func (s *Store) Status() (st Status) {
	s.do(func(l *loop) { st = l.status() })
	slices.SortFunc(st.Clients, func(a, b ClientStatus) int {
		return cmp.Or(a.Peer.Addr().Compare(b.Peer.Addr()), cmp.Compare(a.Peer.Port(), b.Peer.Port()))
	})
	return st
}

func (l *loop) status() Status {
	st := Status{Keys: len(l.table.values), Bytes: l.table.budget.used, Clients: make([]ClientStatus, 0, len(l.conns))}
	for _, c := range l.conns {
		if c.link != nil {
			st.Clients = append(st.Clients, c.behind()...)
			continue
		}
		client := ClientStatus{Peer: c.peer, Spoke: c.numbering != nil, PID: int(c.pid)}
		if w := c.wait; w != nil && !c.answered {
			client.Waiting, client.Missing, client.Since = w.shown(), w.missing, w.since
		}
		st.Clients = append(st.Clients, client)
	}
	return st
}

// shown are the first keys that are missing.
func (w *waiter) shown() []string {
	var keys []string
	for i := range w.spots {
		if s := &w.spots[i]; s.line != nil && len(keys) < maxShown {
			keys = append(keys, visible(s.key))
		}
	}
	return keys
}

// prefix is what torch's client puts before each key of its user's (TCPStore.cpp); its own key "init/" has none.
const prefix = "/"

// visible is a key as its user knows it.
func visible(key string) string { return strings.TrimPrefix(key, prefix) }
