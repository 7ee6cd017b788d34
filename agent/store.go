package agent

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/golaunch/golaunch/internal/job"
	"github.com/golaunch/golaunch/rendezvous/tcpstore"
)

// prepare answers with the port of MASTER_PORT: where this node serves torch's store from now on, or that it keeps free for rank 0 to
// do so. The same question has the same answer, though other nodes may have come in the place of some.
func (s *share) prepare(o job.Prepare) job.Prepared {
	s.admit(o.Peers)
	if answer, ok := s.prepared[o.Unit]; ok && answer.Attempt == o.Attempt && answer.Err == "" {
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
	return choosePort(s.work.Task.MasterPort, func(port int) error {
		l, err := listen(s.agent.Session.Node.Addr.String(), port)
		if err != nil {
			return err
		}
		s.store, err = tcpstore.Serve(l, tcpstore.Options{
			Allow: func(from netip.Addr) bool { return s.peers.Load().has(from) },
			Warn:  s.warnOfStore,
		})
		if err == nil && o.Fresh {
			go s.watchStore(s.store, o)
		}
		return err
	})
}

// warnOfStore leaves out ranks that went away: how they ended is told.
func (s *share) warnOfStore(err error) {
	if !errors.Is(err, tcpstore.ErrVanished) {
		s.agent.Warn(fmt.Errorf("store of job %s: %w", s.job, err))
	}
}

const (
	// patienceToMeet is how long nothing may happen at a store before the coordinator is told who is there.
	patienceToMeet = 10 * time.Second
	// maxClients bounds what it is told, and maxKey a key in bytes.
	maxClients = 20_000
	maxKey     = 128
)

// watchStore tells the coordinator who has come to an attempt's store, and who waits, when that has not changed for a while and is
// not what it should be. It ends with the store.
func (s *share) watchStore(store *tcpstore.Store, o job.Prepare) {
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
			clients := meeting(store.Status().Clients, int(s.worldSize.Load()))
			if told || clients != nil {
				s.report(job.Met{Node: o.Node, Unit: o.Unit, Attempt: o.Attempt, Clients: clients})
				told = clients != nil
			}
		}
	}
}

// meeting are the clients of a store; nil when there is none, when all ranks are there and none waits, and when there are too many
// to tell of.
func meeting(clients []tcpstore.ClientStatus, ranks int) []job.Client {
	var all []job.Client
	waits := false
	seen, processes := map[job.Client]bool{}, map[job.Client]bool{}
	for _, c := range clients {
		if !c.Spoke {
			continue
		}
		client := job.Client{Addr: c.Peer.Addr(), PID: c.PID}
		processes[client] = true
		if c.Missing > 0 && len(c.Waiting) > 0 {
			client.Key, waits = c.Waiting[0][:min(len(c.Waiting[0]), maxKey)], true
		}
		if c.PID == 0 || !seen[client] {
			seen[client] = true
			all = append(all, client)
		}
	}
	if !waits && len(processes) >= ranks || len(all) > maxClients {
		return nil
	}
	return all
}

// admit says who may use the store.
func (s *share) admit(addrs []netip.Addr) { s.peers.Store(newPeers(addrs, s.agent.Session.Node.Addr)) }

func (s *share) closeStore() {
	if s.store != nil {
		s.store.Close()
		s.store = nil
	}
}

// peers are the machines that may use a store.
type peers struct {
	all      bool
	loopback bool
	addrs    map[netip.Addr]bool
}

// newPeers are those with the given addresses, or all when there is none. Who serves at a loopback address is reached from another.
func newPeers(addrs []netip.Addr, own netip.Addr) *peers {
	p := &peers{all: len(addrs) == 0, loopback: own.IsLoopback(), addrs: make(map[netip.Addr]bool, len(addrs))}
	for _, a := range addrs {
		p.addrs[a.Unmap().WithZone("")] = true
	}
	return p
}

func (p *peers) has(from netip.Addr) bool {
	from = from.Unmap().WithZone("")
	return p.all || p.addrs[from] || p.loopback && from.IsLoopback()
}
