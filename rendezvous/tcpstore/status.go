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
	// including overhead.
	Keys  int
	Bytes int64
	// Clients are the connections, sorted by address and port. A process usually has one connection
	// for each store object that it has opened.
	Clients []ClientStatus
}

// ClientStatus is one connection to the store or to one of its proxies. Address and PID identify
// the process: a launcher knows the PIDs of its ranks.
type ClientStatus struct {
	Peer netip.AddrPort
	// Spoke is false for a connection on which the client has sent nothing. Before version 2.1
	// torch opens two connections, and never sends anything on the second.
	Spoke bool
	// PID is the client's process ID in its own PID namespace. It is 0 if the client did not send
	// it (torch before 2.5).
	PID int
	// Came is when the client connected. It is zero for a client of a proxy.
	Came time.Time
	// Waiting has the first missing keys, 8 at most, under the names that the client uses. Missing
	// is the number of missing keys. Since is when the wait began. All three are zero for a client
	// that does not wait.
	Waiting []string
	Missing int
	Since   time.Time
}

// maxShown bounds the keys in a [ClientStatus].
const maxShown = 8

// Changes returns a channel that receives a value when the clients or their waits may have changed.
// One value stands for all changes since the last receive. Close closes the channel.
//
// for range s.Changes() { show(s.Status()) }
func (s *Store) Changes() <-chan struct{} { return s.changes }

// Status returns which clients are connected and what they wait for. It is empty once the store is
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

// missingKeys returns the first keys that are missing.
func (w *waiter) missingKeys() []string {
	var keys []string
	for i := range w.slots {
		if s := &w.slots[i]; s.queue != nil && len(keys) < maxShown {
			keys = append(keys, visible(s.key))
		}
	}
	return keys
}

// prefix is what torch's client puts before the keys of its user (TCPStore.cpp). Torch's own key
// "init/" has no such prefix.
const prefix = "/"

// visible returns a key without prefix, as its user knows it.
func visible(key string) string { return strings.TrimPrefix(key, prefix) }
