package election

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/quorum"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/rendezvous/internal/log"
)

// A cluster may have several coordinators, its peers. Each keeps the log in a file of its own, and
// one of them leads. At the first start all peers must be there. The first peer of the list then
// founds the log, so that there are never two logs. After that a majority is enough. A restarted
// peer is the same voter as before. A peer that has lost its file is a new voter, and so is a peer
// whose address is new in the list. A new voter replaces the former voter at its address once the
// leader has contact with the new voter.

// disk keeps the log of this peer's voter in the peer's file.
type disk struct{ *Participant }

// ErrClosed says that the participant is closing.
var ErrClosed = errors.New("it is leaving")

// Keep waits for the disk. Meanwhile this peer is silent, so that another peer leads if the disk
// hangs. After a lease Keep fails, and this peer ends.
func (d disk) Keep(state []byte, changes [][]byte) error {
	done := make(chan error, 1)
	late := time.NewTimer(d.cfg.Lease)
	defer late.Stop()
	d.cfg.File.Keep(log.Round{Snapshot: state, Entries: changes, Durable: true, Firm: true}, func(err error) { done <- err })
	select {
	case err := <-done:
		return err
	case <-late.C:
		return fmt.Errorf("the disk has not written the coordinator's log for %v", d.cfg.Lease)
	case <-d.closed.Done():
		return ErrClosed
	}
}

// Resume continues with this peer's copy of the log, if there is one, and contacts the other peers.
func (p *Participant) Resume() error {
	past, err := p.cfg.File.Past()
	if err != nil {
		return err
	}
	open := quorum.Follow
	if past.Snapshot != nil {
		open = func(cfg quorum.Config) (*quorum.Log, error) { return quorum.Resume(cfg, past.Snapshot, past.Entries) }
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.start(open); err != nil {
		return err
	}
	p.busy.Go(p.meetPeers)
	return nil
}

// OtherPeers returns the addresses of the other peers. The leader's address comes first if it is
// known.
func (p *Participant) OtherPeers() []string {
	others := slices.DeleteFunc(slices.Clone(p.cfg.Peers), func(addr string) bool { return addr == p.cfg.Addr })
	if log := p.quorumLog(); log != nil {
		leader := log.Leader().Addr // read only once, because the leader may change meanwhile
		if i := slices.Index(others, leader); i > 0 {
			others = slices.Insert(slices.Delete(others, i, i+1), 0, leader)
		}
	}
	return others
}

// meetPeers contacts the other peers, and repeats this for as long as no leader is known.
func (p *Participant) meetPeers() {
	last := ""
	for wait := p.cfg.Lease / 100; ; wait = min(2*wait, p.cfg.Lease/PeerElectionsPerLease) {
		if missing := p.meetPeersOnce(); missing != last && missing != "" {
			last = missing
			p.cfg.Note(missing)
		}
		for led := true; led; led = p.quorumLog().Leader().ID != 0 {
			select {
			case <-time.After(wait):
			case <-p.closed.Done():
				return
			}
		}
	}
}

// meetPeersOnce founds the log if this peer is the first in the list, and if all peers are there
// and have no log. It returns what is missing, as a text.
func (p *Participant) meetPeersOnce() (missing string) {
	type answer struct {
		addr     string
		greeting *pb.Greeting
		err      error
	}
	others := p.OtherPeers()
	answers := make(chan answer, len(others))
	for _, addr := range others {
		go func() {
			g, err := p.Greet(addr, min(p.cfg.Lease/4, wire.DialLimit))
			answers <- answer{addr, g, err}
		}()
	}
	var voters []quorum.Voter
	var mismatches []string
	silent := map[string]bool{}
	begun := p.quorumLog().Begun()
	for range others {
		a := <-answers
		begun = begun || a.greeting.GetBegun()
		switch why := wire.Different(a.greeting.GetFacts(), p.cfg.Facts); {
		case a.err != nil:
			silent[a.addr] = true
		case why == "" && a.greeting.GetVoter().GetAddr() != a.addr:
			mismatches = append(mismatches, a.addr+" calls itself "+wire.Plain(a.greeting.GetVoter().GetAddr())+"; see its --listen")
		case why != "":
			mismatches = append(mismatches, a.addr+" is not a coordinator of the same cluster: "+why)
		default:
			voters = append(voters, wire.ToVoter(a.greeting.GetVoter()))
		}
	}
	names := strings.Join(slices.Sorted(maps.Keys(silent)), ", ")
	switch {
	case len(mismatches) > 0:
		slices.Sort(mismatches)
		return strings.Join(mismatches, "; ")
	case begun && 2*len(silent) < len(p.cfg.Peers):
		return "" // an election is under way
	case begun:
		return "waits for a majority of the coordinators: " + names + " cannot be reached"
	case len(silent) > 0:
		return "waits for all other coordinators, as a first start must: " + names + " cannot be reached yet"
	case p.cfg.Addr == p.cfg.Peers[0]:
		p.quorumLog().Found(voters...)
	}
	return ""
}
