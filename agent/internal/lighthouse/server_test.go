package lighthouse

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/golaunch/golaunch/agent/internal/lighthouse/torchftpb"
	"github.com/golaunch/golaunch/internal/core/lighthouse"
	"github.com/golaunch/golaunch/internal/wire"
)

// coordinator answers the servers of some groups as the real coordinator does. While it is away, it
// forgets the reports.
type coordinator struct {
	mu      sync.Mutex
	state   *lighthouse.State
	servers []*Server
	away    bool
	asked   chan string
}

func newCoordinator(t *testing.T, groups, least int) *coordinator {
	t.Helper()
	o := lighthouse.Options{MinReplicas: least, JoinTimeout: time.Hour, HeartbeatTimeout: time.Hour}
	c := &coordinator{state: lighthouse.New(o, 0, nil, time.Now()), asked: make(chan string, 1000)}
	for group := range groups {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := Serve(l, Options{Unit: group, Report: func(r wire.Replica) { go c.take(r) }, Warn: func(err error) { t.Error(err) }})
		t.Cleanup(s.Close)
		c.servers = append(c.servers, s)
	}
	return c
}

func (c *coordinator) take(r wire.Replica) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var ev lighthouse.Event = lighthouse.Heartbeat{Replica: r.Request.Replica}
	if r.Request.Call > 0 {
		c.asked <- r.Request.ID
		ev = lighthouse.Asked{Request: r.Request}
	}
	if c.away {
		return
	}
	o := c.state.Step(time.Now(), ev)
	if o.Cohort == nil {
		return
	}
	var members [][]byte
	for _, m := range o.Cohort.Members {
		members = append(members, m.Member)
	}
	for _, m := range o.Cohort.Members {
		c.servers[m.Group].Answer(wire.Cohort{Replica: m.ID, Call: m.Call, ID: o.Cohort.ID, Created: o.Cohort.Created, Members: members})
	}
	for _, m := range o.Left {
		c.servers[m.Group].Answer(wire.Cohort{Replica: m.ID, Call: m.Call})
	}
}

func client(t *testing.T, s *Server) pb.LighthouseServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(strings.TrimPrefix(s.URL(), "http://"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return pb.NewLighthouseServiceClient(conn)
}

// TestRealManagers lets torchft's managers, of each version, meet in quorums.
func TestRealManagers(t *testing.T) {
	python, dirs := versions(t)
	for _, dir := range dirs {
		c := newCoordinator(t, 3, 3) // with a lower minimum, two managers would not wait for the third before its first heartbeat
		p := startTorchft(t, python, dir)
		for group, s := range c.servers {
			p.do("manager r%d %s 1", group, s.URL())
			p.next()
		}
		step := func(number int, failures int, want string, groups ...int) {
			t.Helper()
			for _, group := range groups {
				p.do("step r%d 0 %d 0 %d", group, number, failures)
			}
			for range groups {
				words := strings.Fields(p.next())
				handles := "-"
				if dir != "" {
					handles = strings.ReplaceAll(words[3], "r", "handle_of_r")
				}
				if got := strings.Join(words[1:4], " "); got != "quorum "+want || words[4] != handles {
					t.Fatalf("%q: step %d: %v, want %s", dir, number, words, want)
				}
			}
		}
		step(1, 0, "1 r0,r1,r2", 0, 1, 2)
		step(2, 0, "1 r0,r1,r2", 2, 1, 0)
		step(3, 1, "2 r0,r1,r2", 0, 1, 2)
		c.mu.Lock()
		c.state.Step(time.Now(), lighthouse.Gone{Group: 1})
		c.mu.Unlock()
		p.do("close r1")
		p.next()
	}
}

// TestHeldRequests checks that the next coordinator answers held requests.
func TestHeldRequests(t *testing.T) {
	c := newCoordinator(t, 1, 1)
	c.away = true
	answers := make(chan *pb.Quorum, 1)
	unknown := protowire.AppendString(protowire.AppendTag(nil, 99, protowire.BytesType), "of a newer torchft")
	m := &pb.QuorumMember{ReplicaId: "a", Step: 3}
	m.ProtoReflect().SetUnknown(unknown)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r, err := client(t, c.servers[0]).Quorum(ctx, &pb.LighthouseQuorumRequest{Requester: m})
		if err != nil {
			t.Error(err)
		}
		answers <- r.GetQuorum()
	}()
	<-c.asked
	c.mu.Lock()
	c.away = false
	c.mu.Unlock()
	c.servers[0].Restate()
	q := <-answers
	if q.GetQuorumId() != 1 || len(q.GetParticipants()) != 1 || !proto.Equal(q.GetParticipants()[0], m) || q.GetCreated() == nil {
		t.Errorf("the quorum is %v, want one of %v", q, m)
	}
}

// TestBadRequests checks that bad requests are refused, and only these.
func TestBadRequests(t *testing.T) {
	c := newCoordinator(t, 1, 1)
	call := client(t, c.servers[0])
	for want, m := range map[string]*pb.QuorumMember{
		"missing requester":             nil,
		"a member of ":                  {ReplicaId: "a", Data: strings.Repeat("x", wire.MaxMember+1)},
		"a replica_id of 300 bytes, 25": {ReplicaId: strings.Repeat("x", 300)},
	} {
		_, err := call.Quorum(t.Context(), &pb.LighthouseQuorumRequest{Requester: m})
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for i := range lighthouse.MaxReplicas + 1 {
		_, err := call.Heartbeat(t.Context(), &pb.LighthouseHeartbeatRequest{ReplicaId: fmt.Sprint("r", i)})
		if full := status.Code(err) == codes.ResourceExhausted; full != (i == lighthouse.MaxReplicas) && err != nil {
			t.Fatalf("replica %d: %v", i, err)
		}
	}
}

// TestManyRequests checks that too many requests of one replica are refused.
func TestManyRequests(t *testing.T) {
	c := newCoordinator(t, 1, 2)
	call := client(t, c.servers[0])
	ctx, cancel := context.WithCancel(t.Context())
	refused := make(chan error, maxWaiting+1)
	for range maxWaiting + 1 {
		go func() {
			_, err := call.Quorum(ctx, &pb.LighthouseQuorumRequest{Requester: &pb.QuorumMember{ReplicaId: "a"}})
			refused <- err
		}()
	}
	if err := <-refused; status.Code(err) != codes.ResourceExhausted {
		t.Error(err)
	}
	cancel()
	for range maxWaiting {
		if err := <-refused; status.Code(err) != codes.Canceled {
			t.Error(err)
		}
	}
}

// TestAClientThatGivesUp checks that the server forgets a client that gives up, and that the client
// may ask again.
func TestAClientThatGivesUp(t *testing.T) {
	c := newCoordinator(t, 1, 2)
	ctx, cancel := context.WithCancel(t.Context())
	call := client(t, c.servers[0])
	go func() {
		<-c.asked
		cancel()
	}()
	ask := &pb.LighthouseQuorumRequest{Requester: &pb.QuorumMember{ReplicaId: "a"}}
	if _, err := call.Quorum(ctx, ask); status.Code(err) != codes.Canceled {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := call.Quorum(t.Context(), ask)
		answered <- err
	}()
	<-c.asked
	go func() {
		_, _ = call.Quorum(t.Context(), &pb.LighthouseQuorumRequest{Requester: &pb.QuorumMember{ReplicaId: "b"}})
	}()
	select {
	case err := <-answered:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("it is not answered")
	}
}
