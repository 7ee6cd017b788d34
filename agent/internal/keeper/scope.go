package keeper

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/process/proc"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/rendezvous/tcpstore"
)

// Scope is a [proc.Scope] of the keeper's. Its methods are those of that.
type Scope struct {
	// Data is what [Keeper.Scope] was given, and Ranks are those that an agent before this one has started.
	Data  []byte
	Ranks []Rank
	// Stopped says that it was ordered to end by that agent.
	Stopped bool

	keeper *Keeper
	id     int
	// since is before all its processes; zero if an older keeper does not say.
	since proc.Epoch
	// alive are the processes of which no end was heard, fresh those that Start has not returned yet. Both belong to the keeper's lock.
	alive map[int]func(report.Exit, time.Time)
	fresh map[int]*proc.Process
}

// Rank is a process with what its agent gave along.
type Rank struct {
	Data    []byte
	Process *proc.Process
	// Files are descriptors, and whose Scope it is owns them.
	Files []int
}

// Scope makes a scope, with data for an agent after this one.
func (k *Keeper) Scope(name string, data []byte) (*Scope, error) {
	m, err := k.ask(message{Do: doScope, Name: name, Data: data})
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.scope(m, data), nil
}

// scope is one that the keeper has told of.
func (k *Keeper) scope(m message, data []byte) *Scope {
	sc := &Scope{
		Data: data, keeper: k, id: m.ID, alive: map[int]func(report.Exit, time.Time){}, fresh: map[int]*proc.Process{},
	}
	if m.Since != nil {
		sc.since = *m.Since
	}
	k.scopes[m.ID] = sc
	return sc
}

func (sc *Scope) process(m message) *proc.Process {
	var unforked error
	if m.Unforked != "" {
		unforked = errors.New(m.Unforked)
	}
	p, end := proc.Kept(m.PID, m.Forked, unforked)
	sc.alive[m.PID] = end
	return p
}

func (sc *Scope) ended(m message) {
	if end := sc.alive[m.PID]; end != nil {
		delete(sc.alive, m.PID)
		end(*m.Exit, m.Ended)
	}
}

// Start starts a process, and keeps data and duplicates of files with it.
func (sc *Scope) Start(c proc.Command, data []byte, files ...*os.File) (*proc.Process, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	if c.Dir == "" {
		if c.Dir, err = os.Getwd(); err != nil {
			return nil, err
		}
	}
	var fds []int
	defer func() { closeAll(fds) }()
	for _, f := range append([]*os.File{c.Stdin, c.Stdout, c.Stderr}, files...) {
		if f == nil {
			f = null
		}
		fd, err := proc.Duplicate(f)
		if err != nil {
			return nil, fmt.Errorf("start %q: %w", c.Path, err)
		}
		fds = append(fds, fd)
	}
	order := message{Do: doStart, ID: sc.id, Command: fromCommand(c), Data: data}
	server, ok := c.Forker.(*Server)
	if ok {
		order.Server, order.ForkOnly = server.id, c.ForkOnly
	}
	m, err := sc.keeper.ask(order, fds...)
	if ok {
		server.heard(m)
	}
	switch {
	case m.Exit != nil:
		return nil, &proc.StartError{Exit: *m.Exit}
	case err != nil:
		return nil, fmt.Errorf("start %q: %w", c.Path, err)
	}
	sc.keeper.mu.Lock()
	defer sc.keeper.mu.Unlock()
	p := sc.fresh[m.PID]
	delete(sc.fresh, m.PID)
	return p, nil
}

func (sc *Scope) Signal(sig os.Signal) {
	if number, ok := sig.(syscall.Signal); ok {
		sc.keeper.say(message{Do: doSignal, ID: sc.id, Signal: int(number)})
	}
}

func (sc *Scope) Members() ([]proc.Member, error) {
	sc.keeper.mu.Lock()
	leaders := slices.Collect(maps.Keys(sc.alive))
	sc.keeper.mu.Unlock()
	return proc.Members(leaders, sc.since)
}

func (sc *Scope) Stop(sig syscall.Signal, heard bool, grace time.Duration) error {
	return sc.end(message{Do: doStop, Signal: int(sig), Heard: heard, At: grace})
}
func (sc *Scope) Rest(grace time.Duration) error { return sc.end(message{Do: doRest, At: grace}) }
func (sc *Scope) Kill() error                    { return sc.end(message{Do: doKill}) }
func (sc *Scope) Close() error                   { return sc.end(message{Do: doClose}) }

func (sc *Scope) Linger(limit time.Duration) ([]string, error) {
	m, err := sc.keeper.ask(message{Do: doLinger, ID: sc.id, At: limit})
	return m.Names, err
}

func (sc *Scope) end(m message) error {
	m.ID = sc.id
	_, err := sc.keeper.ask(m)
	return err
}

// Forget ends the keeping of a scope that is closed.
func (sc *Scope) Forget() {
	sc.keeper.say(message{Do: doForget, ID: sc.id})
	sc.keeper.mu.Lock()
	defer sc.keeper.mu.Unlock()
	delete(sc.keeper.scopes, sc.id)
}

// Store is torch's store of a job, served by the keeper. Its methods are those of a [tcpstore.Store].
type Store struct {
	// Data is what Serve was given.
	Data []byte

	keeper  *Keeper
	job     string
	addr    netip.AddrPort
	changes chan struct{}
}

// Serve has the keeper serve an empty store for a job, which has none, where l listens. It leaves l to the caller. Who may use the store
// are peers, seen from own, see [tcpstore.NewPeers].
func (k *Keeper) Serve(id string, l *net.TCPListener, peers []netip.Addr, own netip.Addr, data []byte) (*Store, error) {
	return k.serve(l, message{Do: doStore, Job: id, Data: data, Peers: peers, Own: own})
}

// Proxy has the keeper serve a proxy of the store at root. It is as one that Serve has served, but ends with the store.
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

// Admit changes who may use the store.
func (s *Store) Admit(peers []netip.Addr, own netip.Addr) {
	for ; len(peers) > maxPeers; peers = peers[maxPeers:] {
		s.keeper.say(message{Do: doAdmit, Job: s.job, Peers: peers[:maxPeers], Own: own, More: true})
	}
	s.keeper.say(message{Do: doAdmit, Job: s.job, Peers: peers, Own: own})
}

// Bound sets how many connections the store takes; 0 sets no bound of its own.
func (s *Store) Bound(most int) { s.keeper.say(message{Do: doBound, Job: s.job, Most: most}) }

func (s *Store) Addr() netip.AddrPort     { return s.addr }
func (s *Store) Changes() <-chan struct{} { return s.changes }

func (s *Store) Status() tcpstore.Status {
	m, err := s.keeper.ask(message{Do: doStatus, Job: s.job})
	if err != nil {
		return tcpstore.Status{} // it is closed
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
