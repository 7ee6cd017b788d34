package rendezvous

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/internal/wire/session"
)

// directly says that the agents of worlds connect to their coordinator without a network, see
// TestDirect.
var directly = os.Getenv("GOLAUNCH_TEST_DIRECT") != ""

// overDirect matches the tests of agents' and coordinators' streams that work over any transport.
// Other tests need a network: proofs of death, TLS, raw messages, latency and takeovers.
const overDirect = "^(TestAnotherAgentGoesOn|TestAPausedAgent|TestAQuestionOutlivesABrokenConnection|TestAStopOfAllNodes|" +
	"TestANodeIsAvoided|TestClocksApart|TestDeadlineAndCancel|TestFollowedLogs|TestInquiry.*|TestJobRestartsAndSucceeds|TestJobsShareACluster|" +
	"TestLateFinish|TestLease|TestLogsOverABrokenConnection|TestNodeIsReplaced|TestNodesThatDoNotReachTheMaster|TestNodesThatMayHaveRanks|" +
	"TestOrdersOutliveABrokenConnection|TestRanksOutliveABrokenConnection|TestReportsAreKept|TestSignalReachesOneJob|TestSlowReader|TestStop|" +
	"TestDrain|TestTheEarliestDeparture|TestUnheardQuestionForLogs)$"

// TestDirect runs the tests of overDirect again, with agents in the coordinator's process.
func TestDirect(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run="+overDirect, "-test.skip=^TestLease$/^late$", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), "GOLAUNCH_TEST_DIRECT=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// over makes agents connect to a coordinator directly. The faults of the cable still apply.
func (c *cable) over(coordinator func() *Coordinator) func(context.Context) (session.Conn, error) {
	return func(ctx context.Context) (session.Conn, error) {
		if c.unreachable.Load() || c.up.Load() || c.down.Load() {
			return nil, errors.New("no route to host")
		}
		conn, err := coordinator().Direct(ctx)
		if err != nil {
			return nil, err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		broken := make(chan struct{})
		end := &cableConn{Conn: directEnd{conn: conn, broken: broken}, cable: c, closed: make(chan struct{})}
		c.conns = append(c.conns, end)
		return cableOfMessages{conn, end, broken}, nil
	}
}

// directEnd gives direct streams the faults that a cable gives connections.
type directEnd struct {
	net.Conn
	conn session.Conn
	// broken is closed when this end can receive no more.
	broken chan struct{}
}

func (e directEnd) Close() error { return e.conn.Close() }

func (e directEnd) SetDeadline(time.Time) error {
	close(e.broken)
	return nil
}

// cableOfMessages gives messages the faults that a cable gives bytes.
type cableOfMessages struct {
	session.Conn
	end    *cableConn
	broken chan struct{}
}

func (c cableOfMessages) Close() error { return c.end.Close() }

func (c cableOfMessages) Join(ctx context.Context, _ ...grpc.CallOption) (pb.Rendezvous_JoinClient, error) {
	there, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s, err := c.Conn.Join(there)
	if err != nil {
		cancel()
		return nil, err
	}
	l := &cableStream{Rendezvous_JoinClient: s, end: c.end, broken: c.broken, received: make(chan received)}
	l.ctx, l.cancel = context.WithCancel(ctx)
	context.AfterFunc(l.ctx, func() {
		if !c.end.cutUp() {
			cancel()
		}
	})
	go l.receive()
	return l, nil
}

type received struct {
	msg *pb.ToAgent
	err error
}

// cableStream is an agent's stream over a cable.
type cableStream struct {
	pb.Rendezvous_JoinClient
	end      *cableConn
	broken   chan struct{}
	received chan received
	ctx      context.Context
	cancel   context.CancelFunc
}

func (s *cableStream) Context() context.Context { return s.ctx }

func (s *cableStream) Send(m *pb.FromAgent) error {
	if s.ctx.Err() != nil {
		return s.ctx.Err()
	}
	if s.end.cutUp() {
		return nil
	}
	return s.Rendezvous_JoinClient.Send(m)
}

func (s *cableStream) receive() {
	for {
		m, err := s.Rendezvous_JoinClient.Recv()
		if s.end.cable.stuck.Load() || err != nil && s.end.cutDown() {
			select {
			case <-s.end.closed:
			case <-s.ctx.Done():
			}
		}
		select {
		case <-time.After(time.Duration(s.end.cable.late.Load())):
		case <-s.ctx.Done():
		}
		if err == nil && s.end.cutDown() {
			continue
		}
		select {
		case s.received <- received{m, err}:
		case <-s.ctx.Done():
		}
		if err != nil {
			return
		}
	}
}

func (s *cableStream) Recv() (*pb.ToAgent, error) {
	r := received{err: status.Error(codes.Unavailable, "the connection was closed")}
	select {
	case r = <-s.received:
	case <-s.end.closed:
	case <-s.broken:
	case <-s.ctx.Done():
		r.err = status.FromContextError(s.ctx.Err()).Err()
	}
	if r.err != nil {
		s.cancel()
	}
	return r.msg, r.err
}
