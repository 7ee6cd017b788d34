package tcpstore

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/golaunch/golaunch/rendezvous/tcpstore/internal/protocol"
)

// Status is a snapshot of a store.
type Status struct {
	// Keys is the number of keys. Bytes is the size of keys, queues and requests under way,
	// overhead included.
	Keys  int
	Bytes int64
	// Clients are the connections by address and port: one for each store that a process opened,
	// usually one.
	Clients []ClientStatus
}

// ClientStatus is one connection to the store or to a proxy of it. Address and PID identify the
// process: a launcher knows the PIDs of its ranks.
type ClientStatus struct {
	Peer netip.AddrPort
	// Spoke is false for one that has sent nothing: of the two connections of torch before 2.1, the
	// second never does.
	Spoke bool
	// PID is the client's process ID, in its own PID namespace; 0 if it did not say (torch before
	// 2.5).
	PID int
	// Came is when it connected; zero for a client of a proxy.
	Came time.Time
	// Waiting has the first missing keys, 8 at most, as the client names them. Missing is their
	// number, and Since when the wait began. All are zero for a client that does not wait.
	Waiting []string
	Missing int
	Since   time.Time
}

// maxShown bounds the keys in a [ClientStatus].
const maxShown = 8

// Changes receives when the clients or their waits may have changed, once for all changes since the
// last receive. It is closed with the store.
//
// for range s.Changes() { show(s.Status()) }
func (s *Store) Changes() <-chan struct{} { return s.changes }

// Status says which clients are connected and what they wait for. It is empty once the store is
// closed.
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
		if c.proxyLink != nil {
			st.Clients = append(st.Clients, c.proxyClients()...)
			continue
		}
		if c.pid == protocol.Unlisted {
			continue
		}
		client := ClientStatus{Peer: c.peer, Spoke: c.numbering != nil, PID: int(c.pid), Came: c.times.came}
		if w := c.wait; w != nil && !c.answered {
			client.Waiting, client.Missing, client.Since = w.missingKeys(), w.missing, w.since
		}
		st.Clients = append(st.Clients, client)
	}
	return st
}

// missingKeys are the first keys that are missing.
func (w *waiter) missingKeys() []string {
	var keys []string
	for i := range w.slots {
		if s := &w.slots[i]; s.queue != nil && len(keys) < maxShown {
			keys = append(keys, visible(s.key))
		}
	}
	return keys
}

// prefix is what torch's client puts before its user's keys (TCPStore.cpp); its own key "init/" has
// none.
const prefix = "/"

// visible is a key as its user knows it.
func visible(key string) string { return strings.TrimPrefix(key, prefix) }
