package agent

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
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/rendezvous/tcpstore"
)

// jobStore is this node's part in torch's store of a job: it serves the store, keeps the port for
// rank 0 to serve it, or has a proxy of the store of another node.
type jobStore struct {
	job *jobOnNode
	// name is what a keeper calls the store.
	name string
	// prepared is the newest answer to each unit's question for a port.
	prepared map[int]job.Prepared
	// served is nil unless this node serves the store, and peers may use it.
	served servedStore
	peers  atomic.Pointer[tcpstore.Peers]
	// worldSize is that of the newest attempt; 0 before the first.
	worldSize atomic.Int64
	// reserved is nil unless a port is kept for rank 0.
	reserved *masterport.Reserved
	// proxy is nil unless the ranks here have one.
	proxy *proxy
}

// servedStore is a [tcpstore.Store], or one that a keeper serves.
type servedStore interface {
	Addr() netip.AddrPort
	Changes() <-chan struct{}
	Status() tcpstore.Status
	Close()
}

// jobStores are the stores of a job's units.
type jobStores struct {
	// first is that of all units, or of the first replica group; groups are those of the others.
	first  jobStore
	groups map[int]*jobStore
}

func (s *jobStores) init(j *jobOnNode) {
	s.first.job, s.first.name, s.first.prepared = j, j.id, map[int]job.Prepared{}
	s.groups = map[int]*jobStore{}
}

// of is the store of a unit. Each replica group has its own.
func (s *jobStores) of(unit int, own bool) *jobStore {
	if !own || unit == 0 {
		return &s.first
	}
	store := s.groups[unit]
	if store == nil {
		j := s.first.job
		store = &jobStore{job: j, name: groupStore(j.id, unit), prepared: map[int]job.Prepared{}}
		s.groups[unit] = store
	}
	return store
}

// admit sets which nodes may use the stores here.
func (s *jobStores) admit(peers []netip.Addr) {
	s.first.admit(peers)
	for _, store := range s.groups {
		store.admit(peers)
	}
}

func (s *jobStores) close() {
	s.first.close()
	for _, store := range s.groups {
		store.close()
	}
}

// prepare reports the MASTER_PORT, unless this node could not start its ranks. The same question
// has the same answer, even if other nodes have replaced some.
func (j *jobOnNode) prepare(o job.Prepare) {
	store := j.stores.of(o.Unit, o.Fresh)
	store.admit(o.Peers)
	ctx := j.checks.renew(question{o.Unit, false})
	if answer, ok := store.answered(o); ok {
		j.report(answer)
		return
	}
	left := j.leftovers(o)
	j.checkStart(ctx, o.Ranks, func(unable report.Exit) {
		if unable.OK() {
			left(ctx)
		}
		j.node.later(ctx, func() {
			if unable.OK() {
				j.report(store.answer(o))
			} else {
				j.report(job.Prepared{Node: o.Node, Unit: o.Unit, Attempt: o.Attempt, Unable: unable})
			}
		})
	})
}

// groupStore is the name of the store of a replica group at a keeper. The id of a job has no "/" in
// it.
func groupStore(id string, group int) string { return id + "/" + strconv.Itoa(group) }

// storeNamed finds the store of that name.
func (m *membership) storeNamed(name string) *jobStore {
	id, group, grouped := strings.Cut(name, "/")
	j := m.jobs[id]
	unit, err := strconv.Atoi(group)
	switch {
	case j == nil, grouped && err != nil:
		return nil
	}
	return j.stores.of(unit, grouped)
}

func (s *jobStore) answered(o job.Prepare) (job.Prepared, bool) {
	answer, ok := s.prepared[o.Unit]
	return answer, ok && answer.Attempt == o.Attempt && answer.Err == ""
}

// answer chooses the port.
func (s *jobStore) answer(o job.Prepare) job.Prepared {
	if answer, ok := s.answered(o); ok {
		return answer
	}
	answer := job.Prepared{Node: o.Node, Unit: o.Unit, Attempt: o.Attempt}
	var err error
	if s.job.work.Task.Rank0Store {
		answer.Port, err = s.reserve()
	} else {
		answer.Port, err = s.host(o)
	}
	if err != nil {
		answer.Err = err.Error()
	}
	s.prepared[o.Unit] = answer
	return answer
}

// reserve keeps a port until release, on all addresses: torch's store listens on every interface.
func (s *jobStore) reserve() (int, error) {
	s.release()
	l, err := s.job.listen("", s.job.work.Task.MasterPort)
	if err != nil {
		return 0, err
	}
	s.reserved = masterport.Reserve(l)
	return masterport.Of(l), nil
}

// release frees the port for rank 0.
func (s *jobStore) release() {
	s.reserved.Release()
	s.reserved = nil
}

// host serves the job's store to its nodes, an empty one for a fresh start, and returns the port.
func (s *jobStore) host(o job.Prepare) (int, error) {
	if s.served != nil && !o.Fresh {
		return int(s.served.Addr().Port()), nil
	}
	s.closeServed()
	l, err := s.job.listen(s.job.node.session.Node.Addr.String(), s.job.work.Task.MasterPort)
	if err != nil {
		return 0, err
	}
	port := masterport.Of(l)
	served, err := s.serve(l, o)
	if err != nil {
		return 0, err
	}
	if s.served = served; o.Fresh {
		go s.watch(served, o)
	}
	return port, nil
}

func (s *jobStore) serve(l net.Listener, o job.Prepare) (servedStore, error) {
	if k := s.job.node.starter.Keeper; k != nil {
		defer l.Close()
		peers := o.Peers
		o.Peers = nil // the keeper has them
		data, err := json.Marshal(o)
		if err != nil {
			return nil, err
		}
		return k.Serve(s.name, l.(*net.TCPListener), peers, s.job.node.session.Node.Addr, data)
	}
	return tcpstore.Serve(l, tcpstore.Options{
		Allow:      func(from netip.Addr) bool { return s.peers.Load().Has(from) },
		MaxClients: func() int { return connectionsPerRank * int(s.worldSize.Load()) },
		Warn:       s.warn,
	})
}

// connectionsPerRank bounds a rank's connections to the store. torch has one, and another for each
// process group (ProcessGroupNCCL clones the store). Megatron makes some dozens of groups.
const connectionsPerRank = 512

// resize adapts the number of connections to the number of ranks.
func (s *jobStore) resize(worldSize int) {
	s.worldSize.Store(int64(worldSize))
	s.job.stores.first.worldSize.Store(int64(worldSize)) // which readers of logs look at
	if kept, ok := s.served.(*keeper.Store); ok {
		kept.Bound(connectionsPerRank * worldSize)
	}
}

// admit sets which nodes may use the store.
func (s *jobStore) admit(addrs []netip.Addr) {
	own := s.job.node.session.Node.Addr
	s.peers.Store(tcpstore.NewPeers(addrs, own))
	if kept, ok := s.served.(*keeper.Store); ok {
		kept.Admit(addrs, own)
	}
}

// warn omits ranks that vanished: their exits are reported.
func (s *jobStore) warn(err error) {
	if !errors.Is(err, tcpstore.ErrVanished) {
		s.job.node.Warn(fmt.Errorf("store of job %s: %w", s.job.id, err))
	}
}

func (s *jobStore) closeServed() {
	if s.served != nil {
		s.served.Close()
		s.served = nil
	}
}

func (s *jobStore) close() {
	s.closeServed()
	s.closeProxy()
	s.release()
}

// quietTime is how long a store must be unchanged before its ranks are reported to the coordinator.
const quietTime = 10 * time.Second

// watch reports to the coordinator which ranks have connected to an attempt's store and which wait
// there, once ranks are missing or wait and nothing has changed for quietTime. It also reports
// which was the last, once all have connected. It ends with the store.
func (s *jobStore) watch(served servedStore, o job.Prepare) {
	quiet := time.NewTimer(quietTime)
	defer quiet.Stop()
	var came arrivals.Counter
	reported := false
	for {
		select {
		case _, open := <-served.Changes():
			if !open {
				return
			}
			quiet.Reset(quietTime)
			came.Changed()
		case <-came.Due:
			if last, at := came.Take(time.Now(), served.Status().Clients, int(s.worldSize.Load())); last != nil {
				s.job.report(wire.Met{Unit: o.Unit, Attempt: o.Attempt, Meeting: job.Meeting{Last: last, Ago: time.Since(at)}})
			}
		case <-quiet.C:
			m := arrivals.Meeting(served.Status().Clients, int(s.worldSize.Load()))
			if reported || m.Came > 0 {
				s.job.report(wire.Met{Unit: o.Unit, Attempt: o.Attempt, Meeting: m})
				reported = m.Came > 0
			}
		}
	}
}
