package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/internal/wire/mtls"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/internal/wire/session"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rendezvous/internal/log"
	"github.com/golaunch/golaunch/rendezvous/internal/server"
)

// used returns the processor time of this process, or of this thread. A busy machine changes
// processor time less than elapsed time.
func used(b *testing.B, who int) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(who, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// reporter is a coordinator that welcomes all agents, sends them the same order, and counts their
// reports.
type reporter struct {
	pb.UnimplementedRendezvousServer
	order *pb.ToAgent
	// agents gets a channel from each agent. The channel tells the agent how many orders to expect.
	agents  chan chan int
	reports chan struct{}
}

func (t *reporter) Join(stream pb.Rendezvous_JoinServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	err = stream.Send(&pb.ToAgent{Body: &pb.ToAgent_Welcome{Welcome: &pb.Welcome{
		JobId: "j1", Epoch: "e", Lease: durationpb.New(time.Hour), Heartbeat: heartbeatReply(first.GetHello().GetHeartbeat()),
	}}})
	var taken atomic.Uint64
	left, times := make(chan struct{}), make(chan int)
	go func() {
		defer close(left)
		for {
			msg, err := stream.Recv()
			if err != nil || msg.GetGoodbye() != nil {
				return
			}
			if msg.GetStopped() != nil {
				taken.Store(msg.GetSeq())
				t.reports <- struct{}{}
			}
		}
	}()
	t.agents <- times
	for err == nil {
		select {
		case n := <-times:
			for i := 0; i < n && err == nil; i++ {
				err = stream.Send(&pb.ToAgent{Acked: taken.Load(), Job: t.order.GetJob(), Body: t.order.GetBody()})
			}
		case <-left:
			return nil
		}
	}
	return err
}

// BenchmarkMessage measures an order and a report over loopback and mutual TLS, for connections
// that carry few messages or many. The metric is the processor time of one end for one message.
func BenchmarkMessage(b *testing.B) {
	const orders = 1024
	for _, agents := range []int{1024, 128, 32} {
		for _, size := range []int{20, 8 << 10} {
			b.Run(fmt.Sprintf("together=%d/bytes=%d", orders/agents, size), func(b *testing.B) {
				t := &reporter{
					order:  wire.FromOrder(wire.Order{Job: "j1", Do: wire.Assign{Task: make([]byte, size)}})[0],
					agents: make(chan chan int, agents), reports: make(chan struct{}, orders),
				}
				target, end := t.serve(b)
				defer end()
				streams := make([]chan int, agents)
				for i := range streams {
					defer t.agent(b, target, i).Close("")
					streams[i] = <-t.agents
				}
				var spent time.Duration
				for b.Loop() {
					before := used(b, unix.RUSAGE_SELF)
					for _, times := range streams {
						times <- orders / agents
					}
					for range orders {
						<-t.reports
					}
					spent += used(b, unix.RUSAGE_SELF) - before
				}
				b.ReportMetric(float64(spent.Nanoseconds())/float64(4*orders*b.N), "cpu-ns/end")
			})
		}
	}
}

// BenchmarkConnection measures how an agent joins over loopback and mutual TLS, from TCP to the
// welcome. The metric is the processor time of one end.
func BenchmarkConnection(b *testing.B) {
	t := &reporter{agents: make(chan chan int, 1)}
	target, end := t.serve(b)
	defer end()
	var spent time.Duration
	for b.Loop() {
		before := used(b, unix.RUSAGE_SELF)
		s := t.agent(b, target, 1)
		<-t.agents
		spent += used(b, unix.RUSAGE_SELF) - before
		s.Close("")
	}
	b.ReportMetric(float64(spent.Nanoseconds())/float64(2*b.N), "cpu-ns/end")
}

func (t *reporter) serve(b *testing.B) (target string, end func()) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	srv := server.New(mtls.Server(token, mtls.Identity{Job: "j1"}), func(err error) { b.Error(err) }, nil)
	pb.RegisterRendezvousServer(srv, t)
	done, served := make(chan struct{}), make(chan error, 1)
	go func() { served <- srv.Serve(l, done) }()
	return l.Addr().String(), func() {
		close(done)
		if err := <-served; err != nil {
			b.Error(err)
		}
	}
}

// agent reports on each order.
func (t *reporter) agent(b *testing.B, target string, i int) *session.Session {
	n := node(i)
	s, err := session.Join(b.Context(), session.Options{Target: target, TLS: client1(token, n.Name), Node: n, Warn: func(error) {}})
	if err != nil {
		b.Fatal(err)
	}
	go func() {
		for o := range s.Orders() {
			s.Report(o.Job, job.Stopped{})
		}
	}()
	return s
}

// BenchmarkReport measures how long the coordinator's goroutine takes for each kind of report,
// including the orders and log entries that follow. A job of many nodes starts, fails with all its
// ranks, and starts again. The metrics are processor time.
func BenchmarkReport(b *testing.B) {
	for _, nodes := range []int{1000, 10_000} {
		b.Run(fmt.Sprintf("%dx8", nodes), func(b *testing.B) {
			o := owner{b: b, ranks: 8, spent: map[string]time.Duration{}, count: map[string]int{}}
			for b.Loop() {
				o.life(nodes)
			}
			for name, spent := range o.spent {
				b.ReportMetric(float64(spent.Nanoseconds())/float64(o.count[name]), "cpu-ns/"+name)
			}
		})
	}
}

// owner drives the coordinator's goroutine without a network.
type owner struct {
	b       *testing.B
	c       *Coordinator
	streams []*server.AgentStream
	nodes   []placement.Node
	members []*member
	// wake receives a value when a link has orders.
	wake  chan struct{}
	spent map[string]time.Duration
	count map[string]int
	// ranks is the number of ranks of each node. sent counts the messages to all nodes, and size
	// their bytes.
	ranks, sent, size int
}

func (o *owner) life(nodes int) {
	store, err := log.Open(o.b.TempDir())
	if err != nil {
		o.b.Fatal(err)
	}
	o.c = NewCoordinator(Config{File: store, Warn: func(err error) { o.b.Error(err) }})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		_, err := o.c.Run(ctx)
		ended <- errors.Join(err, store.Close())
	}()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			o.b.Error(err)
		}
	}()
	o.join(nodes)
	s := detached(task("j1", nodes, o.ranks))
	s.BackoffMin, s.BackoffMax = time.Millisecond, time.Millisecond
	o.do("submission", 1, func(int) { o.c.submit(s) })
	said := make([][]any, nodes)
	for i, start := range o.obey() {
		for _, bundle := range start.Group.Bundles {
			said[i] = append(said[i], job.Exited{Rank: bundle.Rank, Exit: report.Exit{Code: 1}, At: now(), Lived: time.Minute, Step: 1, Tail: lastWords})
		}
	}
	o.report("exited", said)
	if again := o.obey(); again[0].Attempt != 1 {
		o.b.Fatalf("attempt %d runs", again[0].Attempt)
	}
}

var lastWords = strings.Repeat("  File \"/opt/train/model.py\", line 1234, in forward\n", 8<<10/53)

func (o *owner) join(nodes int) {
	o.streams, o.members, o.wake = make([]*server.AgentStream, nodes), make([]*member, nodes), make(chan struct{}, 1)
	o.nodes = make([]placement.Node, nodes)
	for i := range o.nodes {
		o.nodes[i] = gpus(i+1, o.ranks)
	}
	o.do("hello", nodes, func(i int) {
		var err error
		o.streams[i] = &server.AgentStream{Wake: o.wake, Cut: make(chan error, 1), Over: make(chan struct{}), Conn: &server.Conn{}}
		hello := &pb.Hello{Protocol: wire.Protocol, Instance: "i", Time: timestamppb.Now(), Node: wire.FromNode(o.nodes[i])}
		if o.members[i], err = o.c.admit(o.streams[i], hello, ""); err != nil {
			o.b.Error(err)
		}
	})
}

// do makes the coordinator's goroutine call f n times, and measures that.
func (o *owner) do(name string, n int, f func(i int)) {
	spent, err := ask(o.c, func() (time.Duration, error) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		before := used(o.b, unix.RUSAGE_THREAD)
		for i := range n {
			f(i)
		}
		return used(o.b, unix.RUSAGE_THREAD) - before, nil
	})
	if err != nil {
		o.b.Fatal(err)
	}
	if n >= len(o.streams)-1 { // the reports of few nodes would give no mean
		o.spent[name], o.count[name] = o.spent[name]+spent, o.count[name]+n
	}
}

// obey makes all nodes carry out their orders, until each node has received its order to start.
func (o *owner) obey() []job.Start {
	starts := make([]job.Start, len(o.streams))
	for started := 0; started < len(o.streams); {
		<-o.wake
		kind, said := "", make([][]any, len(o.streams))
		for i, l := range o.streams {
			for _, msg := range l.Drain() {
				o.sent, o.size = o.sent+1, o.size+proto.Size(msg)
				switch do := wire.ToAction(o.nodes[i], msg).(type) {
				case job.Prepare:
					said[i] = append(said[i], job.Prepared{Unit: do.Unit, Attempt: do.Attempt, Port: 4000})
				case job.Reach:
					kind, said[i] = "reached", append(said[i], job.Reached{Seq: do.Seq})
				case job.Start:
					starts[i] = do
					started++
					kind, said[i] = "started", append(said[i], job.Started{Unit: do.Unit, Attempt: do.Attempt, PIDs: make([]int, o.ranks)})
				case job.Stop:
					kind, said[i] = "stopped", append(said[i], job.Stopped{Unit: do.Unit, Attempt: do.Attempt})
				}
			}
		}
		o.report(kind, said)
	}
	return starts
}

// report makes the coordinator handle the reports of the nodes.
func (o *owner) report(kind string, said [][]any) {
	var from []int
	var msgs []*pb.FromAgent
	for i, all := range said {
		for _, ev := range all {
			msg := wire.FromEvent("j1", ev)
			msg.Seq = o.members[i].taken.Load() + 1
			from, msgs = append(from, i), append(msgs, msg)
		}
	}
	o.do(kind, len(msgs), func(i int) { o.c.take(o.members[from[i]], o.streams[from[i]], msgs[i]) })
}
