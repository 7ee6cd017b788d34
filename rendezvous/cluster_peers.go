package rendezvous

import (
	"slices"
	"time"

	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/quorum"
)

// coordinators are the addresses of a cluster's coordinators, this one first, and of those that do
// not answer it. A single coordinator has none.
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

// peerChecksPerLease is how often the leader asks each of the other peers who it is.
const peerChecksPerLease = 6

// watchPeer asks a peer again and again who it is. A new one votes instead of the one that was at
// its address.
func (s *succession) watchPeer(addr string) {
	cfg := s.candidate().cfg
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
		select {
		case <-time.After(cfg.Lease / peerChecksPerLease):
		case <-s.c.done:
			return
		}
	}
}

// updatePeers has the log kept by the peers, once each of them is known.
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
