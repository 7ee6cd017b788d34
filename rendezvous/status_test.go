package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/golaunch/golaunch/internal/core/capacity"
	"github.com/golaunch/golaunch/internal/core/charge"
	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/replica"
	"github.com/golaunch/golaunch/internal/testkit/wiretest"
	"github.com/golaunch/golaunch/internal/wire"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/internal/wire/session"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rendezvous/internal/server"
)

// largestCluster returns a coordinator with the most nodes that a cluster may have. No agent is
// connected. One job has all nodes, and failed jobs have 64 nodes each.
func largestCluster(tb testing.TB, ended int) (*Coordinator, func(context.Context) (net.Conn, error)) {
	c := NewCoordinator(Config{Lease: simLease, Warn: func(err error) { tb.Error(err) }}) // no agent comes
	l, dial := wiretest.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	go c.Serve(l, nil)
	go c.Run(ctx)
	tb.Cleanup(func() {
		cancel()
		<-c.done
	})
	tail, traceback, kernel := strings.Repeat("t", wire.MaxTail), strings.Repeat("b", wire.MaxTail), strings.Repeat("k", wire.MaxTail)
	_, err := ask(c, func() (bool, error) {
		for i := range mostNodes {
			n := usualNode(i)
			c.expect(replica.Member{Node: n, Patience: c.patience()})
			c.applyEvent(cluster.Joined{Node: n})
		}
		for i := range ended {
			r := c.track(&replica.Record{
				Submission: task(fmt.Sprint("ended", i), 64, 8), Since: now().Add(time.Duration(i) - time.Hour), Over: now(), Nodes: map[string]bool{},
			})
			r.Result = &report.Result{Code: 1, Reason: "rank 3 failed", Cause: &report.Failure{Why: "why", Tail: tail, Traceback: traceback, Kernel: kernel}}
			for n := range 64 {
				r.Nodes[usualNode(n).Name] = true
			}
			c.state.Ended = append(c.state.Ended, r.Job.ID)
		}
		return true, nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := (clientService{c: c}).submit(detached(task("large", mostNodes, 8)), nil); err != nil {
		tb.Fatal(err)
	}
	return c, dial
}

func usualNode(i int) placement.Node {
	n := gpus(i, 8)
	n.Name, n.Addr, n.CPUs, n.Memory = fmt.Sprintf("gpu-node-%05d", i), netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 192, 2<<40
	n.Labels = map[string]string{
		"topology": fmt.Sprintf("spine%d.leaf%d", i/512, i/16), "version.kernel": "6.8.0-1021-aws", "version.driver": "570.172.08",
		"version.nccl": "2.28.7", "golaunch.network": "efa rdma libfabric=1.22.0 plugin=1.13.2",
	}
	return n
}

func clientOf(tb testing.TB, dial func(context.Context) (net.Conn, error)) *session.Client {
	client, err := session.Connect(tb.Context(), session.ClientOptions{Target: "memory", Dial: func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx) }})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { client.Close() })
	return client
}

// TestLargestCluster checks that the status of the largest cluster arrives, with the missing ranks
// of its largest job.
func TestLargestCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, dial := largestCluster(t, replica.MaxEnded)
		client := clientOf(t, dial)
		raw := plainly(t, dial)
		defer raw.Close()
		tellsHowItStands(t, pb.NewClusterClient(raw), client)
		tellsWhoIsMissing(t, c, client)
	})
}

// tellsHowItStands checks the status. It drops each message after checking it, so that the test
// itself does not need 100 MB.
func tellsHowItStands(t *testing.T, raw pb.ClusterClient, client *session.Client) {
	stream, err := raw.Status(t.Context(), &pb.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	nodes, jobs := 0, 0
	for m := (&pb.StatusReply{}); err == nil; m, err = stream.Recv() {
		if size := proto.Size(m); size > wire.MaxPiece {
			t.Errorf("a message of %d bytes", size)
		}
		var s report.Status
		wire.AddStatus(&s, m)
		for _, n := range s.Nodes {
			if n.Name != usualNode(nodes).Name || len(n.GPUs) != 8 || len(n.Holds) != 1 || len(n.Holds[0].GPUs) != 8 {
				t.Fatalf("node %d: %+v", nodes, n)
			}
			nodes++
		}
		for _, j := range s.Jobs {
			if jobs++; j.ID == "large" && len(j.Nodes) == mostNodes && j.GPUs == 8*mostNodes {
				continue
			}
			cause := j.Result.Cause
			if j.ID != fmt.Sprint("ended", jobs-1) || len(j.Nodes) != 64 || len(cause.Tail)+len(cause.Traceback)+len(cause.Kernel) != 3*wire.MaxTail {
				t.Fatalf("job %d: %s on %v", jobs-1, j.ID, j.Nodes)
			}
		}
	}
	if !errors.Is(err, io.EOF) || nodes != mostNodes || jobs != replica.MaxEnded+1 {
		t.Errorf("%d nodes and %d jobs: %v", nodes, jobs, err)
	}
	query := func(q report.Query) report.Status {
		t.Helper()
		s, err := client.Query(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if s := query(report.Query{Brief: true}); len(s.Nodes) != mostNodes || len(s.Jobs) != replica.MaxEnded+1 || s.Jobs[7].Result.Cause.Tail != "" {
		t.Errorf("%d nodes and %d jobs in brief", len(s.Nodes), len(s.Jobs))
	}
	if s := query(report.Query{Open: true, Jobs: true}); len(s.Nodes) != 0 || len(s.Jobs) != 1 || s.Jobs[0].ID != "large" {
		t.Errorf("%d nodes and %d jobs that are open", len(s.Nodes), len(s.Jobs))
	}
	if s := query(report.Query{Job: "ended7"}); len(s.Nodes) != 64 || len(s.Jobs) != 1 || len(s.Jobs[0].Result.Cause.Tail) != wire.MaxTail {
		t.Errorf("%d nodes and %d jobs of one", len(s.Nodes), len(s.Jobs))
	}
	if s := query(report.Query{Job: "ended7", Brief: true}); s.Jobs[0].Result.Cause.Tail != "" || s.Jobs[0].Result.Cause.Why != "why" {
		t.Errorf("in brief: %+v", s.Jobs[0].Result.Cause)
	}
}

// TestAStatusThatIsNotRead checks that the coordinator drops a status that its client does not read
// in time.
func TestAStatusThatIsNotRead(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		_, _ = ask(h.c, func() (bool, error) {
			for i := range 100 {
				h.c.applyEvent(cluster.Joined{Node: largestNode(fmt.Sprint("n", i))})
			}
			return true, nil
		})
		c := &cable{dial: h.connect}
		client := h.raw(c)
		if _, err := client.Status(t.Context(), &pb.StatusRequest{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := len(c.conns); n != 1 {
			t.Fatalf("%d connections", n)
		}
		time.Sleep(2 * statusReadTimeout)
		stream, err := client.Status(t.Context(), &pb.StatusRequest{Job: "a"}, grpc.WaitForReady(true))
		if err == nil {
			_, err = stream.Recv()
		}
		if status.Code(err) != codes.NotFound {
			t.Error(err)
		}
		if n := len(c.conns); n != 2 {
			t.Errorf("%d connections", n)
		}
	})
}

// oneStatus is a coordinator that has just this status.
type oneStatus struct {
	pb.UnimplementedClusterServer
	all report.Status
}

func (s oneStatus) Status(_ *pb.StatusRequest, stream pb.Cluster_StatusServer) error {
	for m := range wire.FromStatus(s.all) {
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	return nil
}

// statusOf returns the status of a node that no job uses.
func statusOf(n placement.Node) report.NodeStatus {
	s := report.NodeStatus{Name: n.Name, Addr: n.Addr, CPUs: n.CPUs, Memory: n.Memory, Labels: n.Labels}
	for _, g := range n.GPUs {
		s.GPUs = append(s.GPUs, report.GPU{Index: g.Index, UUID: g.UUID, HeldBy: g.HeldBy})
	}
	return s
}

// TestLongestStatus has nodes and jobs that are each too long for one message.
func TestLongestStatus(t *testing.T) {
	synctest.Test(t, testLongestStatus)
}

func testLongestStatus(t *testing.T) {
	result := largestResult()
	exclusion := report.Exclusion{Job: largestID, Why: text(wire.MaxText), Until: someDay}
	hold := report.Holding{Job: largestID, GPUs: repeat(wire.MaxGPUs, func(i int) int { return i })}
	large := largestNode(largestName)
	for i := range large.GPUs {
		large.GPUs[i].HeldBy = "reservation " + largestID
	}
	charges := repeat(5000, func(i int) report.Charge {
		return report.Charge{
			User: fmt.Sprintf("%0*d", wire.MaxUser, i), Kind: text(capacity.MaxKind), Price: math.Pi, Idle: true, NodeHours: math.Pi, GPUHours: math.E,
		}
	})
	s := report.Status{Version: "1", Since: someDay, Counted: someDay, Charges: charges}
	for _, name := range []string{"a", "b", "c"} {
		large.Name = name + largestName[1:]
		n := statusOf(large)
		n.Silent, n.Drained, n.Excluded = longest, true, repeat(1000, func(int) report.Exclusion { return exclusion })
		n.Holds = repeat(2000, func(int) report.Holding { return hold })
		s.Nodes = append(s.Nodes, n, statusOf(node(1)))
		s.Jobs = append(s.Jobs, report.JobStatus{
			ID: name, Title: text(wire.MaxTitle), Phase: string(job.Gathering), Waits: text(wire.MaxText), Submitted: someDay, Finished: someDay, Result: &result, Workspace: &largestWorkspace,
			Goodput: result.Goodput, Start: result.Start, Saves: result.Saves, Nodes: repeat(2*mostNodes, func(i int) string { return fmt.Sprintf("%0253d", i) }), Charges: charges[:charge.MaxKinds+1],
		})
	}
	l, dial := wiretest.Pipe()
	srv := server.New(nil, func(err error) { t.Error(err) }, nil)
	pb.RegisterClusterServer(srv, oneStatus{all: s})
	done := make(chan struct{})
	defer close(done)
	go srv.Serve(l, done)
	got, err := clientOf(t, dial).Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, s) {
		t.Errorf("%d nodes and %d jobs arrive otherwise", len(got.Nodes), len(got.Jobs))
	}
}

// tellsWhoIsMissing checks the effects of a report about 100,000 ranks, from the node that serves
// their store.
func tellsWhoIsMissing(t *testing.T, c *Coordinator, client *session.Client) {
	first := usualNode(0).Name
	_, _ = ask(c, func() (bool, error) {
		c.removeMember(c.members[first], "", nil)
		return true, nil
	})
	dial := func(ctx context.Context) (net.Conn, error) { return client.Dial(ctx, client.Target) }
	s, err := session.Join(t.Context(), session.Options{Target: "memory", Node: usualNode(0), Dial: dial, Warn: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close("")
	go func() {
		for range s.Orders() { // its answers follow below
		}
	}()
	w, err := client.Watch(t.Context(), "large")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	hears := func(reason string) {
		t.Helper()
		for {
			u, err := w.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if u.Decision != nil && u.Decision.Reason == reason {
				return
			}
		}
	}
	pid := func(rank int) int { return 1_000_000 + rank }
	_, _ = ask(c, func() (bool, error) {
		r := c.jobs["large"]
		c.applyJobEvent(r, job.Prepared{Node: first, Port: 4000})
		for i := range mostNodes - 1 {
			c.applyJobEvent(r, job.Reached{Node: usualNode(i + 1).Name, Seq: i + 1})
		}
		for i := range mostNodes {
			c.applyJobEvent(r, job.Started{Node: usualNode(i).Name, PIDs: repeat(8, func(local int) int { return pid(8*i + local) })})
		}
		return true, nil
	})
	hears("attempt 0 runs")
	m := job.Meeting{Came: 8 * mostNodes, Waiting: 8*mostNodes - 1, Key: "k"}
	m.Clients = repeat(8*mostNodes, func(rank int) job.Client {
		return job.Client{Addr: usualNode(rank / 8).Addr, PID: pid(rank), Key: "k"}
	})
	m.Clients[77_777].Key = ""
	s.Report("large", wire.Met{Meeting: m})
	hears(`99999 of 100000 ranks wait for key "k"; not rank 77777 (gpu-node-09722, pid 1077777)`)
	m.Clients = slices.Delete(m.Clients, 77_777, 77_779)
	s.Report("large", wire.Met{Meeting: m})
	hears("99998 of 100000 ranks connected; missing: rank 77777 (gpu-node-09722, pid 1077777), rank 77778 (gpu-node-09722, pid 1077778)")
}

// BenchmarkStatus measures the status of 12,500 nodes, with 1,000 failed jobs and without. It
// measures the work of the coordinator's goroutine, and how long a client waits.
func BenchmarkStatus(b *testing.B) {
	for _, ended := range []int{0, replica.MaxEnded} {
		c, dial := largestCluster(b, ended)
		client := clientOf(b, dial)
		b.Run(fmt.Sprintf("owner/ended=%d", ended), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ask(c, func() (statusSnapshot, error) { return c.statusSnapshot(report.Query{}) }); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("whole/ended=%d", ended), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s, err := client.Status(b.Context())
				if err != nil || len(s.Nodes) != mostNodes || len(s.Jobs) != ended+1 {
					b.Fatal(len(s.Nodes), err)
				}
			}
		})
	}
}
