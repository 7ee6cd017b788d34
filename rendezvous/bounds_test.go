package rendezvous

import (
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/golaunch/golaunch/placement"
	pb "github.com/golaunch/golaunch/rendezvous/rendezvouspb"
)

func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		facts := map[string]string{"--max-restarts": "5", "--nodes": "3"}
		w := newWorldOf(t.Context(), t, Config{Facts: facts}, one(3))
		a := w.join(1, forever)
		join := func(o Options) error {
			o.Target, o.Dial, o.Warn = "head:1", w.dial, w.warn
			s, err := Join(t.Context(), o)
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
			o    Options
			want string
		}{
			{
				Options{Node: node(2), Facts: map[string]string{"--max-restarts": "3", "--nodes": "3"}},
				"the coordinator at head:1 refused node n2: --max-restarts differs: 3 here, 5 on the coordinator",
			},
			{Options{Node: node(2), Facts: map[string]string{"--max-restarts": "5"}}, "--nodes differs: unset here, 3 on the coordinator"},
			{
				Options{Node: node(2), Facts: map[string]string{"--max-restarts": "5", "--nodes": "3", "--x": "1"}},
				"--x differs: 1 here, unset on the coordinator",
			},
			{Options{Node: named("n1", "")}, "there is a node n1 already, at 10.0.0.1"},
			{Options{Node: named("n2", "taken")}, "address 10.0.0.1 is node n1's"},
			{Options{Node: named("../etc", "")}, `"../etc" is no node name`},
			{Options{Node: named("", "")}, `"" is no node name`},
			{Options{Node: placement.Node{Name: "n2"}}, "node n2 has no address that others could reach"},
			{Options{Node: big}, "too long"},
		} {
			err := join(c.o)
			var r *RefusedError
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

// TestHungAgent does not take its orders: it loses its lease, and the coordinator stops waiting.
func TestHungAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		a := w.join(1, forever)
		c := newCable(w.dial)
		hung, err := Join(t.Context(), Options{Target: "head:1", Node: node(2), Dial: c.connect, Proof: c.proof, Warn: w.warn})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		at := time.Now()
		for range 2 * maxPending {
			w.c.Signal(syscall.SIGUSR1)
		}
		<-hung.done
		if took := time.Since(at); took < lease/2 || took > lease {
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

// TestFullQueue has an agent that stops reading. It is cut off, and lost once its lease is over; nobody else is held up.
func TestFullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		a, b := w.join(1, forever), w.join(2, forever)
		synctest.Wait()
		b.cable.stuck.Store(true)
		at := time.Now()
		for i := range 8 * maxOrders {
			w.c.Signal(syscall.SIGUSR1)
			if i%(maxPending/2) == 0 {
				synctest.Wait()
			}
		}
		if took := time.Since(at); took != 0 {
			t.Errorf("held up for %v", took)
		}
		w.c.Signal(syscall.SIGUSR1)
		<-b.done
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

// hello says hello without golaunch's agent, and has the answer.
func hello(t *testing.T, cc *grpc.ClientConn, n placement.Node) error {
	stream, err := pb.NewRendezvousClient(cc).Join(t.Context(), grpc.MaxCallSendMsgSize(8<<20))
	if err != nil {
		return err
	}
	d := dialer{Options: Options{Clock: noTime}}
	if err := stream.Send(d.hello(n)); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	_, err = stream.Recv()
	return err
}

func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		connect := func() *grpc.ClientConn {
			conn, err := w.dial(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			cc, err := client(conn)
			if err != nil {
				t.Fatal(err)
			}
			return cc
		}
		one, other, silent := connect(), connect(), connect()
		if err := hello(t, one, node(1)); err != nil {
			t.Error(err)
		}
		if err := hello(t, one, node(2)); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("a second agent on one connection: %v", err)
		}
		big := node(2)
		big.Labels = map[string]string{"x": strings.Repeat("x", 2<<20)}
		if err := hello(t, other, big); err == nil {
			t.Error("a message of 2 MiB was taken")
		}
		at := time.Now()
		stream, err := pb.NewRendezvousClient(silent).Join(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err = stream.Recv(); status.Code(err) != codes.DeadlineExceeded || time.Since(at) != patienceForHello {
			t.Errorf("an agent that says nothing: %v after %v", err, time.Since(at))
		}
		w.c.Cancel(130, "enough")
		<-w.result
		for _, cc := range []*grpc.ClientConn{one, other, silent} {
			cc.Close()
		}
	})
}
