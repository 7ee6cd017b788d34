package rendezvous

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/golaunch/golaunch/internal/wire"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/internal/wire/session"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rendezvous/internal/server"
)

func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		facts := map[string]string{"--max-restarts": "5", "--nodes": "3"}
		w := newWorldOf(t.Context(), t, Config{Facts: facts}, one(1))
		a := w.join(1, forever)
		join := func(o session.Options) error {
			o.Target, o.Dial, o.Warn = "head:1", w.dial, w.warn
			s, err := session.Join(t.Context(), o)
			if err == nil {
				s.Close("")
			}
			return err
		}
		named := func(name, addr string) placement.Node {
			n := node(2)
			n.Name = name
			if addr != "" {
				n.Addr = node(1).Addr
			}
			return n
		}
		big := node(2)
		big.Labels = map[string]string{"x": strings.Repeat("x", 2<<20)}
		for _, c := range []struct {
			o    session.Options
			want string
		}{
			{
				session.Options{Node: node(2), Facts: map[string]string{"--max-restarts": "3", "--nodes": "3"}},
				"the coordinator at head:1 refused node n2: --max-restarts differs: 3 here, 5 on the coordinator",
			},
			{session.Options{Node: node(2), Facts: map[string]string{"--max-restarts": "5"}}, "--nodes differs: unset here, 3 on the coordinator"},
			{
				session.Options{Node: node(2), Facts: map[string]string{"--max-restarts": "5", "--nodes": "3", "--x": "1"}},
				"--x differs: 1 here, unset on the coordinator",
			},
			{session.Options{Node: named("n1", "")}, "there is a node n1 already, at 10.0.0.1"},
			{session.Options{Node: named("n2", "taken")}, "address 10.0.0.1 is node n1's"},
			{session.Options{Node: named("../etc", "")}, `"../etc" is no node name`},
			{session.Options{Node: named("", "")}, `"" is no node name`},
			{session.Options{Node: placement.Node{Name: "n2"}}, "node n2 has no address that others could reach"},
			{session.Options{Node: big}, "too long"},
		} {
			err := join(c.o)
			var r *session.RefusedError
			if !errors.As(err, &r) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		}
		a.Close("")
		w.c.Cancel(130, "enough")
		<-w.result
		if len(w.warnings) != 1 || !strings.Contains(w.warnings[0], "was refused: --max-restarts differs") {
			t.Errorf("warnings %q, want one line a minute", w.warnings)
		}
	})
}

// TestAnotherCommandEndsTheWait starts a node with different flags. Since this node can never join,
// the job ends at once, and the other nodes learn the reason.
func TestAnotherCommandEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorldOf(t.Context(), t, Config{Facts: map[string]string{"--nodes": "3"}}, one(3))
		a := w.join(1, forever)
		_, err := session.Join(t.Context(), session.Options{Target: "head:1", Dial: w.dial, Warn: w.warn, Node: node(2), Facts: map[string]string{"--nodes": "2"}})
		if r, ok := errors.AsType[*session.RefusedError](err); !ok || r.Why != "--nodes differs: 2 here, 3 on the coordinator" {
			t.Error(err)
		}
		want := "job failed: --nodes differs: 2 on n2, 3 on the coordinator; start the same command on every node"
		if r := <-w.result; r.Code != 2 || r.Ending != report.EndProgram || r.Reason != want {
			t.Errorf("%+v", r)
		}
		a.Close("")
	})
}

// TestTooManyRefusedEndTheWait starts four nodes for a job of three. The job survives the refusal
// of one node but not of two. Nodes of one machine share an address, so they are told apart only by
// name.
func TestTooManyRefusedEndTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorldOf(t.Context(), t, Config{Nodes: 4}, one(3))
		join := func(name, machine string) (*session.Session, error) {
			n := placement.Node{Name: name, Addr: node(1).Addr, Labels: map[string]string{placement.MachineLabel: machine}}
			return session.Join(t.Context(), session.Options{Target: "head:1", Dial: w.dial, Warn: w.warn, Node: n})
		}
		for _, name := range []string{"a", "b"} {
			s, err := join(name, "m1")
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close("")
		}
		if _, err := join("a", "m1"); err == nil || !strings.Contains(err.Error(), "there is a node a already") {
			t.Error(err)
		}
		synctest.Wait()
		select {
		case r := <-w.result:
			t.Fatalf("it ended: %+v", r)
		default:
		}
		if _, err := join("c", "m2"); err == nil || !strings.Contains(err.Error(), "give each node the address at which the others reach it") {
			t.Error(err)
		}
		want := "job failed: node c was refused, and without it 3 nodes cannot come together: address 10.0.0.1 is node b's too; "
		if r := <-w.result; r.Code != 2 || r.Ending != report.EndProgram || !strings.HasPrefix(r.Reason, want) {
			t.Errorf("%+v", r)
		}
	})
}

// TestTheNameOfTheCoordinatorsNode checks that the coordinator's node keeps its name even if
// another process of the same machine asks for the name first. That process must use another name.
func TestTheNameOfTheCoordinatorsNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := placement.Node{Name: "a", Addr: node(1).Addr, Labels: map[string]string{placement.MachineLabel: "m1", wire.RenamesLabel: wire.RenamesAlways}}
		own := NewLocalNode(n)
		w := newWorldOf(t.Context(), t, Config{LocalNode: own}, one(2))
		join := func(name string, began func(string)) (*session.Session, error) {
			n.Name = name
			return session.Join(t.Context(), session.Options{Target: "head:1", Dial: w.dial, Warn: w.warn, Node: n, Began: began})
		}
		_, err := join("a", nil)
		r, ok := errors.AsType[*session.RefusedError](err)
		if !ok || r.Another() == "" {
			t.Fatalf("%v, want a refusal with another name", err)
		}
		for name, began := range map[string]func(string){r.Another(): nil, "a": own.Began} {
			s, err := join(name, began)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close("")
		}
	})
}

// TestTheOtherNodeHasTheNameOfTheCoordinatorsNode refuses a node that has the name of the
// coordinator's node, which joins only afterwards. The coordinator then expects no further node, so
// it ends at once.
func TestTheOtherNodeHasTheNameOfTheCoordinatorsNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := NewLocalNode(placement.Node{Name: "a", Addr: node(1).Addr})
		w := newWorldOf(t.Context(), t, Config{LocalNode: own, Nodes: 2}, one(2))
		began := time.Now()
		join := func(n placement.Node, began func(string)) (*session.Session, error) {
			n.Name = "a"
			return session.Join(t.Context(), session.Options{Target: "head:1", Dial: w.dial, Warn: w.warn, Node: n, Began: began})
		}
		if _, err := join(node(2), nil); err == nil || !strings.Contains(err.Error(), "give each node its own --name (under torchrun its own --node-rank)") {
			t.Error(err)
		}
		s, err := join(node(1), own.Began)
		if err != nil {
			t.Fatal(err)
		}
		s.Close("")
		if r := <-w.result; r.Code != 2 || time.Since(began) >= startSkew {
			t.Errorf("%+v after %v", r, time.Since(began))
		}
	})
}

// TestARefusalThatEndsTheCoordinator checks that the agent gets the refusal, and not the error that
// the coordinator has ended.
func TestARefusalThatEndsTheCoordinator(t *testing.T) {
	c := &Coordinator{eventLoop: newEventLoop(), succession: &succession{}}
	close(c.done)
	want := wire.Refused("--nodes differs")
	for range 100 { // because select takes any of two ready cases
		answers := make(chan admission, 1)
		answers <- admission{err: want}
		if _, err := (agentService{c: c}).awaitAdmission(t.Context(), answers); err != want {
			t.Fatalf("%v, want %v", err, want)
		}
	}
	if _, err := (agentService{c: c}).awaitAdmission(t.Context(), nil); !errors.Is(err, errEnding) {
		t.Errorf("%v, want that the coordinator has ended", err)
	}
}

// TestHungAgent has an agent that does not take its orders. The agent loses its lease, and the
// coordinator stops waiting for it.
func TestHungAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		a := w.join(1, forever)
		c := newCable(w.dial)
		hung, err := session.Join(t.Context(), session.Options{Target: "head:1", Node: node(2), Dial: c.connect, Proof: c.proof, Warn: w.warn})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		at := time.Now()
		for range 128 { // twice what a session keeps for an agent that takes no orders
			w.c.Signal(syscall.SIGUSR1)
		}
		ended(hung)
		if took := time.Since(at); took < lease/2 || took > lease+time.Millisecond {
			t.Errorf("the agent gave up after %v: %v", took, hung.Err())
		}
		c.testify()
		hung.Close("")
		synctest.Wait()
		if lost := w.when(isLost); lost != time.Now() {
			t.Errorf("lost %v before now", time.Since(lost))
		}
		w.c.Cancel(130, "enough")
		<-w.result
		a.leave(t)
	})
}

// TestFullQueue has an agent that stops reading. The coordinator cuts the agent off, and counts it
// as lost once its lease is over. No other client waits.
func TestFullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		a, b := w.join(1, forever), w.join(2, forever)
		synctest.Wait()
		b.cable.stuck.Store(true)
		at := time.Now()
		for i := range 8 * server.MaxOrders {
			w.c.Signal(syscall.SIGUSR1)
			if i%32 == 0 {
				synctest.Wait()
			}
		}
		if took := time.Since(at); took != 0 {
			t.Errorf("held up for %v", took)
		}
		w.c.Signal(syscall.SIGUSR1)
		ended(b.Session)
		if b.Err() == nil || !strings.Contains(b.Err().Error(), "does not answer") {
			t.Errorf("agent: %v", b.Err())
		}
		b.Close("")
		time.Sleep(lease + killTime)
		if lost := w.when(isLost); lost.Sub(at) < lease+killTime {
			t.Errorf("lost after %v", lost.Sub(at))
		}
		if reasons := strings.Join(w.decided(), "\n"); !strings.Contains(reasons, "n2 was lost: its agent does not take its orders") {
			t.Error(reasons)
		}
		w.c.Cancel(130, "enough")
		<-w.result
		a.leave(t)
	})
}

// ended waits for the end of a session, in virtual time, without taking the session's orders.
func ended(s *session.Session) {
	for s.Err() == nil {
		time.Sleep(time.Millisecond)
	}
}

// helloOf returns the hello of golaunch's agent.
func helloOf(n placement.Node) *pb.Hello {
	return &pb.Hello{Protocol: wire.Protocol, Node: wire.FromNode(n), Instance: "x", Heartbeat: &pb.Heartbeat{}}
}

// introduce sends a hello without golaunch's agent, and returns the coordinator's answer.
func introduce(t *testing.T, cc *grpc.ClientConn, h *pb.Hello) (*pb.ToAgent, error) {
	stream, err := pb.NewRendezvousClient(cc).Join(t.Context(), grpc.MaxCallSendMsgSize(8<<20))
	if err != nil {
		return nil, err
	}
	if err := stream.Send(&pb.FromAgent{Body: &pb.FromAgent_Hello{Hello: h}}); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return stream.Recv()
}

// plainly makes gRPC use connections without golaunch's agent or client.
func plainly(t testing.TB, dial func(context.Context) (net.Conn, error)) *grpc.ClientConn {
	cc, err := grpc.NewClient("passthrough:///head",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	return cc
}

func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		connect := func() *grpc.ClientConn { return plainly(t, w.dial) }
		one, other, silent := connect(), connect(), connect()
		if _, err := introduce(t, one, helloOf(node(1))); err != nil {
			t.Error(err)
		}
		if _, err := introduce(t, one, helloOf(node(2))); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("a second agent on one connection: %v", err)
		}
		big := node(2)
		big.Labels = map[string]string{"x": strings.Repeat("x", 2<<20)}
		if _, err := introduce(t, other, helloOf(big)); err == nil {
			t.Error("a message of 2 MiB was taken")
		}
		at := time.Now()
		stream, err := pb.NewRendezvousClient(silent).Join(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err = stream.Recv(); status.Code(err) != codes.DeadlineExceeded || time.Since(at) != server.HelloTimeout {
			t.Errorf("an agent that says nothing: %v after %v", err, time.Since(at))
		}
		w.c.Cancel(130, "enough")
		<-w.result
		for _, cc := range []*grpc.ClientConn{one, other, silent} {
			cc.Close()
		}
	})
}
