// Package jobstore is a node's part in torch's store of a job. The node serves the store, keeps the
// port so that rank 0 can serve the store, or has a proxy of another node's store.
package jobstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/golaunch/golaunch/agent/internal/arrivals"
	"github.com/golaunch/golaunch/agent/internal/keeper"
	"github.com/golaunch/golaunch/agent/internal/masterport"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/rendezvous/tcpstore"
)

// Host is the job and the node that the stores belong to.
type Host struct {
	Job string
	// Addr is the node's address, and Others its further addresses.
	Addr   netip.Addr
	Others []netip.Addr
	// Keeper keeps the stores for the next agent. It is nil if no keeper does.
	Keeper *keeper.Keeper
	// Wants returns what the job wants.
	Wants func() Wants
	// Listen takes the wanted port of a host. If wanted is 0, it takes a free port from the ports
	// that the job may use.
	Listen func(host string, wanted int) (net.Listener, error)
	// OthersLive reports whether ranks of another unit live here.
	OthersLive func(unit int) bool
	Report     func(wire.Met)
	Warn       func(error)
}

// Wants is what a job wants from its stores.
type Wants struct {
	// Rank0 makes rank 0 serve the store; otherwise the master's node serves it.
	Rank0 bool
	// Proxy gives each other node a proxy of the store.
	Proxy bool
	// Port is MASTER_PORT, or 0 for a free one.
	Port int
}

// Stores are the stores of a job's units.
type Stores struct {
	host Host
	// first is the store of all units, or of the first replica group. groups are the stores of the
	// other groups.
	first  *Store
	groups map[int]*Store
}

// New returns Stores that serve nothing yet.
func New(h Host) *Stores {
	s := &Stores{host: h, groups: map[int]*Store{}}
	s.first = s.store(h.Job)
	return s
}

func (s *Stores) store(name string) *Store {
	return &Store{host: s.host, name: name, prepared: map[int]job.Prepared{}, jobSize: s.WorldSize}
}

// WorldSize returns the world size of the job's newest attempt; 0 before the first.
func (s *Stores) WorldSize() *atomic.Int64 { return &s.first.worldSize }

// Of returns the store of a unit. Each replica group has its own store.
func (s *Stores) Of(unit int, own bool) *Store {
	if !own || unit == 0 {
		return s.first
	}
	store := s.groups[unit]
	if store == nil {
		store = s.store(groupStore(s.host.Job, unit))
		s.groups[unit] = store
	}
	return store
}

// named finds the store with a name at a keeper. It returns nil if the name belongs to no store of
// this job.
func (s *Stores) named(name string) *Store {
	_, group, grouped := strings.Cut(name, "/")
	unit, err := strconv.Atoi(group)
	if grouped && err != nil {
		return nil
	}
	return s.Of(unit, grouped)
}

// Admit sets which nodes may use the stores here.
func (s *Stores) Admit(peers []netip.Addr) {
	s.first.Admit(peers)
	for _, store := range s.groups {
		store.Admit(peers)
	}
}

// Close ends all stores and proxies here, and frees the ports.
func (s *Stores) Close() {
	s.first.close()
	for _, store := range s.groups {
		store.close()
	}
}

// Store is this node's part in the store of a unit, or of all units that have no store of their own.
type Store struct {
	host Host
	// name is the name of the store at a keeper.
	name string
	// prepared is the newest answer to each unit's request for a port.
	prepared map[int]job.Prepared
	// served is the store if this node serves it, otherwise nil. peers may use the store.
	served service
	peers  atomic.Pointer[tcpstore.Peers]
	// worldSize is the world size of the newest attempt; 0 before the first. jobSize returns the
	// worldSize of the job's first store.
	worldSize atomic.Int64
	jobSize   func() *atomic.Int64
	// reserved is the port that this node keeps for rank 0, or nil.
	reserved *masterport.Reserved
	// proxy is the proxy that the ranks here use, or nil.
	proxy *proxy
}

// service is a [tcpstore.Store], or a store that a keeper serves.
type service interface {
	Addr() netip.AddrPort
	Changes() <-chan struct{}
	Status() tcpstore.Status
	Close()
}

// JobOf returns the job of the store or proxy with a name at a keeper.
func JobOf(name string) string {
	id, _, _ := strings.Cut(name, "/")
	return id
}

// groupStore returns the name, at a keeper, of the store of a replica group. The id of a job
// contains no "/".
func groupStore(id string, group int) string { return id + "/" + strconv.Itoa(group) }

// Answered returns the earlier answer to the same request, if that was a success.
func (s *Store) Answered(o job.Prepare) (job.Prepared, bool) {
	answer, ok := s.prepared[o.Unit]
	return answer, ok && answer.Attempt == o.Attempt && answer.Port != 0
}

// Answer keeps a port for rank 0, or serves the store, and returns the port.
func (s *Store) Answer(o job.Prepare) job.Prepared {
	if answer, ok := s.Answered(o); ok {
		return answer
	}
	answer := job.Prepared{Node: o.Node, Unit: o.Unit, Attempt: o.Attempt}
	var err error
	if s.host.Wants().Rank0 {
		answer.Port, err = s.reserve()
	} else {
		answer.Port, err = s.offer(o)
	}
	if err != nil {
		answer.Err = err.Error()
	}
	s.prepared[o.Unit] = answer
	return answer
}

// reserve keeps a port until Release, on all addresses: torch's store listens on every interface.
func (s *Store) reserve() (int, error) {
	s.Release()
	l, err := s.host.Listen("", s.host.Wants().Port)
	if err != nil {
		return 0, err
	}
	s.reserved = masterport.Reserve(l)
	return masterport.Of(l), nil
}

// Release frees the port for rank 0.
func (s *Store) Release() {
	s.reserved.Release()
	s.reserved = nil
}

// offer serves the job's store to its nodes, and returns the port. For a fresh start the store is
// empty.
func (s *Store) offer(o job.Prepare) (int, error) {
	if s.served != nil && !o.Fresh {
		return int(s.served.Addr().Port()), nil
	}
	s.closeServed()
	l, err := s.host.Listen(s.host.Addr.String(), s.host.Wants().Port)
	if err != nil {
		return 0, err
	}
	port := masterport.Of(l)
	store, err := s.serve(l, o)
	if err != nil {
		return 0, err
	}
	if s.served = store; o.Fresh {
		go s.watch(store, o)
	}
	return port, nil
}

func (s *Store) serve(l net.Listener, o job.Prepare) (service, error) {
	if k := s.host.Keeper; k != nil {
		defer l.Close()
		peers := o.Peers
		o.Peers = nil // the keeper has the peers
		data, err := json.Marshal(o)
		if err != nil {
			return nil, err
		}
		return k.Serve(s.name, l.(*net.TCPListener), peers, s.host.Addr, data)
	}
	return tcpstore.Serve(l, tcpstore.Options{
		Allow:      s.Admits,
		MaxClients: func() int { return connectionsPerRank * int(s.worldSize.Load()) },
		Warn:       s.warn,
	})
}

// connectionsPerRank bounds a rank's connections to the store. torch has one connection, and
// another for each process group (ProcessGroupNCCL clones the store). Megatron makes some dozens of
// groups.
const connectionsPerRank = 512

// Resize adapts the number of connections to the number of ranks.
func (s *Store) Resize(worldSize int) {
	s.worldSize.Store(int64(worldSize))
	s.jobSize().Store(int64(worldSize)) // readers of logs need the job's world size
	if kept, ok := s.served.(*keeper.Store); ok {
		kept.Bound(connectionsPerRank * worldSize)
	}
}

// Admit sets which nodes may use the store.
func (s *Store) Admit(addrs []netip.Addr) {
	own := s.host.Addr
	s.peers.Store(tcpstore.NewPeers(addrs, own))
	if kept, ok := s.served.(*keeper.Store); ok {
		kept.Admit(addrs, own)
	}
}

// Admits reports whether a machine may use the store.
func (s *Store) Admits(from netip.Addr) bool { return s.peers.Load().Has(from) }

// warn does not warn of ranks that vanished, because the agent reports their exits.
func (s *Store) warn(err error) {
	if !errors.Is(err, tcpstore.ErrVanished) {
		s.host.Warn(fmt.Errorf("store of job %s: %w", s.host.Job, err))
	}
}

func (s *Store) closeServed() {
	if s.served != nil {
		s.served.Close()
		s.served = nil
	}
}

func (s *Store) close() {
	s.closeServed()
	s.closeProxy()
	s.Release()
}

// Resume adopts a store or a proxy that an earlier agent has left at the keeper under a name.
func (s *Stores) Resume(name string, kept *keeper.Store) {
	name, isProxy := strings.CutSuffix(name, proxySuffix)
	store := s.named(name)
	if store == nil || isProxy && !store.resumeProxy(kept) || !isProxy && !store.resume(kept) {
		kept.Close()
	}
}

func (s *Store) resume(kept *keeper.Store) bool {
	var o job.Prepare
	if err := json.Unmarshal(kept.Data, &o); err != nil {
		return false
	}
	s.served = kept
	go s.watch(kept, o)
	return true
}

// quietTime is how long a store must be unchanged before its ranks are reported to the coordinator.
const quietTime = 10 * time.Second

// watch reports to the coordinator which ranks have connected to an attempt's store and which wait
// there. It does so when nothing has changed for quietTime while ranks are missing or wait. Once
// all ranks have connected, it also reports which was the last. It ends with the store.
func (s *Store) watch(store service, o job.Prepare) {
	quiet := time.NewTimer(quietTime)
	defer quiet.Stop()
	var came arrivals.Counter
	reported := false
	for {
		select {
		case _, open := <-store.Changes():
			if !open {
				return
			}
			quiet.Reset(quietTime)
			came.Changed()
		case <-came.Due:
			if last, at := came.Take(time.Now(), store.Status().Clients, int(s.worldSize.Load())); last != nil {
				s.host.Report(wire.Met{Unit: o.Unit, Attempt: o.Attempt, Meeting: job.Meeting{Last: last, Ago: time.Since(at)}})
			}
		case <-quiet.C:
			m := arrivals.Meeting(store.Status().Clients, int(s.worldSize.Load()))
			if reported || m.Came > 0 {
				s.host.Report(wire.Met{Unit: o.Unit, Attempt: o.Attempt, Meeting: m})
				reported = m.Came > 0
			}
		}
	}
}
