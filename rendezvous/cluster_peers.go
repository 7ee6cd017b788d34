package rendezvous

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/quorum"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/internal/wire/session"
)

// coordinators returns the addresses of a cluster's coordinators, this one first, and the addresses
// of those that do not answer this one. It returns none if the cluster has a single coordinator.
func (s *succession) coordinators() (all, silent []string) {
	if s.candidate() == nil || s.c.onlyJob != nil {
		return nil, nil
	}
	all = append([]string{s.candidate().cfg.Addr}, s.candidate().election.OtherPeers()...)
	for addr, is := range s.silent {
		if is {
			silent = append(silent, addr)
		}
	}
	return all, silent
}

// lead begins a term of a cluster that has several coordinators.
func (s *succession) lead() {
	if s.term == nil || s.candidate() == nil || s.c.onlyJob != nil {
		return
	}
	s.want = s.term.Voters
	for _, v := range s.want {
		s.peers[v.Addr] = v
	}
	s.updatePeers()
	for _, addr := range s.candidate().election.OtherPeers() {
		go s.watchPeer(addr)
	}
}

// peerChecksPerLease is how often per lease the leader asks each other peer for its identity.
const peerChecksPerLease = 6

// watchPeer asks a peer repeatedly for its identity. A new peer votes instead of the former peer at
// its address.
func (s *succession) watchPeer(addr string) {
	cfg := s.candidate().cfg
	var copied copies
	for {
		g, err := s.candidate().election.Greet(addr, min(cfg.Lease/4, wire.DialLimit))
		v := wire.ToVoter(g.GetVoter())
		answers := err == nil && v.Addr == addr && wire.Different(g.GetFacts(), cfg.Facts) == ""
		s.c.post(func() {
			if s.silent[addr] = !answers; answers && s.peers[addr] != v {
				s.peers[addr] = v
				s.updatePeers()
			}
		})
		if answers {
			go s.copyWorkspaces(&copied, v)
		}
		select {
		case <-time.After(cfg.Lease / peerChecksPerLease):
		case <-s.c.done:
			return
		}
	}
}

// copyLimit bounds the time for a copy of a workspace. The largest workspace takes 14 minutes at
// 100 Mbit/s.
const copyLimit = 30 * time.Minute

// copies are the workspaces that a peer has received. given has their IDs.
type copies struct {
	peer  quorum.Voter
	given map[string]bool
	busy  atomic.Bool
}

// copyWorkspaces gives a peer copies of the workspaces of unfinished jobs, so that the peer has
// them when it leads. Only one call runs at a time.
func (s *succession) copyWorkspaces(c *copies, v quorum.Voter) {
	if !c.busy.CompareAndSwap(false, true) {
		return
	}
	defer c.busy.Store(false)
	if c.peer != v {
		c.peer, c.given = v, map[string]bool{}
	}
	uses, used := s.c.depot.Archives(), map[string]bool{}
	defer func() {
		for _, use := range uses {
			use.Close()
		}
	}()
	for _, use := range uses {
		if a, err := use.Load(); err == nil {
			used[a.ID] = true
		}
	}
	// The peer may remove a workspace that no job uses, and another job may use that workspace
	// again.
	maps.DeleteFunc(c.given, func(id string, _ bool) bool { return !used[id] })
	for _, use := range uses {
		a, err := use.Load()
		if err != nil || c.given[a.ID] {
			continue
		}
		err = s.candidate().election.Call(v.Addr, copyLimit, func(ctx context.Context, q pb.QuorumClient) error {
			stream, err := q.Keep(ctx)
			if err != nil {
				return err
			}
			return session.Offer(stream, a.Workspace, a.Reader(), func() {})
		})
		switch {
		case status.Code(err) == codes.Unavailable || status.Code(err) == codes.Canceled: // the peer comes back, or another peer leads
			return
		case err != nil:
			s.c.post(func() {
				s.c.warn(fmt.Errorf("%s has no copy of workspace %.12s, which jobs in the queue lose with %s: %w", v.Addr, a.ID, s.candidate().cfg.Addr, err))
			})
		}
		c.given[a.ID] = true
	}
}

// updatePeers makes the peers keep the log, once each of them is known.
func (s *succession) updatePeers() {
	self := s.candidate().election.Self()
	want := []quorum.Voter{self}
	for _, addr := range s.candidate().cfg.Peers {
		v, known := s.peers[addr]
		if !known {
			return
		}
		if v.ID != self.ID {
			want = append(want, v)
		}
	}
	if !slices.Equal(want, s.want) {
		s.want = want
		s.term.Reconfigure(want)
	}
}
