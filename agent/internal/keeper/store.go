package keeper

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/process/proc"
	"github.com/golaunch/golaunch/rendezvous/tcpstore"
)

// Store is a [tcpstore.Store] of a job that the keeper serves, with the same methods.
type Store struct {
	// Data is what Serve was given.
	Data []byte

	keeper  *Keeper
	job     string
	addr    netip.AddrPort
	changes chan struct{}
}

// Serve makes the keeper serve an empty store at l for a job that has none. The caller closes l.
// Peers, as own sees them, may use the store, see [tcpstore.NewPeers].
func (k *Keeper) Serve(id string, l *net.TCPListener, peers []netip.Addr, own netip.Addr, data []byte) (*Store, error) {
	return k.serve(l, message{Do: doStore, Job: id, Data: data, Peers: peers, Own: own})
}

// Proxy makes the keeper serve a proxy of the store at root, as Serve does. The proxy ends with the
// store.
func (k *Keeper) Proxy(id string, l *net.TCPListener, root netip.AddrPort, peers []netip.Addr, own netip.Addr, data []byte) (*Store, error) {
	return k.serve(l, message{Do: doProxy, Job: id, Data: data, Peers: peers, Own: own, Root: root})
}

func (k *Keeper) serve(l *net.TCPListener, m message) (*Store, error) {
	fd, err := proc.Duplicate(l)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	peers := m.Peers
	m.Peers = peers[:min(len(peers), maxPeers)]
	if _, err := k.ask(m, fd); err != nil {
		return nil, err
	}
	k.mu.Lock()
	s := k.store(m.Job, l.Addr().(*net.TCPAddr).AddrPort(), m.Data)
	k.mu.Unlock()
	if len(peers) > maxPeers {
		s.Admit(peers, m.Own)
	}
	return s, nil
}

func (k *Keeper) store(id string, at netip.AddrPort, data []byte) *Store {
	s := &Store{Data: data, keeper: k, job: id, addr: at, changes: make(chan struct{}, 1)}
	k.stores[id] = s
	return s
}

// Admit sets which nodes may use the store.
func (s *Store) Admit(peers []netip.Addr, own netip.Addr) {
	for ; len(peers) > maxPeers; peers = peers[maxPeers:] {
		s.keeper.say(message{Do: doAdmit, Job: s.job, Peers: peers[:maxPeers], Own: own, More: true})
	}
	s.keeper.say(message{Do: doAdmit, Job: s.job, Peers: peers, Own: own})
}

// Bound sets how many connections the store takes; 0 sets no bound.
func (s *Store) Bound(most int) { s.keeper.say(message{Do: doBound, Job: s.job, Most: most}) }

func (s *Store) Addr() netip.AddrPort     { return s.addr }
func (s *Store) Changes() <-chan struct{} { return s.changes }

func (s *Store) Status() tcpstore.Status {
	m, err := s.keeper.ask(message{Do: doStatus, Job: s.job})
	if err != nil {
		return tcpstore.Status{} // the store is closed
	}
	return tcpstore.Status{Clients: m.Clients}
}

func (s *Store) Close() {
	k := s.keeper
	k.mu.Lock()
	if k.stores[s.job] == s {
		delete(k.stores, s.job)
		close(s.changes)
	}
	k.mu.Unlock()
	if _, err := k.ask(message{Do: doUnstore, Job: s.job}); err != nil && !errors.Is(err, ErrGone) {
		k.warn(fmt.Errorf("close the store of job %s: %w", s.job, err))
	}
}

func (s *Store) changed() {
	select {
	case s.changes <- struct{}{}:
	default:
	}
}
