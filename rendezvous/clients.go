package rendezvous

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/replica"
	"github.com/golaunch/golaunch/internal/host/munge"
	"github.com/golaunch/golaunch/internal/wire"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/internal/wire/submitter"
	"github.com/golaunch/golaunch/internal/wire/version"
	"github.com/golaunch/golaunch/rendezvous/internal/server"
)

// errOver answers whoever asks a coordinator that is ending. A cluster's may be back.
var errOver = status.Error(codes.Unavailable, "the coordinator is ending")

// find has the job of an ID.
func (c *Coordinator) find(id string) (*run, error) {
	if r := c.runs[id]; r != nil {
		return r, nil
	}
	return nil, status.Error(codes.NotFound, wire.Plain(fmt.Sprintf("there is no job %q here; golaunch jobs lists them", id)))
}

// check says why a job is not taken in.
func (c *Coordinator) check(s replica.Submission) error {
	switch {
	case c.sole != nil:
		return wire.Refused("this coordinator runs one job, %s, and no others", c.sole.Job.ID)
	case c.log.Trouble() != nil:
		return c.unkept()
	case !wire.ValidName(s.Job.ID):
		return wire.Wrong("%q is no job id; use letters, digits, dots, dashes and underscores", s.Job.ID)
	case c.runs[s.Job.ID] != nil:
		return status.Error(codes.AlreadyExists, fmt.Sprintf("there is a job %s already", s.Job.ID))
	case s.Sole:
		return wire.Wrong("a cluster's job does not have all nodes for itself")
	case len(c.runs)-len(c.state.Ended) >= wire.MaxJobs:
		return wire.Refused("%d jobs here are not over, and there can be no more; try again when some are", wire.MaxJobs)
	}
	if err := c.state.Cluster.Check(s.Spec); err != nil {
		return wire.Wrong("%v", err)
	}
	return nil
}

// unkept refuses a job that a coordinator which is started again would not know.
func (c *Coordinator) unkept() error {
	return wire.Refused("the coordinator's log is not kept at the moment, so that it takes no new jobs: %v", c.log.Trouble())
}

// watcher is one client that is told about a job, from where it stands. updates is closed when it is too slow.
type watcher struct {
	run      *run
	accepted *pb.Accepted
	updates  chan wire.Update
	owner    bool
}

// maxUpdates bounds what waits for one watcher.
const maxUpdates = 256

// watch tells a client where a job stands, and then all that is decided. An owner is one without which the job ends.
func (c *Coordinator) watch(r *run, owner bool) *watcher {
	w := &watcher{
		run: r, updates: make(chan wire.Update, maxUpdates), owner: owner && !r.Detached,
		accepted: &pb.Accepted{Job: r.Job.ID, Lease: durationpb.New(c.cfg.Lease), Detached: r.Detached},
	}
	if w.owner {
		r.owners++
		if r.orphaned != nil {
			r.orphaned.Stop()
			r.orphaned = nil
		}
	}
	if r.Reason != "" {
		w.updates <- wire.Update{Decision: &wire.Decision{At: time.Now(), Reason: r.Reason}}
	}
	if r.Granted != nil {
		w.updates <- wire.Update{Granted: r.Granted}
	}
	if r.Result != nil {
		w.updates <- wire.Update{Result: r.Result}
	}
	r.watchers[w] = struct{}{}
	return w
}

// tell queues an update for all watchers.
func (c *Coordinator) tell(r *run, u wire.Update) {
	c.log.Then(func() {
		for w := range r.watchers {
			select {
			case w.updates <- u:
			default:
				close(w.updates)
				delete(r.watchers, w)
			}
		}
	})
}

// unwatch forgets a client. The job of one that has died, and of one that stays away for a lease, ends.
func (c *Coordinator) unwatch(w *watcher, died bool) {
	r := w.run
	delete(r.watchers, w)
	if !w.owner {
		return
	}
	if r.owners--; r.owners == 0 {
		patience := c.cfg.Lease
		if died {
			patience = 0
		}
		c.orphan(r, patience)
	}
}

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
	w, err := s.submit(sub)
	if err != nil {
		return err
	}
	return s.follow(stream, w)
}

// submitter is the uid of who submits: by the kernel's word if the client is on this machine, else by munge's, which the client is asked for
// where both have it. It is nil if neither knows.
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
			s.c.warn(fmt.Errorf("it is not known who submits job %s: %w", wire.Plain(req.GetSpec().GetId()), err))
		})
		return nil, nil //nolint:nilerr // the job is taken in, by nobody who is known
	}
	return &uid, nil
}

// submit takes a job in, which is accepted once it is kept: a disk that hangs holds up its client alone.
func (s clientService) submit(sub replica.Submission) (*watcher, error) {
	if why := wire.Excess(sub); why != "" {
		return nil, wire.Wrong("%s", why)
	}
	w, err := ask(s.c, func() (*watcher, error) {
		if r := s.c.runs[sub.Job.ID]; r != nil && sub.Key != "" && r.Key == sub.Key { // its client has not heard that
			return s.c.watch(r, true), nil
		}
		if err := s.c.check(sub); err != nil {
			return nil, err
		}
		s.c.note("job %s: %s", sub.Job.ID, sub.Title)
		w := s.c.watch(s.c.attach(&replica.Record{Submission: sub}), true) // it is told all from the first step on
		s.c.submit(sub)
		return w, nil
	})
	if err != nil {
		return nil, err
	}
	if err := s.recorded(); err != nil {
		return nil, err
	}
	return w, s.promised(w)
}

// promised ends a job that could not be kept.
func (s clientService) promised(w *watcher) error {
	_, err := ask(s.c, func() (bool, error) {
		if s.c.log.Trouble() == nil {
			return true, nil
		}
		delete(w.run.watchers, w)
		s.c.happened(w.run, job.Cancel{Code: 125, Why: "it is not in the coordinator's log"})
		return false, s.c.unkept()
	})
	return err
}

// recorded waits until what was done is known to a later coordinator too. The error says that it
// may not be.
func (s clientService) recorded() error {
	done := make(chan struct{})
	s.c.post(func() { s.c.log.Then(func() { close(done) }) })
	if _, ok := await(context.Background(), s.c, done); ok {
		return nil
	}
	if s.c.sole != nil {
		return s.c.gone()
	}
	return errOver
}

func (s clientService) Watch(req *pb.WatchRequest, stream pb.Cluster_WatchServer) error {
	w, err := ask(s.c, func() (*watcher, error) {
		r, err := s.c.find(req.GetJob())
		if err != nil {
			return nil, err
		}
		return s.c.watch(r, req.GetAttach()), nil
	})
	if err != nil {
		return err
	}
	if err := s.recorded(); err != nil {
		return err
	}
	return s.follow(stream, w)
}

// follow sends updates until the job is over.
func (s clientService) follow(stream interface {
	Send(*pb.Update) error
	Context() context.Context
}, w *watcher,
) error {
	conn := server.ConnOf(stream.Context())
	defer func() {
		died := conn.ClosedInOrder()
		s.c.post(func() { s.c.unwatch(w, died) })
	}()
	if err := stream.Send(&pb.Update{Body: &pb.Update_Accepted{Accepted: w.accepted}}); err != nil {
		return err
	}
	here := time.NewTicker(s.c.cfg.Lease / wire.NoticesPerLease)
	defer here.Stop()
	leads := make(chan struct{}, 1)
	for {
		select {
		case <-here.C: // one that does not lead any more says nothing
			s.c.post(func() {
				s.c.log.Vouch(func() {
					select {
					case leads <- struct{}{}:
					default:
					}
				})
			})
		case <-leads:
			if err := stream.Send(&pb.Update{}); err != nil {
				return err
			}
		case u, ok := <-w.updates:
			if over, err := update(stream, u, ok); over || err != nil {
				return err
			}
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case <-s.c.done:
			return s.rest(stream, w)
		}
	}
}

// rest sends what was decided before the coordinator ended.
func (s clientService) rest(stream interface{ Send(*pb.Update) error }, w *watcher) error {
	for {
		select {
		case u, ok := <-w.updates:
			if over, err := update(stream, u, ok); over || err != nil {
				return err
			}
		default:
			return s.c.gone()
		}
	}
}

// update sends one; over says that it was the last.
func update(stream interface{ Send(*pb.Update) error }, u wire.Update, ok bool) (over bool, err error) {
	if !ok {
		return true, status.Error(codes.Aborted, "this client does not take what it is told")
	}
	for m := range wire.FromUpdate(u) {
		if err := stream.Send(m); err != nil {
			return true, err
		}
	}
	return u.Result != nil, nil
}

func (s clientService) Inquire(stream pb.Cluster_InquireServer) error {
	req, err := wire.Take(stream)
	if err != nil {
		return err
	}
	d, err := ask(s.c, func() (*delivery, error) {
		return s.c.inquire(wire.ToInquiry(req), wire.ToFrom(req.GetFrom()), stream.Context().Done())
	})
	if err != nil {
		return err
	}
	defer s.c.post(func() { s.c.forgetDelivery(d) })
	if err := stream.SendHeader(nil); err != nil { // the client need not wait for the first line
		return err
	}
	for {
		select {
		case answer := <-d.answers:
			if err := stream.Send(answer); err != nil {
				return err
			}
		case <-d.over:
			if d.broken { // what is missing is told to who asks anew
				return status.Error(codes.Unavailable, "the connection to a node broke")
			}
			for _, node := range slices.Sorted(maps.Keys(d.missing)) {
				if err := stream.Send(d.missing[node]); err != nil {
					return err
				}
			}
			return nil
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case <-s.c.done:
			return errOver
		}
	}
}

func (s clientService) Stop(_ context.Context, req *pb.StopRequest) (*pb.StopReply, error) {
	reply, err := ask(s.c, func() (*pb.StopReply, error) {
		reply := &pb.StopReply{}
		var stop []*run
		for _, j := range s.c.state.Cluster.Jobs() {
			if r := s.c.runs[j.Spec.Job.ID]; r.Result == nil && (req.GetJob() == "" || req.GetJob() == r.Job.ID) {
				stop = append(stop, r)
			}
		}
		if req.GetJob() != "" && len(stop) == 0 {
			_, err := s.c.find(req.GetJob())
			return reply, err
		}
		for _, r := range stop {
			reply.Jobs = append(reply.Jobs, r.Job.ID)
			s.c.happened(r, job.Cancel{Code: int(req.GetCode()), Why: wire.Plain(req.GetWhy()), Signal: int(req.GetSignal())})
		}
		return reply, nil
	})
	if err != nil {
		return reply, err
	}
	if err := s.recorded(); err != nil && !s.c.over { // over is the only job, as was wanted
		return reply, err
	}
	return reply, nil
}

func (s clientService) Forward(_ context.Context, req *pb.ForwardRequest) (*pb.ForwardReply, error) {
	return ask(s.c, func() (*pb.ForwardReply, error) {
		r, err := s.c.find(req.GetJob())
		if err != nil {
			return nil, err
		}
		for node := range r.Nodes {
			s.c.order(node, r.Job.ID, wire.Signal{Number: syscall.Signal(req.GetNumber())})
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
		s.c.cause(cluster.Drain{Node: req.GetNode()})
		reply := &pb.DrainReply{}
		for _, n := range s.c.state.Cluster.Nodes() {
			if n.Node.Name == req.GetNode() {
				for _, h := range n.Held {
					reply.Jobs = append(reply.Jobs, h.Job)
				}
			}
		}
		return reply, nil
	})
	return reply, cmp.Or(err, s.recorded())
}

// swap has the jobs give a node up, and waits until its agent has left.
func (s clientService) swap(ctx context.Context, req *pb.DrainRequest) (*pb.DrainReply, error) {
	gone, err := ask(s.c, func() (<-chan struct{}, error) {
		m, err := s.c.member(req.GetNode())
		if err != nil {
			return nil, err
		}
		gone := m.gone
		s.c.leaves(m.name, min(req.GetWithin().AsDuration(), maxNotice), "it is swapped for another")
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
		return nil, errOver
	}
}

func (c *Coordinator) member(node string) (*member, error) {
	if m := c.members[node]; m != nil {
		return m, nil
	}
	return nil, status.Error(codes.NotFound, wire.Plain(fmt.Sprintf("there is no node %q here; golaunch status lists them", node)))
}
