package rendezvous

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/quorum"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/rendezvous/internal/election"
	"github.com/golaunch/golaunch/rendezvous/internal/server"
)

// succession makes sure that another process can take over from the coordinator.
//
// In a job whose nodes may all coordinate it, some nodes vote. They receive each entry of the log
// before its consequences are visible. With fewer than three nodes, only the coordinator's node
// votes, and no other node has the log. Once other nodes vote, the coordinator waits for a majority
// before it sends an order, or answers a heartbeat. So a coordinator that was replaced without its
// knowledge can give no orders and extend no lease.
//
// A succession belongs to the goroutine of Run.
type succession struct {
	c *Coordinator
	// exclusive says that no other process can have replaced this coordinator. Any goroutine may
	// read it.
	exclusive atomic.Bool
	// term is nil while no other process votes.
	term   *quorum.Term
	voters election.VoterSet
	// want are the processes that should vote, this process first. announced are the names of the
	// other voters in the newest message to people.
	want      []quorum.Voter
	announced string
	// established says that the job has run long enough for a takeover to be useful. The timer
	// establishes sets it, and is nil before ranks start.
	established bool
	establishes *time.Timer
	// inviting says that a goroutine is inviting the process at CandidateConfig.Home. invitation is
	// set once this coordinator gives up its job for another coordinator that has invited it.
	// invitation no longer changes once Run has returned.
	inviting   bool
	invitation *wire.ElsewhereError
	// peers are a cluster's other coordinators by address. silent are the addresses of peers that
	// do not answer.
	peers  map[string]quorum.Voter
	silent map[string]bool
	// departing are the streams of agents that have said goodbye, but whose nodes must vote until
	// other nodes vote instead.
	departing map[*server.AgentStream]bool
}

// ErrDeposed is the error of a coordinator that another coordinator may have replaced.
var ErrDeposed = errors.New("this node no longer coordinates the job: a majority of the nodes that could take over does not answer it")

// establishAfter is how long ranks run before the coordinator shares the log. If the first
// coordinator dies in this time, the job is lost. In return, a launch waits for no vote.
const establishAfter = time.Second

func newSuccession(c *Coordinator) *succession {
	return &succession{c: c, peers: map[string]quorum.Voter{}, silent: map[string]bool{}, departing: map[*server.AgentStream]bool{}}
}

// ousted returns a channel that is closed when another coordinator may exist.
func (s *succession) ousted() <-chan struct{} {
	if s.term == nil {
		return nil
	}
	return s.term.Over()
}

// candidate returns this process as a candidate. It returns nil if no other process can take over.
func (s *succession) candidate() *Candidate { return s.c.cfg.Candidate }

// offer notes that the node of an agent could vote, and tells the agent which processes vote.
func (s *succession) offer(m *member, v *pb.Voter) {
	if s.c.onlyJob == nil {
		s.sendVoters(m)
	}
	if s.c.onlyJob == nil || s.candidate() == nil || m.name == s.candidate().cfg.Node {
		return
	}
	if voter := wire.ToVoter(v); voter.ID != 0 && voter.Name == m.name {
		s.voters.Offer(voter)
	}
	s.sendVoters(m)
	s.update()
}

// replace makes another node vote instead of a node that has left. It also starts inviting the
// process at CandidateConfig.Home, which may have been on that node.
func (s *succession) replace(node string) {
	if s.candidate() != nil && s.c.onlyJob != nil && s.c.onlyJob.Result == nil {
		s.voters.Remove(node)
		s.update()
		s.invite()
	}
}

// update makes the nodes that should vote keep the log, and probes nodes that could vote.
func (s *succession) update() {
	if s.term == nil && (!s.established || len(s.c.members) < 3) || s.c.onlyJob.Result != nil {
		return
	}
	for v, any := s.voters.Next(); any; v, any = s.voters.Next() {
		go func() {
			err := s.candidate().election.Verify(v)
			s.c.post(func() { s.probed(v, err) })
		}()
	}
	want := append([]quorum.Voter{s.candidate().election.Self()}, s.voters.Others()...)
	if s.term == nil && len(want) == 1 || slices.Equal(want, s.want) {
		return
	}
	s.want = want
	for _, m := range s.c.members { // before these nodes vote, so that all agents know their addresses
		s.sendVoters(m)
	}
	if s.term == nil {
		s.replicate()
	}
	if s.term != nil {
		s.term.Reconfigure(want)
	}
}

func (s *succession) probed(v quorum.Voter, err error) {
	switch {
	case s.c.members[v.Name] == nil:
		s.voters.Left()
	case err != nil:
		s.c.warn(fmt.Errorf("node %s cannot keep the state of the job, and is asked again: %w", v.Name, err))
		if pause := s.voters.Failed(v, s.c.cfg.Lease); pause > 0 {
			time.AfterFunc(pause, func() {
				s.c.post(func() {
					s.voters.Resume()
					s.update()
				})
			})
		}
	default:
		s.voters.Succeeded(v)
	}
	s.update()
}

// replicate makes the voters keep the log from now on.
func (s *succession) replicate() {
	term, err := s.candidate().found()
	if err != nil {
		s.c.warn(fmt.Errorf("the job ends with this node: %w", err))
		return
	}
	s.term = term
	s.exclusive.Store(false)
	s.c.log.Move(quorumStorage{term})
}

// ranksStart establishes the job after establishAfter.
func (s *succession) ranksStart() {
	if s.candidate() == nil || s.c.onlyJob == nil || s.establishes != nil {
		return
	}
	s.establishes = time.AfterFunc(establishAfter, func() {
		s.c.post(func() {
			s.established = true
			s.update()
		})
	})
}

// takeOver continues with the voters of a lost coordinator.
func (s *succession) takeOver() {
	if s.term == nil || s.c.onlyJob == nil {
		return
	}
	s.voters.Adopt(s.term.Voters[1:])
	s.established = true
	time.AfterFunc(s.c.patience(), func() { s.c.post(s.replaceMissing) })
	s.update()
	s.invite()
}

// replaceMissing makes other nodes vote instead of nodes whose agents have not returned in time.
func (s *succession) replaceMissing() {
	for _, name := range s.voters.Names() {
		if s.c.members[name] == nil {
			s.replace(name)
		}
	}
}

// release releases an agent that has said goodbye. If the agent's node votes, the agent waits until
// other nodes vote instead. If most voters left at once, the rest would not be a majority.
func (s *succession) release(node string, l *server.AgentStream) {
	if s.term == nil || s.c.onlyJob == nil || s.c.onlyJob.Result != nil {
		s.c.log.Then(func() { l.Cut <- nil })
		return
	}
	s.departing[l] = true
	s.term.Release(node, func(err error) {
		if err != nil {
			return // another coordinator has to release the agent
		}
		go s.c.post(func() {
			delete(s.departing, l)
			s.c.log.Then(func() { l.Cut <- nil })
		})
	})
}

// awaitDepartures waits until no agent is about to leave, but no longer than the limit. It reports
// whether an agent stays whose job is not over.
func (s *succession) awaitDepartures(limit time.Duration) (stays bool) {
	late := time.After(limit)
	for {
		now, err := ask(s.c, func() (departures, error) { return s.departures(), nil })
		if err != nil || now.next == nil {
			return now.stays
		}
		select {
		case <-now.next:
		case <-late:
			return now.stays
		case <-s.c.done:
			return false
		}
	}
}

// departures says which agents are about to leave. next is closed when one of them has left; it is
// nil if no agent is about to leave. stays says that other agents stay.
type departures struct {
	next  <-chan struct{}
	stays bool
}

func (s *succession) departures() (d departures) {
	if s.c.onlyJob == nil { // agents of a cluster do not keep its log
		return departures{stays: true}
	}
	for l := range s.departing {
		d.next = l.Over
	}
	for _, m := range s.c.members {
		if m.leaving {
			d.next = m.gone
		} else {
			d.stays = s.c.onlyJob.Result == nil
		}
	}
	return d
}

// votersChanged tells people which nodes vote now.
func (s *succession) votersChanged() {
	if s.c.onlyJob == nil {
		return
	}
	names := strings.Join(wire.Convert(s.candidate().election.Others(), func(v quorum.Voter) string { return v.Name }), ", ")
	if names != s.announced {
		s.announced = names
		s.c.say(fmt.Sprintf("nodes that can take over from %s: %s", s.candidate().cfg.Node, cmp.Or(names, "none")))
	}
}

// sendVoters tells an agent which processes vote, or will vote.
func (s *succession) sendVoters(m *member) {
	if len(s.want) > 0 {
		s.c.send(m, &pb.ToAgent{Body: &pb.ToAgent_Voters{Voters: s.addrs()}})
	}
}

func (s *succession) addrs() *pb.Voters {
	if s.c.onlyJob == nil {
		all, _ := s.coordinators()
		return &pb.Voters{Addrs: all}
	}
	return &pb.Voters{Addrs: wire.Convert(s.want, func(v quorum.Voter) string { return v.Addr })}
}
