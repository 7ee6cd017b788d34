package rendezvous

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/replica"
	"github.com/golaunch/golaunch/internal/host/account"
	"github.com/golaunch/golaunch/internal/host/munge"
	"github.com/golaunch/golaunch/internal/wire"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/internal/wire/submitter"
	"github.com/golaunch/golaunch/internal/wire/version"
	"github.com/golaunch/golaunch/rendezvous/internal/server"
)

// clientService translates between clients and the goroutine of Run.
type clientService struct {
	pb.UnimplementedClusterServer
	c *Coordinator
}

func (s clientService) Submit(stream pb.Cluster_SubmitServer) error {
	req, err := wire.Take(stream)
	if err != nil {
		return err
	}
	if req.GetProtocol() != wire.Protocol {
		return wire.Refused("golaunch %s here and %s on the coordinator do not understand each other; install the same on both",
			req.GetVersion(), version.String())
	}
	sub := wire.ToSubmission(req)
	if sub.Submitter, err = s.submitter(stream.Context(), req); err != nil {
		return err
	}
	sub.User = s.user(stream.Context(), sub.Submitter)
	release, missing := s.c.depot.Hold(sub.Workspace.ID)
	w, err := s.submit(sub, missing)
	release()
	if err != nil {
		return err
	}
	return s.follow(stream, w)
}

// submitter returns the uid of the submitting user, or nil if it is unknown. For a client on this
// machine, the kernel knows the uid. For other clients, munge proves it, if both sides have munge.
func (s clientService) submitter(ctx context.Context, req *pb.Submission) (*uint32, error) {
	conn := server.ConnOf(ctx)
	if uid, ok := submitter.Local(conn.LocalAddr(), conn.PeerAddr()); ok {
		return &uid, nil
	}
	p, _ := peer.FromContext(ctx)
	info, secure := p.AuthInfo.(credentials.TLSInfo)
	switch {
	case !secure || !req.GetSeals() || !munge.Installed():
		return nil, nil
	case len(req.GetCredential()) > wire.MaxCredential:
		return nil, wire.Wrong("the credential has more than %d bytes", wire.MaxCredential)
	case req.GetCredential() == "":
		return nil, status.Error(codes.Unauthenticated, "the coordinator asks who submits")
	}
	uid, err := submitter.Open(ctx, info.State, req.GetCredential())
	switch {
	case errors.Is(err, submitter.ErrElsewhere):
		return nil, status.Error(codes.Unauthenticated, err.Error())
	case err != nil:
		s.c.post(func() {
			s.c.warn(fmt.Errorf("cannot find out who submits job %s: %w", wire.Plain(req.GetSpec().GetId()), err))
		})
		return nil, nil //nolint:nilerr // the job is accepted without a known submitter
	}
	return &uid, nil
}

// userLimit bounds the look-up of a user, which may ask a directory on the network.
const userLimit = 2 * time.Second

// user returns the name that a submitter has on this machine. It returns the uid as a number if the
// user has no name here, or if the look-up takes too long.
func (s clientService) user(ctx context.Context, uid *uint32) string {
	if uid == nil {
		return ""
	}
	if name, known := s.c.users.Load(*uid); known {
		return name.(string)
	}
	number := strconv.FormatUint(uint64(*uid), 10)
	ctx, cancel := context.WithTimeout(ctx, userLimit)
	defer cancel()
	name, err := account.Name(ctx, *uid)
	if err != nil || len(name) > wire.MaxUser || wire.Plain(name) != name {
		return number
	}
	s.c.users.Store(*uid, name)
	return name
}

// submit accepts a job once the log has stored its entry, and refuses it if its workspace is
// missing. If the disk hangs, only this client waits for it.
func (s clientService) submit(sub replica.Submission, missing error) (*watcher, error) {
	if why := wire.Excess(sub); why != "" {
		return nil, wire.Wrong("%s", why)
	}
	w, err := ask(s.c, func() (*watcher, error) {
		if j := s.c.jobs[sub.Job.ID]; j != nil && sub.Key != "" && j.Key == sub.Key { // the client submits the job again
			return s.c.watch(j, true), nil
		}
		if err := cmp.Or(missing, s.c.check(sub)); err != nil {
			return nil, err
		}
		s.c.noteCluster("job %s: %s", sub.Job.ID, sub.Title)
		w := s.c.watch(s.c.track(&replica.Record{Submission: sub}), true) // before the first step, so that the client gets all updates
		s.c.submit(sub)
		return w, nil
	})
	if err != nil {
		return nil, err
	}
	if err := s.kept(); err != nil {
		return nil, err
	}
	return w, s.endUnkept(w)
}

// check returns why a job is not accepted.
func (c *Coordinator) check(s replica.Submission) error {
	switch {
	case c.onlyJob != nil:
		return wire.Refused("this coordinator runs one job, %s, and no others", c.onlyJob.Job.ID)
	case c.log.Trouble() != nil:
		return c.unkept()
	case !wire.ValidName(s.Job.ID):
		return wire.Wrong("%q is no job id; use letters, digits, dots, dashes and underscores", s.Job.ID)
	case c.jobs[s.Job.ID] != nil:
		return status.Error(codes.AlreadyExists, fmt.Sprintf("there is a job %s already", s.Job.ID))
	case s.OnlyJob:
		return wire.Wrong("a cluster's job does not have all nodes for itself")
	case len(c.jobs)-len(c.state.Ended) >= wire.MaxJobs:
		return wire.Refused("%d jobs here are not over, which is the limit; try again when some have ended", wire.MaxJobs)
	}
	if err := c.state.Cluster.Check(s.Spec); err != nil {
		return wire.Wrong("%v", err)
	}
	return nil
}

// unkept returns the refusal of a job that a restarted coordinator would not know.
func (c *Coordinator) unkept() error {
	return wire.Refused("the coordinator cannot write its log at the moment, so it takes no new jobs: %v", c.log.Trouble())
}

// endUnkept ends a job whose entry the log could not store.
func (s clientService) endUnkept(w *watcher) error {
	_, err := ask(s.c, func() (bool, error) {
		if s.c.log.Trouble() == nil {
			return true, nil
		}
		delete(w.job.watchers, w)
		s.c.applyJobEvent(w.job, job.Cancel{Code: 125, Why: "it is not in the coordinator's log"})
		return false, s.c.unkept()
	})
	return err
}

// kept waits until a later coordinator would know everything that was done before the call. It
// returns an error if the coordinator ends first.
func (s clientService) kept() error {
	done := make(chan struct{})
	s.c.post(func() { s.c.log.Then(func() { close(done) }) })
	if _, ok := await(context.Background(), s.c, done); ok {
		return nil
	}
	if s.c.onlyJob != nil {
		return s.c.endError()
	}
	return errEnding
}

func (c *Coordinator) job(id string) (*trackedJob, error) {
	if j := c.jobs[id]; j != nil {
		return j, nil
	}
	return nil, status.Error(codes.NotFound, wire.Plain(fmt.Sprintf("there is no job %q here; golaunch jobs lists them", id)))
}

// Offer receives the workspace of a job that will be submitted.
func (s clientService) Offer(stream pb.Cluster_OfferServer) error { return s.c.depot.TakeIn(stream) }

func (s clientService) Watch(req *pb.WatchRequest, stream pb.Cluster_WatchServer) error {
	w, err := ask(s.c, func() (*watcher, error) {
		j, err := s.c.job(req.GetJob())
		if err != nil {
			return nil, err
		}
		return s.c.watch(j, req.GetAttach()), nil
	})
	if err != nil {
		return err
	}
	if err := s.kept(); err != nil {
		return err
	}
	return s.follow(stream, w)
}

func (s clientService) Inquire(stream pb.Cluster_InquireServer) error {
	req, err := wire.Take(stream)
	if err != nil {
		return err
	}
	q, err := ask(s.c, func() (*query, error) {
		return s.c.queries.start(wire.ToInquiry(req), wire.ToFrom(req.GetFrom()), stream.Context().Done())
	})
	if err != nil {
		return err
	}
	defer s.c.post(func() { s.c.queries.forget(q) })
	if err := stream.SendHeader(nil); err != nil { // so that the client does not wait for the first line
		return err
	}
	for {
		select {
		case answer := <-q.answers:
			if err := stream.Send(answer); err != nil {
				return err
			}
		case <-q.over:
			if q.broken { // the client must ask again to learn what is missing
				return status.Error(codes.Unavailable, "the connection to a node broke")
			}
			for _, node := range slices.Sorted(maps.Keys(q.missing)) {
				if err := stream.Send(q.missing[node]); err != nil {
					return err
				}
			}
			return nil
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case <-s.c.done:
			return errEnding
		}
	}
}

func (s clientService) Stop(_ context.Context, req *pb.StopRequest) (*pb.StopReply, error) {
	reply, err := ask(s.c, func() (*pb.StopReply, error) {
		reply := &pb.StopReply{}
		var running []*trackedJob
		for _, status := range s.c.state.Cluster.Jobs() {
			if j := s.c.jobs[status.Spec.Job.ID]; j.Result == nil && (req.GetJob() == "" || req.GetJob() == j.Job.ID) {
				running = append(running, j)
			}
		}
		if req.GetJob() != "" && len(running) == 0 {
			_, err := s.c.job(req.GetJob())
			return reply, err
		}
		within := req.GetSave().AsDuration()
		for _, j := range running {
			reply.Jobs = append(reply.Jobs, s.c.savers(j, within > 0)...)
			s.c.applyJobEvent(j, job.Cancel{
				Code: int(req.GetCode()), Why: wire.Plain(req.GetWhy()), Signal: int(req.GetSignal()), Within: within, AfterSave: within > 0,
			})
		}
		return reply, nil
	})
	if err != nil {
		return reply, err
	}
	if err := s.kept(); err != nil && !s.c.end.finished { // the only job is over, as the client requested
		return reply, err
	}
	return reply, nil
}

// savers returns the IDs of the jobs whose end a client waits for. For a reservation, these are the
// jobs in it that have to save. Otherwise it is the job itself.
func (c *Coordinator) savers(j *trackedJob, save bool) (ids []string) {
	if save && j.Reserve {
		for _, status := range c.state.Cluster.Jobs() {
			if in := c.jobs[status.Spec.Job.ID]; in.Within == j.Job.ID && in.Result == nil {
				ids = append(ids, in.Job.ID)
			}
		}
	}
	if len(ids) == 0 {
		ids = append(ids, j.Job.ID)
	}
	return ids
}

func (s clientService) Forward(_ context.Context, req *pb.ForwardRequest) (*pb.ForwardReply, error) {
	return ask(s.c, func() (*pb.ForwardReply, error) {
		j, err := s.c.job(req.GetJob())
		if err != nil {
			return nil, err
		}
		for node := range j.Nodes {
			s.c.order(node, j.Job.ID, wire.Signal{Number: syscall.Signal(req.GetNumber())})
		}
		return &pb.ForwardReply{}, nil
	})
}

func (s clientService) Drain(ctx context.Context, req *pb.DrainRequest) (*pb.DrainReply, error) {
	if req.GetLeaves() {
		return s.swap(ctx, req)
	}
	reply, err := ask(s.c, func() (*pb.DrainReply, error) {
		if _, err := s.c.member(req.GetNode()); err != nil {
			return nil, err
		}
		s.c.applyEvent(cluster.Drain{Node: req.GetNode()})
		reply := &pb.DrainReply{}
		for _, n := range s.c.state.Cluster.Nodes() {
			if n.Name == req.GetNode() {
				for _, h := range n.Holds {
					reply.Jobs = append(reply.Jobs, h.Job)
				}
			}
		}
		return reply, nil
	})
	return reply, cmp.Or(err, s.kept())
}

// swap makes the jobs give up a node, and waits until the coordinator has removed the node's agent.
func (s clientService) swap(ctx context.Context, req *pb.DrainRequest) (*pb.DrainReply, error) {
	gone, err := ask(s.c, func() (<-chan struct{}, error) {
		m, err := s.c.member(req.GetNode())
		if err != nil {
			return nil, err
		}
		gone := m.gone
		s.c.vacate(m.name, min(req.GetWithin().AsDuration(), maxNotice), "it is swapped for another")
		return gone, nil
	})
	if err != nil {
		return nil, err
	}
	select {
	case <-gone:
		return &pb.DrainReply{}, nil
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	case <-s.c.done:
		return nil, errEnding
	}
}
