// Package lighthouse serves torchft's LighthouseService to the ranks of one replica group.
//
// It decides nothing: the coordinator forms quorums. The server holds a request until the
// coordinator answers, however long that takes and even if another process becomes coordinator. The
// reason is that torchft's manager gives a step up when a request fails. The server passes members
// on unchanged, with fields that this version does not know.
package lighthouse

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/golaunch/golaunch/agent/internal/lighthouse/torchftpb"
	"github.com/golaunch/golaunch/internal/core/lighthouse"
	"github.com/golaunch/golaunch/internal/wire"
)

const (
	// beatEvery is how often the server tells the coordinator that a replica is alive.
	beatEvery = 500 * time.Millisecond
	// maxWaiting bounds the waiting requests of a replica. A manager has one.
	maxWaiting = 64
	// pingEvery is the least time between two pings of a client. torchft's clients ping every
	// minute.
	pingEvery = 10 * time.Second
)

// Server serves one start of a replica group.
type Server struct {
	pb.UnimplementedLighthouseServiceServer
	options Options
	server  *grpc.Server
	addr    net.Addr
	over    chan struct{}
	running sync.WaitGroup

	mu       sync.Mutex
	replicas map[string]*replica
	// call is the number of the newest request. It starts from the time, so that it is higher than
	// any number of an earlier server.
	call int64
}

// replica is a name that the group uses.
type replica struct {
	// beat says that the replica has sent something since the last report to the coordinator.
	beat bool
	// waiting are the replica's unanswered requests, by call. newest is the last of them.
	waiting map[int64]chan *pb.Quorum
	newest  lighthouse.Request
}

// Options say which group to serve, and how to report to the coordinator.
type Options struct {
	Unit, Attempt int
	// Report sends a message to the coordinator. It does not wait.
	Report func(wire.Replica)
	// Warn gets errors.
	Warn func(error)
}

// Serve serves at a listener of this machine until Close.
func Serve(l net.Listener, o Options) *Server {
	s := &Server{options: o, addr: l.Addr(), over: make(chan struct{}), replicas: map[string]*replica{}, call: time.Now().UnixMicro()}
	s.server = grpc.NewServer(
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingEvery, PermitWithoutStream: true}),
		grpc.MaxRecvMsgSize(2*wire.MaxMember), grpc.WaitForHandlers(true),
	)
	pb.RegisterLighthouseServiceServer(s.server, s)
	s.running.Go(func() {
		if err := s.server.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			o.Warn(fmt.Errorf("cannot serve torchft's lighthouse: %w", err))
		}
	})
	s.running.Go(s.beat)
	return s
}

// URL returns the lighthouse's address as torchft wants it.
func (s *Server) URL() string { return "http://" + s.addr.String() }

// Port returns the port at which the lighthouse listens.
func (s *Server) Port() int { return s.addr.(*net.TCPAddr).Port }

// Close ends the lighthouse once the ranks have ended.
func (s *Server) Close() {
	close(s.over)
	s.server.Stop()
	s.running.Wait()
}

// Heartbeat notes that a replica is alive.
func (s *Server) Heartbeat(_ context.Context, r *pb.LighthouseHeartbeatRequest) (*pb.LighthouseHeartbeatResponse, error) {
	id := r.GetReplicaId()
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.replicas[id] != nil
	of, err := s.replica(id)
	if err != nil {
		return nil, err
	}
	of.beat = true
	if !known {
		s.report(id, of)
	}
	return &pb.LighthouseHeartbeatResponse{}, nil
}

// Quorum answers with the next quorum that contains the requester.
func (s *Server) Quorum(ctx context.Context, r *pb.LighthouseQuorumRequest) (*pb.LighthouseQuorumResponse, error) {
	if r.GetRequester() == nil {
		return nil, status.Error(codes.InvalidArgument, "missing requester")
	}
	call, answer, err := s.ask(r.GetRequester())
	if err != nil {
		return nil, err
	}
	select {
	case q := <-answer:
		return &pb.LighthouseQuorumResponse{Quorum: q}, nil
	case <-ctx.Done():
		s.giveUp(r.GetRequester().GetReplicaId(), call)
		return nil, status.FromContextError(ctx.Err()).Err()
	case <-s.over:
		return nil, status.Error(codes.Unavailable, "the replica group has ended")
	}
}

// ask passes a request on to the coordinator.
func (s *Server) ask(m *pb.QuorumMember) (call int64, answer chan *pb.Quorum, err error) {
	member, err := proto.Marshal(m)
	if err != nil {
		return 0, nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if len(member) > wire.MaxMember {
		return 0, nil, status.Errorf(codes.InvalidArgument, "a member of %d bytes, %d at most", len(member), wire.MaxMember)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	of, err := s.replica(m.GetReplicaId())
	if err != nil {
		return 0, nil, err
	}
	if len(of.waiting) >= maxWaiting {
		return 0, nil, status.Errorf(codes.ResourceExhausted, "%d requests of %s wait, which is the most", maxWaiting, m.GetReplicaId())
	}
	s.call = max(s.call+1, time.Now().UnixMicro())
	answer = make(chan *pb.Quorum, 1)
	of.waiting[s.call] = answer
	of.newest = lighthouse.Request{
		Replica: lighthouse.Replica{ID: m.GetReplicaId(), Group: s.options.Unit}, Call: s.call,
		ShrinkOnly: m.GetShrinkOnly(), CommitFailures: m.GetCommitFailures(), Member: member,
	}
	s.send(of.newest)
	return s.call, answer, nil
}

// giveUp forgets a request. The coordinator still counts the request, as torchft's lighthouse does.
func (s *Server) giveUp(id string, call int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of := s.replicas[id]; of != nil {
		delete(of.waiting, call)
	}
}

// Answer passes the coordinator's answer on.
func (s *Server) Answer(q wire.Cohort) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.replicas[q.Replica]
	if of == nil {
		return
	}
	if q.ID == 0 {
		if of.newest.Call <= q.Call && len(of.waiting) > 0 {
			of.newest.Again = true
			s.send(of.newest)
		}
		return
	}
	quorum, err := decode(q)
	if err != nil {
		s.options.Warn(fmt.Errorf("quorum %d: %w", q.ID, err))
		return
	}
	for call, answer := range of.waiting {
		if call <= q.Call {
			delete(of.waiting, call)
			answer <- quorum
		}
	}
}

// decode returns a quorum for torchft.
func decode(q wire.Cohort) (*pb.Quorum, error) {
	quorum := &pb.Quorum{QuorumId: q.ID, Created: timestamppb.New(q.Created)}
	for _, b := range q.Members {
		var m pb.QuorumMember
		if err := proto.Unmarshal(b, &m); err != nil {
			return nil, fmt.Errorf("cannot read a member: %w", err)
		}
		quorum.Participants = append(quorum.Participants, &m)
	}
	return quorum, nil
}

// Restate repeats the unanswered requests, because the coordinator may not have them.
func (s *Server) Restate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, of := range s.replicas {
		if len(of.waiting) > 0 {
			s.send(of.newest)
		} else {
			s.report(id, of)
		}
	}
}

// replica returns the entry of a name that the group uses.
func (s *Server) replica(id string) (*replica, error) {
	if of := s.replicas[id]; of != nil {
		return of, nil
	}
	switch {
	case len(id) > wire.MaxReplica:
		return nil, status.Errorf(codes.InvalidArgument, "a replica_id of %d bytes, %d at most", len(id), wire.MaxReplica)
	case len(s.replicas) >= lighthouse.MaxReplicas:
		return nil, status.Errorf(codes.ResourceExhausted, "the group uses %d replica_ids at a time, which is the most", lighthouse.MaxReplicas)
	}
	of := &replica{waiting: map[int64]chan *pb.Quorum{}}
	s.replicas[id] = of
	return of, nil
}

// beat reports to the coordinator from time to time which replicas are alive, and forgets the
// others.
func (s *Server) beat() {
	tick := time.Tick(beatEvery)
	for {
		select {
		case <-tick:
			s.reportAlive()
		case <-s.over:
			return
		}
	}
}

func (s *Server) reportAlive() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, of := range s.replicas {
		switch {
		case of.beat:
			s.report(id, of)
		case len(of.waiting) == 0:
			delete(s.replicas, id)
		}
	}
}

func (s *Server) report(id string, of *replica) {
	of.beat = false
	s.send(lighthouse.Request{Replica: lighthouse.Replica{ID: id, Group: s.options.Unit}})
}

func (s *Server) send(q lighthouse.Request) {
	s.options.Report(wire.Replica{Unit: s.options.Unit, Attempt: s.options.Attempt, Request: q})
}
