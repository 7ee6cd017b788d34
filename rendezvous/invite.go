package rendezvous

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/golaunch/golaunch/internal/wire"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
)

// inviteEvery is how long a coordinator waits between invitations: no event tells that somebody listens there again.
const inviteEvery = time.Second

// invite has who listens where the nodes of the job first met join it, for as long as that is none of them.
func (c *Coordinator) invite() {
	if c.cfg.Candidate.cfg.Home == "" || c.term == nil || c.inviting {
		return
	}
	c.inviting = true
	go func() {
		for told := ""; ; {
			there, err := c.inviteOnce()
			if there {
				return
			}
			if err != nil && err.Error() != told {
				told = err.Error()
				c.warn(err)
			}
			select {
			case <-time.After(inviteEvery):
			case <-c.done:
				return
			}
		}
	}()
}

// inviteOnce invites once, and says whether that need not be done again. The error is why it is not heard; that nobody is there, or
// somebody with another token, is none.
func (c *Coordinator) inviteOnce() (there bool, err error) {
	candidate := c.cfg.Candidate
	home, limit := candidate.cfg.Home, min(candidate.cfg.Lease/4, wire.DialLimit)
	who, err := candidate.ask(home, limit)
	if err != nil {
		return false, nil //nolint:nilerr // as above
	}
	invitation := make(chan *pb.Invitation, 1)
	c.post(func() {
		if m := c.members[who.Name]; m != nil && m.link != nil {
			c.inviting = false
			close(invitation)
			return
		}
		s := &pb.Invitation{Job: c.sole.Job.ID, Facts: c.cfg.Facts, Node: candidate.cfg.Node, Voters: c.electors(), Epoch: c.state.Epoch}
		c.log.Then(func() { invitation <- s }) // with no majority it invites nobody
	})
	select {
	case s := <-invitation:
		if s == nil {
			return true, nil
		}
		err = candidate.visit(home, limit, func(ctx context.Context, q pb.QuorumClient) error {
			_, err := q.Invite(ctx, s)
			return err
		})
	case <-c.done:
	}
	if s := status.Convert(err); s.Code() == codes.FailedPrecondition {
		return false, fmt.Errorf("node %s at %s does not join the job: %s", who.Name, home, s.Message())
	}
	return false, nil
}

// Invite has the coordinator here give its job up for the one that it is invited to. Where there is none, the agent here is on its way, or
// there.
func (q quorumServer) Invite(_ context.Context, s *pb.Invitation) (*pb.Greeting, error) {
	c := q.candidate.head.Load()
	if c == nil {
		return &pb.Greeting{}, nil
	}
	return ask(c, func() (*pb.Greeting, error) { return &pb.Greeting{}, c.invited(s) })
}

// invited gives a job up that has not begun, or only just, for the same one elsewhere. A job that others may know of already is not
// given up: one of them would go on with it.
func (c *Coordinator) invited(s *pb.Invitation) error {
	why := wire.Different(c.cfg.Facts, s.GetFacts())
	addrs := s.GetVoters().GetAddrs()
	switch {
	case c.sole == nil:
		return wire.Refused("a cluster's coordinator listens there")
	case s.GetEpoch() == c.state.Epoch: // one of the two is about to hear that it does not lead
		return nil
	case c.sole.Result != nil:
		return wire.Refused("its job is over")
	case why != "":
		return wire.Refused("%s", why)
	case c.cfg.Named && c.sole.Job.ID != s.GetJob():
		return wire.Refused("its job is %s, and this is %s", c.sole.Job.ID, s.GetJob())
	case c.restored || c.established:
		return wire.Refused("it leads a job of its own, that runs")
	case len(addrs) == 0:
		return wire.Refused("the invitation does not say where from")
	}
	c.elsewhere = &wire.ElsewhereError{
		Why: fmt.Sprintf("node %s leads this job already, at %s", wire.Plain(s.GetNode()), wire.Plain(addrs[0])), Addrs: addrs,
	}
	c.cfg.Candidate.Learn(addrs)
	if m := c.members[c.cfg.Candidate.cfg.Node]; m == nil || m.link == nil {
		// An agent that is here says so; one that is about to come hears where to go with its first word, and goes.
		c.say(c.cfg.Candidate.cfg.Node + " joins anew: " + c.elsewhere.Why)
	}
	return nil
}
