package rendezvous

import (
	"context"

	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/rendezvous/internal/depot"
	"github.com/golaunch/golaunch/rendezvous/internal/election"
	"github.com/golaunch/golaunch/rendezvous/internal/server"
)

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
