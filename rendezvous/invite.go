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

// inviteEvery is the time between invitations. No event reports that a process listens at the job's
// home (CandidateConfig.Home) again, so the leader repeats the invitation.
const inviteEvery = time.Second

// invite invites the process that listens where the nodes of the job first met, until it has joined
// the job.
func (s *succession) invite() {
	if s.candidate().cfg.Home == "" || s.term == nil || s.inviting {
		return
	}
	s.inviting = true
	go func() {
		for last := ""; ; {
			joined, err := s.inviteOnce()
			if joined {
				return
			}
			if err != nil && err.Error() != last {
				last = err.Error()
				s.c.warn(err)
			}
			select {
			case <-time.After(inviteEvery):
			case <-s.c.done:
				return
			}
		}
	}()
}

// inviteOnce invites once, except if the node has already joined the job. The error says why the
// invited process refused. There is no error if no process listens at the job's home, or if the
// process there has another token.
func (s *succession) inviteOnce() (joined bool, err error) {
	candidate := s.candidate()
	home, limit := candidate.cfg.Home, min(candidate.cfg.Lease/4, wire.DialLimit)
	voter, err := candidate.election.Identify(home, limit)
	if err != nil {
		return false, nil //nolint:nilerr // as above
	}
	invitations := make(chan *pb.Invitation, 1)
	s.c.post(func() {
		if m := s.c.members[voter.Name]; m != nil && m.stream != nil {
			s.inviting = false
			close(invitations)
			return
		}
		i := &pb.Invitation{
			Job: s.c.onlyJob.Job.ID, Facts: s.c.cfg.Facts, Node: candidate.cfg.Node, Voters: s.addrs(), Epoch: s.c.state.Epoch,
		}
		s.c.log.Then(func() { invitations <- i }) // without a majority, this coordinator sends no invitation
	})
	select {
	case i := <-invitations:
		if i == nil {
			return true, nil
		}
		err = candidate.election.Call(home, limit, func(ctx context.Context, q pb.QuorumClient) error {
			_, err := q.Invite(ctx, i)
			return err
		})
	case <-s.c.done:
	}
	if refusal := status.Convert(err); refusal.Code() == codes.FailedPrecondition {
		return false, fmt.Errorf("node %s at %s does not join the job: %s", voter.Name, home, refusal.Message())
	}
	return false, nil
}

// invited handles an invitation to a job that another coordinator leads. This coordinator gives up
// its own start of the same job if that start has not begun, or has only just begun. It does not
// give up a job that other processes may know, because one of these processes would continue it.
func (s *succession) invited(i *pb.Invitation) error {
	c := s.c
	why := wire.Different(c.cfg.Facts, i.GetFacts())
	addrs := i.GetVoters().GetAddrs()
	switch {
	case c.onlyJob == nil:
		return wire.Refused("a cluster's coordinator listens there")
	case i.GetEpoch() == c.state.Epoch: // one of the two coordinators will learn that it no longer leads
		return nil
	case c.onlyJob.Result != nil:
		return wire.Refused("its job is over")
	case why != "":
		return wire.Refused("%s", why)
	case c.cfg.HasID && c.onlyJob.Job.ID != i.GetJob():
		return wire.Refused("its job is %s, and this is %s", c.onlyJob.Job.ID, i.GetJob())
	case c.restored || s.established:
		return wire.Refused("it leads a job of its own, that runs")
	case len(addrs) == 0:
		return wire.Refused("the invitation names no address")
	}
	s.invitation = &wire.ElsewhereError{
		Why: fmt.Sprintf("node %s leads this job already, at %s", wire.Plain(i.GetNode()), wire.Plain(addrs[0])), Addrs: addrs,
	}
	s.candidate().Learn(addrs)
	if m := c.members[s.candidate().cfg.Node]; m == nil || m.stream == nil {
		// If this node's agent has joined this coordinator, the agent reports the new start itself.
		// An agent that is still joining only follows the invitation.
		c.say(s.candidate().cfg.Node + " joins anew: " + s.invitation.Why)
	}
	return nil
}
