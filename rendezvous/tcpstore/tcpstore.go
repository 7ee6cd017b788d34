// Package tcpstore is torch's TCPStore: a server that torch 1.13 and 2.2 to 2.14 can use as their own, and a client for Go programs.
//
// Torch's processes find each other through such a store, at MASTER_ADDR and MASTER_PORT. With TORCHELASTIC_USE_AGENT_STORE=True
// they expect the launcher to serve it. golaunch serves one per attempt, on the address of the master node: a restarted gang then
// cannot read the keys of the one before, which name dead processes.
//
//	l, err := net.Listen("tcp4", "10.0.0.2:0")
//	...
//	store, err := tcpstore.Serve(l, tcpstore.Options{Allow: isNodeOfTheJob, Warn: warn})
//	...
//	defer store.Close()
//
// The protocol and its limits are those of torch's libuv server (torch/csrc/distributed/c10d/TCPStoreLibUvBackend.cpp). It has no
// authentication; hence Allow. A listener of package net has the longest backlog that the machine allows (net.core.somaxconn),
// which should be at least the number of processes. Nothing here resolves a name.
//
// A store may have proxies, each for the clients of a node ([Options.Root]). A proxy has one connection to the store, over which go what
// its clients set, add and wait for, each in their own name, and what they read once for all of them: it keeps values, and gives one only
// when the store has said, after the client asked, that it still holds. A client cannot tell a proxy from the store, but for one thing:
// among clients of a proxy that wait for the same several keys, a queue that was the last of them wakes all, not one. A value that has
// changed once is not kept any more.
//
// One goroutine owns a store: it waits on an epoll set of all connections and answers one request after another, as torch's own
// servers do. A goroutine for each connection costs 4 kB more for each, and three system calls for a request instead of two.
package tcpstore

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Options are the rules of a store. The zero value serves everyone. The functions are called by the store's own goroutine, which
// serves nobody meanwhile.
type Options struct {
	// Allow says whether a machine may use the store; others are disconnected before a byte of theirs is read. Nil allows all. It
	// is asked for each connection anew: one that looks into an atomic set of the caller's follows a job whose nodes change.
	Allow func(netip.Addr) bool
	// MaxClients is how many connections the store has at most; who comes then is disconnected. It is asked for each connection anew.
	// Nil, and 0, set no bound of the store's own, but all stores of a process together leave 1024 of its descriptors, or half of them, to others.
	MaxClients func() int
	// Root makes it a proxy: it answers as the store there would, which it has one connection to, for all its clients. That must be one of
	// this package. The proxy ends with the connection.
	Root netip.AddrPort
	// Warn is told why a client was disconnected, with the client's address: at most 16 times a minute for each machine. Nil
	// drops it.
	Warn func(error)
	// MaxBytes bounds what is stored and what clients are at sending and receiving, with overhead (default 4 GiB). Who asks for
	// more is disconnected.
	MaxBytes int64
	// Patience bounds in time each request, from its first byte to its last, and the taking of each reply (default 1 minute). Where there is
	// no room for one more client, it also bounds the silence of one that has said nothing since it came.
	Patience time.Duration
}

// ErrVanished marks what Options.Warn is told of a client that went away with something left to do, as a process that is killed does.
var ErrVanished = errors.New("it went away")

// Store is a store that is being served.
type Store struct {
	addr    netip.AddrPort
	tasks   chan func(*loop)
	changes chan struct{}
	ended   chan struct{}

	mu     sync.Mutex
	closed bool
	bell   bell
}

// Serve serves an empty store until Close. The listener must be one of TCP; it is closed by Serve, and lives on in the store.
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
	s.bell = loop.bell
	go func() {
		defer close(s.ended)
		defer close(s.changes)
		loop.run(s.changes)
	}()
	return s, nil
}

// Addr is where the store listens.
func (s *Store) Addr() netip.AddrPort { return s.addr }

// Close disconnects everyone, and returns once nothing of the store runs any more. What was stored is gone.
func (s *Store) Close() {
	s.do(func(l *loop) { l.over = true })
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		<-s.ended
		s.closed = true
		s.bell.close()
	}
}

// do has the owner of the store run something, unless the store is closed.
func (s *Store) do(task func(*loop)) {
	ran := make(chan struct{})
	select {
	case s.tasks <- func(l *loop) { task(l); close(ran) }:
	case <-s.ended:
		return
	}
	s.mu.Lock()
	if !s.closed {
		s.bell.ring()
	}
	s.mu.Unlock()
	select {
	case <-ran:
	case <-s.ended:
	}
}

// addrPort is the address of one end of a TCP connection.
func addrPort(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := tcp.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}
