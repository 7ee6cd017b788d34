package rendezvous

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/quorum"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/rendezvous/internal/server"
)

// CandidateConfig is what a [Candidate] must know. Listen, Dial and Note may be nil.
type CandidateConfig struct {
	// Node is this process's, and Addr where it listens already, HOST:PORT; empty for one that does not yet.
	Node, Addr string
	// Home is where the nodes of the job first meet, HOST:PORT, of which the host is looked up anew each time: who leads the job calls
	// who listens there to join it. It is empty for the node that listens there itself, and where it is no fixed place.
	Home string
	// Peers are where those listen that may coordinate a cluster, HOST:PORT, Addr among them, in the same order for each; none for a job.
	// Facts are what must be the same for all of them, by flag name, and File keeps this one's part of the log.
	Peers []string
	Facts map[string]string
	File  *File
	// Lease is the coordinator's.
	Lease time.Duration
	// Server and Client are nil in tests alone.
	Server, Client *tls.Config
	// Listen takes an address of this node, at a port that is free, and Dial makes a connection to another node's; TCP when nil.
	Listen func(netip.Addr) (net.Listener, error)
	Dial   func(ctx context.Context, addr string) (net.Conn, error)
	Warn   func(error)
	// Note hears what the peers wait for.
	Note func(string)
}

// Candidate is this process as one of those that may come to coordinate a job of which every node runs the same command, or a cluster that
// has several coordinators. It listens for the others, keeps what they agree on, and says when it was elected.
type Candidate struct {
	cfg CandidateConfig
	// voter has no address before the candidate listens, and does not change from then on.
	voter quorum.Voter
	terms chan Term
	// head is the coordinator in this process, if there is one.
	head atomic.Pointer[Coordinator]
	// led tells those who ask for the coordinator that there may be one.
	led broadcast
	// asking counts those who ask.
	asking atomic.Int64
	closed context.Context
	close  context.CancelFunc
	busy   sync.WaitGroup

	// voters are as the log has them, this one first, and known are the addresses of voters as this process's agent has heard of them.
	voters atomic.Pointer[[]quorum.Voter]
	known  atomic.Pointer[[]string]
	peers  peers
	intake intake

	mu  sync.Mutex
	log *quorum.Log
}

// Term is one for which this process was elected: it coordinates the job from now on, with [Coordinator.Run].
type Term struct{ term *quorum.Term }

// NewCandidate returns a candidate that does not listen yet.
func NewCandidate(cfg CandidateConfig) *Candidate {
	if cfg.Listen == nil {
		cfg.Listen = func(at netip.Addr) (net.Listener, error) {
			return net.Listen("tcp", netip.AddrPortFrom(at, 0).String())
		}
	}
	if cfg.Note == nil {
		cfg.Note = func(string) {}
	}
	if cfg.Dial == nil {
		cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		}
	}
	s := &Candidate{
		cfg: cfg, voter: quorum.Voter{ID: 1 + rand.Uint64N(1<<62), Name: cfg.Node, Addr: cfg.Addr},
		terms: make(chan Term, 1),
	}
	s.closed, s.close = context.WithCancel(context.Background())
	s.peers.candidate, s.peers.lanes = s, map[way]*lane{}
	return s
}

// Terms has each term for which this process was elected.
func (s *Candidate) Terms() <-chan Term { return s.terms }

// Close ends the candidacy, which deposes a coordinator that has others to follow it.
func (s *Candidate) Close() {
	s.close()
	if log := s.logged(); log != nil {
		log.Close()
	}
	s.busy.Wait()
}

// Transfer has another process coordinate the job in place of the coordinator here, when the agents have left that are about to: those
// that stay are then a majority. It is false when none stays, or knows enough. Close follows if it is true.
func (s *Candidate) Transfer() bool {
	if c := s.head.Load(); c != nil {
		if stays := c.awaitDepartures(wire.GoodbyeLimit); !stays || !s.Shared() {
			return false
		}
	}
	if log := s.logged(); log != nil {
		over := make(chan struct{})
		log.Transfer(func(error) { close(over) }) // it is given up here all the same
		<-over
	}
	return true
}

func (s *Candidate) logged() *quorum.Log {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log
}

// Shared says that others know what the coordinator here knows, and one of them can take its place.
func (s *Candidate) Shared() bool { return len(s.others()) > 0 }

// Serve takes agents and other voters, and clients of a cluster, from a listener until Close. Another error than of the listener is that this
// one's part of a cluster's log could not be read or kept.
func (s *Candidate) Serve(l net.Listener) error {
	srv := server.New(s.cfg.Server, s.cfg.Warn, s.await)
	pb.RegisterRendezvousServer(srv, joinServer{candidate: s, refusals: srv.Refusals})
	pb.RegisterQuorumServer(srv, quorumServer{candidate: s})
	if len(s.cfg.Peers) > 0 {
		pb.RegisterClusterServer(srv, clusterServer{candidate: s})
		if err := s.resume(); err != nil {
			return errors.Join(err, l.Close())
		}
		defer s.Close()
	}
	err := srv.Serve(l, s.closed.Done())
	if log := s.logged(); log != nil && !errors.Is(log.Err(), errLeaving) {
		err = errors.Join(err, log.Err())
	}
	return err
}

// Open has the candidate listen at an address of this node, and wait for a coordinator that wants this voter. It is its name for others.
func (s *Candidate) Open(at netip.Addr) quorum.Voter {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Err() != nil {
		return quorum.Voter{}
	}
	if err := s.ready(at); err != nil {
		s.cfg.Warn(fmt.Errorf("node %s cannot take over from the coordinator: %w", s.cfg.Node, err))
		return quorum.Voter{}
	}
	return s.voter
}

// ready has the candidate listen, and wait, unless it does, or founds a log.
func (s *Candidate) ready(at netip.Addr) error {
	if s.voter.Addr == "" {
		l, err := s.cfg.Listen(at)
		if err != nil {
			return err
		}
		s.voter.Addr = l.Addr().String()
		s.busy.Go(func() {
			if err := s.Serve(l); err != nil {
				s.cfg.Warn(err)
			}
		})
	}
	if s.log != nil || s.head.Load() != nil {
		return nil
	}
	return s.start(quorum.Follow)
}

// Learn hears where the coordinator is, or may come to be.
func (s *Candidate) Learn(addrs []string) { s.known.Store(&addrs) }

// found begins the log here, and leads at once.
func (s *Candidate) found() (*quorum.Term, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.log == nil {
		if err := s.start(quorum.Follow); err != nil {
			return nil, err
		}
	}
	s.log.Found()
	select {
	case term := <-s.terms:
		return term.term, nil
	case <-s.closed.Done():
		return nil, errLeaving
	}
}

// electionsPerLease has a new coordinator elected within a third of a lease, unless a vote is split, and an old one know as early that
// it is none. Among peers, which do nothing else, it may be split once.
const (
	electionsPerLease = 6
	electionsOfPeers  = 12
)

func (s *Candidate) start(begin func(quorum.Config) (*quorum.Log, error)) error {
	cfg := quorum.Config{Self: s.voter, ElectionTimeout: s.cfg.Lease / electionsPerLease, Send: s.peers.send, Voted: s.voted, Led: s.led.tell}
	if len(s.cfg.Peers) > 0 {
		cfg.ElectionTimeout, cfg.Disk = s.cfg.Lease/electionsOfPeers, disk{s}
	}
	log, err := begin(cfg)
	if err != nil {
		return fmt.Errorf("cannot keep the coordinator's log: %w", err)
	}
	if s.log = log; s.voter.ID != log.Self().ID { // it was started again
		s.voter = log.Self()
	}
	s.busy.Go(func() {
		for {
			select {
			case r := <-log.Terms():
				select {
				case <-s.terms: // it is over
				default:
				}
				s.terms <- Term{r}
			case <-log.Ended():
				s.close()
				return
			case <-s.closed.Done():
				return
			}
		}
	})
	return nil
}

// voted hears who votes, and has the coordinator tell its agents.
func (s *Candidate) voted(voters []quorum.Voter) {
	s.voters.Store(&voters)
	if c := s.head.Load(); c != nil {
		go c.post(c.voted)
	}
}

// others are the voters but for this one.
func (s *Candidate) others() []quorum.Voter {
	if voters := s.voters.Load(); voters != nil {
		return (*voters)[1:]
	}
	return nil
}

// broadcast tells all who wait for it.
type broadcast struct {
	mu  sync.Mutex
	out chan struct{}
}

// next is closed by the next tell.
func (b *broadcast) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.out == nil {
		b.out = make(chan struct{})
	}
	return b.out
}

func (b *broadcast) tell() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.out != nil {
		close(b.out)
		b.out = nil
	}
}
