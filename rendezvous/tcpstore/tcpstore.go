// Package tcpstore is torch's TCPStore: the server, as torch 1.13 and 2.2 to 2.14 expect it, with
// its client for Go programs.
//
// Torch's processes find each other through such a store, at MASTER_ADDR and MASTER_PORT. With
// TORCHELASTIC_USE_AGENT_STORE=True they expect the launcher to serve it. golaunch serves one per
// attempt, on the address of the master node. So a restarted gang cannot read the keys of the
// previous gang, which name dead processes.
//
//	l, err := net.Listen("tcp4", "10.0.0.2:0")
//	...
//	store, err := tcpstore.Serve(l, tcpstore.Options{Allow: isNodeOfTheJob, Warn: warn})
//	...
//	defer store.Close()
//
// The protocol and its limits are the same as in torch's libuv server
// (torch/csrc/distributed/c10d/TCPStoreLibUvBackend.cpp). The protocol has no authentication, so
// use [Options.Allow]. A listener of package net has the longest backlog that the machine allows
// (net.core.somaxconn). This backlog should be at least the number of processes. The package
// resolves no names.
//
// A store may have proxies, one for the clients of each node ([Options.Root]). A proxy has one
// connection to the store. It passes on its clients' sets, adds and waits. It caches values. It
// answers with a cached value only if the store, after the client asked, has confirmed that the
// value still holds. It does not cache a value again once the value has changed. A client can tell
// a proxy from the store in one case: several clients of a proxy wait for the same keys, and the
// last of these keys to appear is a queue. The proxy then wakes all these clients, where the store
// would wake one.
//
// One goroutine owns a store. It waits on an epoll set of all connections and answers one request
// after another, as torch's servers do. With a goroutine for each connection, each connection would
// cost 4 kB more, and each request three system calls instead of two.
package tcpstore

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/golaunch/golaunch/rendezvous/tcpstore/internal/sockets"
)

// Options are the rules of a store. The zero value serves every client. The store's own goroutine
// calls the functions. While a function runs, the store serves no client.
type Options struct {
	// Allow reports whether a machine may use the store. The store disconnects other machines
	// before it reads a byte. A nil Allow allows all machines. Allow is called for each connection,
	// so it may read an atomic set that follows a job whose nodes change.
	Allow func(netip.Addr) bool
	// MaxClients returns the largest number of connections. The store closes further connections.
	// MaxClients is called for each connection. A nil MaxClients, or a result of 0, sets no bound
	// for this store. All stores of a process together, however, leave 1024 of the process's
	// descriptors, or half of them if that is less, for other uses.
	MaxClients func() int
	// Root makes this store a proxy of the store at that address, which must be of this package.
	// The proxy answers as the store would, over one connection for all its clients. When that
	// connection ends, the proxy ends.
	Root netip.AddrPort
	// Warn gets the reason why a client was disconnected, with the client's address, at most 16
	// times a minute for each machine. A nil Warn drops the reasons.
	Warn func(error)
	// MaxBytes bounds the stored data and the requests and replies under way, with overhead
	// (default 4 GiB). A client that needs more is disconnected.
	MaxBytes int64
	// Patience bounds the time for each request, from its first byte to its last, and for reading
	// each reply (default 1 minute). If there is no room for another client, a client that has sent
	// nothing for Patience may also be disconnected.
	Patience time.Duration
}

// ErrVanished marks warnings about a client that disconnected in the middle of an operation, as a
// killed process does.
var ErrVanished = errors.New("it went away")

// Store is a store that is being served.
type Store struct {
	addr    netip.AddrPort
	tasks   chan func(*loop)
	changes chan struct{}
	ended   chan struct{}

	mu     sync.Mutex
	closed bool
	bell   sockets.Bell
}

// Serve serves an empty store until Close. It takes over the listener, which must be TCP.
func Serve(l net.Listener, o Options) (*Store, error) {
	o.MaxBytes = cmp.Or(o.MaxBytes, 4<<30)
	o.Patience = cmp.Or(o.Patience, time.Minute)
	s := &Store{
		addr: addrPort(l.Addr()), tasks: make(chan func(*loop), 16), changes: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	loop, err := newLoop(l, o, s.tasks)
	if err != nil {
		return nil, fmt.Errorf("cannot serve a store at %v: %w", l.Addr(), err)
	}
	s.bell = loop.poller.Bell
	go func() {
		defer close(s.ended)
		defer close(s.changes)
		loop.run(s.changes)
	}()
	return s, nil
}

// Addr returns where the store listens.
func (s *Store) Addr() netip.AddrPort { return s.addr }

// Close disconnects all clients. It returns when no goroutine of the store runs any more. The
// contents are lost.
func (s *Store) Close() {
	s.do(func(l *loop) { l.over = true })
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		<-s.ended
		s.closed = true
		s.bell.Close()
	}
}

// do runs a function in the store's goroutine. It does nothing if the store is closed.
func (s *Store) do(task func(*loop)) {
	ran := make(chan struct{})
	select {
	case s.tasks <- func(l *loop) { task(l); close(ran) }:
	case <-s.ended:
		return
	}
	s.mu.Lock()
	if !s.closed {
		s.bell.Ring()
	}
	s.mu.Unlock()
	select {
	case <-ran:
	case <-s.ended:
	}
}

// addrPort returns the address of one end of a TCP connection.
func addrPort(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := tcp.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

// Peers are the machines that may use a store, for [Options].
type Peers struct {
	all      bool
	loopback bool
	addrs    map[netip.Addr]bool
}

// NewPeers returns peers with the given addresses. Without addresses, it allows all machines. own
// is the address of the store. If own is a loopback address, all loopback addresses are allowed,
// because clients then connect from one.
func NewPeers(addrs []netip.Addr, own netip.Addr) *Peers {
	p := &Peers{all: len(addrs) == 0, loopback: own.IsLoopback(), addrs: make(map[netip.Addr]bool, len(addrs))}
	for _, a := range addrs {
		p.addrs[a.Unmap().WithZone("")] = true
	}
	return p
}

// Has reports whether a machine may use the store.
func (p *Peers) Has(from netip.Addr) bool {
	from = from.Unmap().WithZone("")
	return p.all || p.addrs[from] || p.loopback && from.IsLoopback()
}
