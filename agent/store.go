package agent

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/golaunch/golaunch/internal/wire"

	"github.com/golaunch/golaunch/agent/internal/keeper"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/rendezvous/tcpstore"
)

// prepare reports the port of MASTER_PORT, unless its ranks could not start. The newest question ends the one before. The same question has
// the same answer, though other nodes may have come in the place of some.
func (s *share) prepare(o job.Prepare) {
	s.admit(o.Peers)
	ctx := s.ask(&s.unprepare)
	if answer, ok := s.answered(o); ok {
		s.report(answer)
		return
	}
	s.able(ctx, o.Ranks, func(unable report.Exit) {
		s.agent.later(ctx, func() {
			if unable.OK() {
				s.report(s.answer(o))
			} else {
				s.report(job.Prepared{Node: o.Node, Unit: o.Unit, Attempt: o.Attempt, Unable: unable})
			}
		})
	})
}

func (s *share) answered(o job.Prepare) (job.Prepared, bool) {
	answer, ok := s.prepared[o.Unit]
	return answer, ok && answer.Attempt == o.Attempt && answer.Err == ""
}

// answer is the port: where this node serves torch's store from now on, or that it keeps free for rank 0 to do so.
func (s *share) answer(o job.Prepare) job.Prepared {
	if answer, ok := s.answered(o); ok {
		return answer
	}
	answer := job.Prepared{Node: o.Node, Unit: o.Unit, Attempt: o.Attempt}
	var err error
	if s.work.Task.Rank0Store {
		answer.Port, err = s.hold()
	} else {
		answer.Port, err = s.host(o)
	}
	if err != nil {
		answer.Err = err.Error()
	}
	s.prepared[o.Unit] = answer
	return answer
}

// host serves the job's store to its nodes, an empty one for a fresh start, and returns the port.
func (s *share) host(o job.Prepare) (int, error) {
	if s.store != nil && !o.Fresh {
		return int(s.store.Addr().Port()), nil
	}
	s.closeStore()
	l, err := s.listen(s.agent.session.Node.Addr.String(), s.work.Task.MasterPort)
	if err != nil {
		return 0, err
	}
	port := portOf(l)
	store, err := s.serve(l, o)
	if err != nil {
		return 0, err
	}
	if s.store = store; o.Fresh {
		go s.watchStore(store, o)
	}
	return port, nil
}

// store is a [tcpstore.Store], or one that a keeper serves.
type store interface {
	Addr() netip.AddrPort
	Changes() <-chan struct{}
	Status() tcpstore.Status
	Close()
}

func (s *share) serve(l net.Listener, o job.Prepare) (store, error) {
	if s.agent.keeper != nil {
		return s.serveKept(l, o)
	}
	return tcpstore.Serve(l, tcpstore.Options{
		Allow:      func(from netip.Addr) bool { return s.peers.Load().Has(from) },
		MaxClients: func() int { return perRank * int(s.worldSize.Load()) },
		Warn:       s.warnOfStore,
	})
}

// grown hears how many ranks there are, each of which may have some connections to the store.
func (s *share) grown(worldSize int) {
	s.worldSize.Store(int64(worldSize))
	if kept, ok := s.store.(*keeper.Store); ok {
		kept.Bound(perRank * worldSize)
	}
}

// perRank is how many connections to the store a rank may have. One of torch has one, and another for each of its process groups
// (ProcessGroupNCCL clones the store), of which Megatron makes some dozens.
const perRank = 512

// warnOfStore leaves out ranks that went away: how they ended is told.
func (s *share) warnOfStore(err error) {
	if !errors.Is(err, tcpstore.ErrVanished) {
		s.agent.Warn(fmt.Errorf("store of job %s: %w", s.job, err))
	}
}

// patienceToMeet is how long nothing may happen at a store before the coordinator is told who is there.
const patienceToMeet = 10 * time.Second

// watchStore tells the coordinator who has come to an attempt's store, and who waits, when that has not changed for a while and is
// not what it should be. It ends with the store.
func (s *share) watchStore(store store, o job.Prepare) {
	quiet := time.NewTimer(patienceToMeet)
	defer quiet.Stop()
	told := false
	for {
		select {
		case _, open := <-store.Changes():
			if !open {
				return
			}
			quiet.Reset(patienceToMeet)
		case <-quiet.C:
			m := meeting(store.Status().Clients, int(s.worldSize.Load()))
			if told || m.Came > 0 {
				s.report(wire.Met{Unit: o.Unit, Attempt: o.Attempt, Meeting: m})
				told = m.Came > 0
			}
		}
	}
}

// meeting has the processes of a store; none when there is none, and when all ranks are there and none waits.
func meeting(clients []tcpstore.ClientStatus, ranks int) (m job.Meeting) {
	seen, waiters := map[job.Client]bool{}, map[string]map[job.Client]bool{}
	for _, c := range clients {
		if !c.Spoke {
			continue
		}
		p := job.Client{Addr: c.Peer.Addr(), PID: c.PID}
		if p.PID == 0 || !seen[p] { // torch before 2.5 does not say whose a connection is
			seen[p] = true
			m.Clients = append(m.Clients, p)
		}
		if c.Missing > 0 && len(c.Waiting) > 0 && p.PID != 0 {
			key := c.Waiting[0]
			if waiters[key] == nil {
				waiters[key] = map[job.Client]bool{}
			}
			waiters[key][p] = true
		}
	}
	if len(waiters) == 0 && len(m.Clients) >= ranks {
		return job.Meeting{}
	}
	for _, key := range slices.Sorted(maps.Keys(waiters)) {
		if len(waiters[key]) > len(waiters[m.Key]) {
			m.Key = key
		}
	}
	for i, p := range m.Clients {
		if waiters[m.Key][p] {
			m.Clients[i].Key = m.Key
		}
	}
	m.Came, m.Waiting = len(m.Clients), len(waiters[m.Key])
	return m
}

// admit says who may use the store.
func (s *share) admit(addrs []netip.Addr) {
	own := s.agent.session.Node.Addr
	s.peers.Store(tcpstore.NewPeers(addrs, own))
	if kept, ok := s.store.(*keeper.Store); ok {
		kept.Admit(addrs, own)
	}
}

func (s *share) closeStore() {
	if s.store != nil {
		s.store.Close()
		s.store = nil
	}
}
