package rendezvous

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/quorum"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/rendezvous/internal/depot"
	"github.com/golaunch/golaunch/rendezvous/internal/election"
	"github.com/golaunch/golaunch/rendezvous/internal/server"
)

// CandidateConfig configures a [Candidate]. Listen, Dial and Note may be nil.
type CandidateConfig struct {
	// Node is the name of this process's node. Addr is the HOST:PORT where the process already
	// listens; it is empty if the process does not listen yet.
	Node, Addr string
	// Home is the HOST:PORT where the nodes of the job first meet. The leader looks Home up
	// repeatedly, and invites the process that listens there to join the job. Home is empty in the
	// process that listens there, and also if the nodes have no fixed place to meet.
	Home string
	// Peers are the addresses of a cluster's coordinators, HOST:PORT. All coordinators have the
	// same list, in the same order, and it contains Addr. For a job, Peers is empty. Facts are the
	// options that must be the same for all coordinators, by flag name. File keeps this
	// coordinator's copy of the log.
	Peers []string
	Facts map[string]string
	File  *File
	// Workspaces is as in [Config]. The leader copies its workspaces into the directory.
	Workspaces string
	// Lease is the lease of the coordinator.
	Lease time.Duration
	// Server and Client are nil in tests only.
	Server, Client *tls.Config
	// Listen listens at an address of this node, on a free port. Dial connects to another node.
	// Both use TCP when nil.
	Listen func(netip.Addr) (net.Listener, error)
	Dial   func(ctx context.Context, addr string) (net.Conn, error)
	Warn   func(error)
	// Note gets messages that say what the peers wait for.
	Note func(string)
}

// Candidate is a process that may be elected as coordinator. It is for a job whose nodes all run
// the same command, or for a cluster with several coordinators. It listens for the other
// candidates, keeps the log that they share, and reports when it was elected.
type Candidate struct {
	cfg      CandidateConfig
	election *election.Participant
	terms    chan Term
	// coordinator is the coordinator in this process; nil if there is none.
	coordinator atomic.Pointer[Coordinator]
}

// Term is a term for which this process was elected. During the term this process coordinates with
// [Coordinator.Run].
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
	s := &Candidate{cfg: cfg, terms: make(chan Term, 1)}
	s.election = election.New(election.Config{
		Node: cfg.Node, Addr: cfg.Addr, Peers: cfg.Peers, Facts: cfg.Facts, File: cfg.File, Lease: cfg.Lease,
		Client: cfg.Client, Listen: cfg.Listen, Dial: cfg.Dial, Warn: cfg.Warn, Note: cfg.Note,
		Serve:       s.Serve,
		Coordinates: func() bool { return s.coordinator.Load() != nil },
		Elected: func(term *quorum.Term) {
			select {
			case <-s.terms: // the term is over
			default:
			}
			s.terms <- Term{term}
		},
		VotersChanged: func() {
			if c := s.coordinator.Load(); c != nil {
				go c.post(c.succession.votersChanged)
			}
		},
	})
	return s
}

// Terms returns a channel with each term for which this process was elected.
func (s *Candidate) Terms() <-chan Term { return s.terms }

// Close ends the candidacy. If a coordinator in this process shares its log, it is then deposed.
func (s *Candidate) Close() { s.election.Close() }

// Transfer makes another process coordinate. It first waits until departing agents have left, so
// that the remaining processes are a majority. It returns false if no other process can take over.
// If it returns true, the caller must call Close.
func (s *Candidate) Transfer() bool {
	if c := s.coordinator.Load(); c != nil {
		if stays := c.succession.awaitDepartures(wire.GoodbyeLimit); !stays || !s.Shared() {
			return false
		}
	}
	s.election.Transfer()
	return true
}

// Shared says that another process also has the log and can take over.
func (s *Candidate) Shared() bool { return len(s.election.Others()) > 0 }

// Open listens at an address of this node and waits for a coordinator that wants this process as a
// voter. It returns this process as a voter, or the zero Voter if listening fails.
func (s *Candidate) Open(at netip.Addr) quorum.Voter { return s.election.Open(at) }

// Learn stores the addresses where the coordinator is, or may be elected.
func (s *Candidate) Learn(addrs []string) { s.election.Learn(addrs) }

// Serve serves agents, other voters and the clients of a cluster at a listener until Close. The
// error is the listener's, or says why this process could not read or write its copy of a cluster's
// log.
func (s *Candidate) Serve(l net.Listener) error {
	srv := server.New(s.cfg.Server, s.cfg.Warn, s.election.HoldHandshake)
	pb.RegisterRendezvousServer(srv, candidateAgentService{candidate: s, refusals: srv.Refusals})
	pb.RegisterQuorumServer(srv, voterService{Service: election.Service{Participant: s.election}, candidate: s})
	if len(s.cfg.Peers) > 0 {
		pb.RegisterClusterServer(srv, candidateClientService{candidate: s})
		if err := s.election.Resume(); err != nil {
			return errors.Join(err, l.Close())
		}
		defer s.Close()
	}
	err := srv.Serve(l, s.election.Closed())
	if failed := s.election.Err(); !errors.Is(failed, election.ErrClosed) {
		err = errors.Join(err, failed)
	}
	return err
}

// found begins a log that this process shares with other voters, and returns the first term.
func (s *Candidate) found() (*quorum.Term, error) {
	if err := s.election.Found(); err != nil {
		return nil, err
	}
	select {
	case term := <-s.terms:
		return term.term, nil
	case <-s.election.Closed():
		return nil, election.ErrClosed
	}
}

// coordinate serves at a listener until ctx ends, and coordinates the cluster in each term for
// which this peer is elected. When ctx ends, another peer leads at once, if the other peers have a
// majority. The errors are the same as for [Candidate.Serve].
func (s *Candidate) coordinate(ctx context.Context, l net.Listener, cfg Config) error {
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	for {
		select {
		case term := <-s.terms:
			s.cfg.Note(s.cfg.Addr + " leads the cluster from now on")
			cfg.Term = &term
			if _, err := NewCoordinator(cfg).Run(ctx); errors.Is(err, ErrDeposed) {
				s.cfg.Note(s.cfg.Addr + " no longer leads the cluster")
			} else if err != nil {
				s.Close()
				return errors.Join(err, <-served)
			}
		case err := <-served:
			return err
		case <-ctx.Done():
			transferred := make(chan struct{})
			go func() {
				defer close(transferred)
				s.Transfer()
			}()
			select {
			case <-transferred:
			case <-time.After(2 * s.cfg.Lease / election.PeerElectionsPerLease): // this peer's disk hangs
			}
			s.Close()
			return <-served
		}
	}
}

// await returns the coordinator in this process, or an error with the places where the coordinator
// may be.
func (s *Candidate) await(ctx context.Context, caller election.Caller) (*Coordinator, error) {
	if err := s.election.AwaitCoordinator(ctx, caller); err != nil {
		return nil, err
	}
	if c := s.coordinator.Load(); c != nil {
		return c, nil
	}
	return nil, s.election.Elsewhere()
}

// candidateAgentService serves agents if the coordinator is in this process. Otherwise it tells
// agents where the coordinator is.
type candidateAgentService struct {
	pb.UnimplementedRendezvousServer
	candidate *Candidate
	refusals  *server.Refusals
}

func (s candidateAgentService) Join(stream pb.Rendezvous_JoinServer) error {
	h, err := receiveHello(stream, s.refusals)
	if err != nil {
		return err
	}
	c, err := s.candidate.await(stream.Context(), s.candidate.election.Agent(h))
	if err != nil {
		return err
	}
	return agentService{c: c, refusals: s.refusals}.serve(stream, h)
}

func (s candidateAgentService) Deliver(stream pb.Rendezvous_DeliverServer) error {
	c, err := s.candidate.await(stream.Context(), s.candidate.election.Client())
	if err != nil {
		return err
	}
	return agentService{c: c, refusals: s.refusals}.Deliver(stream)
}

func (s candidateAgentService) Fetch(stream pb.Rendezvous_FetchServer) error {
	c, err := s.candidate.await(stream.Context(), s.candidate.election.Client())
	if err != nil {
		return err
	}
	return agentService{c: c, refusals: s.refusals}.Fetch(stream)
}

// candidateClientService serves clients of a cluster if the coordinator is in this process.
// Otherwise it tells clients where the coordinator is.
type candidateClientService struct {
	pb.UnimplementedClusterServer
	candidate *Candidate
}

func (s candidateClientService) Submit(stream pb.Cluster_SubmitServer) error {
	return s.call(stream.Context(), func(c clientService) error { return c.Submit(stream) })
}

func (s candidateClientService) Offer(stream pb.Cluster_OfferServer) error {
	return s.call(stream.Context(), func(c clientService) error { return c.Offer(stream) })
}

func (s candidateClientService) Watch(q *pb.WatchRequest, stream pb.Cluster_WatchServer) error {
	return s.call(stream.Context(), func(c clientService) error { return c.Watch(q, stream) })
}

func (s candidateClientService) Inquire(stream pb.Cluster_InquireServer) error {
	return s.call(stream.Context(), func(c clientService) error { return c.Inquire(stream) })
}

func (s candidateClientService) Status(q *pb.StatusRequest, stream pb.Cluster_StatusServer) error {
	return s.call(stream.Context(), func(c clientService) error { return c.Status(q, stream) })
}

func (s candidateClientService) Stop(ctx context.Context, q *pb.StopRequest) (a *pb.StopReply, err error) {
	err = s.call(ctx, func(c clientService) error { a, err = c.Stop(ctx, q); return err })
	return a, err
}

func (s candidateClientService) Forward(ctx context.Context, q *pb.ForwardRequest) (a *pb.ForwardReply, err error) {
	err = s.call(ctx, func(c clientService) error { a, err = c.Forward(ctx, q); return err })
	return a, err
}

func (s candidateClientService) Drain(ctx context.Context, q *pb.DrainRequest) (a *pb.DrainReply, err error) {
	err = s.call(ctx, func(c clientService) error { a, err = c.Drain(ctx, q); return err })
	return a, err
}

func (s candidateClientService) call(ctx context.Context, f func(clientService) error) error {
	c, err := s.candidate.await(ctx, s.candidate.election.Client())
	if err != nil {
		return err
	}
	return f(clientService{c: c})
}

// voterService answers other voters.
type voterService struct {
	election.Service
	candidate *Candidate
}

// Invite asks the coordinator in this process to give up its job for the job of the invitation.
// Without a coordinator there is nothing to give up: this process's agent is about to join that
// job, or has joined it.
func (s voterService) Invite(_ context.Context, i *pb.Invitation) (*pb.Greeting, error) {
	c := s.candidate.coordinator.Load()
	if c == nil {
		return &pb.Greeting{}, nil
	}
	return ask(c, func() (*pb.Greeting, error) { return &pb.Greeting{}, c.succession.invited(i) })
}

// Keep receives a copy of a workspace, which this process needs once it coordinates.
func (s voterService) Keep(stream pb.Quorum_KeepServer) error {
	return depot.New(s.candidate.cfg.Workspaces).TakeIn(stream)
}
