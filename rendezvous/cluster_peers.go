package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/quorum"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/rendezvous/internal/log"
)

// A cluster may have several coordinators, its peers, each of which keeps the log in a file of its own; one of them leads. They found the log
// when all of them are there for the first time: the first of the list does, so that there are never two. From then on a majority will do. A
// peer that is started again is the same voter. One whose file is gone is another one, and takes the place of the voter at its address as
// soon as who leads hears of it; so does the peer of a new address, when the list has changed.

// disk is a peer's file as that of a voter.
type disk struct{ *Candidate }

var errLeaving = errors.New("it is leaving")

// Keep waits for the disk. One that hangs keeps this peer from all it might say, so that another one leads; after a lease this one ends.
func (d disk) Keep(state []byte, changes [][]byte) error {
	done := make(chan error, 1)
	late := time.NewTimer(d.cfg.Lease)
	defer late.Stop()
	d.cfg.File.Keep(log.Round{Snapshot: state, Entries: changes, Durable: true, Firm: true}, func(err error) { done <- err })
	select {
	case err := <-done:
		return err
	case <-late.C:
		return fmt.Errorf("the disk has not kept the coordinator's log for %v", d.cfg.Lease)
	case <-d.closed.Done():
		return errLeaving
	}
}

// coordinate has a peer serve at a listener, and coordinate the cluster as cfg says whenever that is its turn, until ctx ends: another leads
// then at once, if there is a majority without this one. Note hears whose turn it is. The error is as that of [Candidate.Serve].
func (s *Candidate) coordinate(ctx context.Context, l net.Listener, cfg Config) error {
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	for {
		select {
		case term := <-s.terms:
			s.cfg.Note(s.cfg.Addr + " leads the cluster from now on")
			cfg.Term = &term
			if _, err := NewCoordinator(cfg).Run(ctx); errors.Is(err, ErrDeposed) {
				s.cfg.Note(s.cfg.Addr + " leads the cluster no more")
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
			case <-time.After(2 * s.cfg.Lease / electionsOfPeers): // its disk hangs
			}
			s.Close()
			return <-served
		}
	}
}

// resume has this peer go on with its part of the log, or begin with none, and meet the others.
func (s *Candidate) resume() error {
	past, err := s.cfg.File.Past()
	if err != nil {
		return err
	}
	begin := quorum.Follow
	if past.Snapshot != nil {
		begin = func(cfg quorum.Config) (*quorum.Log, error) { return quorum.Resume(cfg, past.Snapshot, past.Entries) }
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.start(begin); err != nil {
		return err
	}
	s.busy.Go(s.assemble)
	return nil
}

// fellows are the other peers, the one first that leads if it is known.
func (s *Candidate) fellows() []string {
	others := slices.DeleteFunc(slices.Clone(s.cfg.Peers), func(addr string) bool { return addr == s.cfg.Addr })
	if log := s.logged(); log != nil {
		leads := log.Leader().Addr
		slices.SortStableFunc(others, func(a, b string) int {
			switch leads {
			case a:
				return -1
			case b:
				return 1
			}
			return 0
		})
	}
	return others
}

// coordinators are the peers, this one first, which leads, and those that do not answer it; none for a cluster that has no other.
func (c *Coordinator) coordinators() (all, silent []string) {
	if c.cfg.Candidate == nil || c.sole != nil {
		return nil, nil
	}
	all = append([]string{c.cfg.Candidate.cfg.Addr}, c.cfg.Candidate.fellows()...)
	for addr, absent := range c.absent {
		if absent {
			silent = append(silent, addr)
		}
	}
	return all, silent
}

// assemble meets the other peers once, and again for as long as this one knows of nobody who leads.
func (s *Candidate) assemble() {
	told := ""
	for wait := s.cfg.Lease / 100; ; wait = min(2*wait, s.cfg.Lease/electionsOfPeers) {
		if why := s.meetPeers(); why != told && why != "" {
			told = why
			s.cfg.Note(why)
		}
		for led := true; led; led = s.logged().Leader().ID != 0 {
			select {
			case <-time.After(wait):
			case <-s.closed.Done():
				return
			}
		}
	}
}

// meetPeers has the first of the peers found the log when all are there and new, and each hear of the others. It returns what is waited for.
func (s *Candidate) meetPeers() (why string) {
	type answer struct {
		addr     string
		greeting *pb.Greeting
		err      error
	}
	fellows := s.fellows()
	answers := make(chan answer, len(fellows))
	for _, addr := range fellows {
		go func() {
			g, err := s.meet(addr, min(s.cfg.Lease/4, wire.DialLimit))
			answers <- answer{addr, g, err}
		}()
	}
	var fresh []quorum.Voter
	var others []string
	missing := map[string]bool{}
	begun := s.logged().Begun()
	for range fellows {
		a := <-answers
		begun = begun || a.greeting.GetBegun()
		switch why := wire.Different(a.greeting.GetFacts(), s.cfg.Facts); {
		case a.err != nil:
			missing[a.addr] = true
		case why == "" && a.greeting.GetVoter().GetAddr() != a.addr:
			others = append(others, a.addr+" calls itself "+wire.Plain(a.greeting.GetVoter().GetAddr())+"; see its --listen")
		case why != "":
			others = append(others, a.addr+" is not a coordinator of the same cluster: "+why)
		default:
			fresh = append(fresh, wire.ToVoter(a.greeting.GetVoter()))
		}
	}
	switch {
	case len(others) > 0:
		slices.Sort(others)
		return strings.Join(others, "; ")
	case begun && 2*len(missing) < len(s.cfg.Peers):
		return "" // an election is under way
	case begun:
		return "waits for a majority of the coordinators: " + strings.Join(slices.Sorted(maps.Keys(missing)), ", ") + " cannot be reached"
	case len(missing) > 0:
		return "waits for the other coordinators, all of which must come for the first time: " +
			strings.Join(slices.Sorted(maps.Keys(missing)), ", ") + " cannot be reached yet"
	case s.cfg.Addr == s.cfg.Peers[0]:
		s.logged().Found(fresh...)
	}
	return ""
}

// peered begins a term of a cluster that has several coordinators.
func (c *Coordinator) peered() {
	if c.term == nil || c.cfg.Candidate == nil || c.sole != nil {
		return
	}
	c.want = c.term.Voters
	for _, v := range c.want {
		c.peers[v.Addr] = v
	}
	c.repeer()
	for _, addr := range c.cfg.Candidate.fellows() {
		go c.visit(addr)
	}
}

// visitsPerLease is how often who leads asks each of the other peers who it is.
const visitsPerLease = 6

// visit sees time and again who a peer is, which votes from now on in place of the one that was at its address, and whether it is there.
func (c *Coordinator) visit(addr string) {
	s := c.cfg.Candidate
	for {
		g, err := s.meet(addr, min(s.cfg.Lease/4, wire.DialLimit))
		v := wire.ToVoter(g.GetVoter())
		there := err == nil && v.Addr == addr && wire.Different(g.GetFacts(), s.cfg.Facts) == ""
		c.post(func() {
			if c.absent[addr] = !there; there && c.peers[addr] != v {
				c.peers[addr] = v
				c.repeer()
			}
		})
		select {
		case <-time.After(s.cfg.Lease / visitsPerLease):
		case <-c.done:
			return
		}
	}
}

// repeer has the log kept by the peers, once each of them is known.
func (c *Coordinator) repeer() {
	want := []quorum.Voter{c.cfg.Candidate.voter}
	for _, addr := range c.cfg.Candidate.cfg.Peers {
		v, known := c.peers[addr]
		if !known {
			return
		}
		if v.ID != c.cfg.Candidate.voter.ID {
			want = append(want, v)
		}
	}
	if !slices.Equal(want, c.want) {
		c.want = want
		c.term.Reconfigure(want)
	}
}

// clusterServer serves clients if the coordinator is here, and tells them where else it may be.
type clusterServer struct {
	pb.UnimplementedClusterServer
	candidate *Candidate
}

func (s clusterServer) Submit(stream pb.Cluster_SubmitServer) error {
	return s.led(stream.Context(), func(c clientService) error { return c.Submit(stream) })
}

func (s clusterServer) Watch(q *pb.WatchRequest, stream pb.Cluster_WatchServer) error {
	return s.led(stream.Context(), func(c clientService) error { return c.Watch(q, stream) })
}

func (s clusterServer) Inquire(stream pb.Cluster_InquireServer) error {
	return s.led(stream.Context(), func(c clientService) error { return c.Inquire(stream) })
}

func (s clusterServer) Status(q *pb.StatusRequest, stream pb.Cluster_StatusServer) error {
	return s.led(stream.Context(), func(c clientService) error { return c.Status(q, stream) })
}

func (s clusterServer) Stop(ctx context.Context, q *pb.StopRequest) (a *pb.StopReply, err error) {
	err = s.led(ctx, func(c clientService) error { a, err = c.Stop(ctx, q); return err })
	return a, err
}

func (s clusterServer) Forward(ctx context.Context, q *pb.ForwardRequest) (a *pb.ForwardReply, err error) {
	err = s.led(ctx, func(c clientService) error { a, err = c.Forward(ctx, q); return err })
	return a, err
}

func (s clusterServer) Drain(ctx context.Context, q *pb.DrainRequest) (a *pb.DrainReply, err error) {
	err = s.led(ctx, func(c clientService) error { a, err = c.Drain(ctx, q); return err })
	return a, err
}

func (s clusterServer) led(ctx context.Context, do func(clientService) error) error {
	c, err := s.candidate.lead(ctx, s.candidate.question())
	if err != nil {
		return err
	}
	return do(clientService{c: c})
}
