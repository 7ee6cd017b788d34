package wire

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/replica"
	"github.com/golaunch/golaunch/internal/testkit/wiretest"
	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

func TestEventsArrive(t *testing.T) {
	prepared, reached := wiretest.Filled[job.Prepared](), wiretest.Filled[job.Reached]()
	saved := wiretest.Filled[job.Saved]()
	prepared.At, reached.At, saved.At = time.Time{}, time.Time{}, time.Time{} // the entry's
	for _, ev := range []job.Event{
		prepared, reached, wiretest.Filled[job.Started](), wiretest.Filled[job.Stalled](), wiretest.Filled[job.Stepped](), saved, wiretest.Filled[job.Exited](),
		wiretest.Filled[job.Stopped](),
		job.Exited{},
	} {
		node := reflect.ValueOf(ev).FieldByName("Node").String()
		m := wiretest.Arrives(t, FromEvent("j7", ev))
		if got := ToEvent(node, m); !reflect.DeepEqual(got, ev) || m.GetJob() != "j7" {
			t.Errorf("got  %+v of job %s\nwant %+v", got, m.GetJob(), ev)
		}
	}
	if m := wiretest.Arrives(t, FromEvent("j7", Opened{})); m.GetOpened() == nil || m.GetJob() != "j7" {
		t.Errorf("opened: %v", m)
	}
	if m := wiretest.Arrives(t, FromEvent("", Restated{})); m.GetRestated() == nil {
		t.Errorf("restated: %v", m)
	}
	met := Met{Unit: 7, Attempt: 7, Meeting: job.Meeting{Key: "k", Came: 3, Waiting: 1, Clients: []job.Client{
		{Addr: netip.MustParseAddr("10.0.0.1"), PID: 7}, {Addr: netip.MustParseAddr("10.0.0.1"), PID: 8, Key: "k"}, {Addr: netip.MustParseAddr("fd00::7")},
	}}}
	if m := wiretest.Arrives(t, FromEvent("j7", met)).GetMet(); m.GetUnit() != 7 || m.GetAttempt() != 7 || !reflect.DeepEqual(ToMeeting(m), met.Meeting) {
		t.Errorf("met: %v", m)
	}
	if ToEvent("n", &pb.FromAgent{}) != nil || FromEvent("j7", job.Joined{}) != nil {
		t.Error("something that is no report was translated")
	}
}

// TestPeersOfAnyNumber checks that any number of peers is sent in messages of a bounded size.
func TestPeersOfAnyNumber(t *testing.T) {
	peers := make([]netip.Addr, 2*MaxPeers+7)
	for i := range peers {
		peers[i] = netip.AddrFrom16([16]byte{0xfd, 13: byte(i >> 16), 14: byte(i >> 8), 15: byte(i)})
	}
	node := placement.Node{Name: "n"}
	for _, do := range []any{
		job.Prepare{Node: "n", Fresh: true, Peers: peers},
		job.Admit{Node: "n", Peers: peers},
		job.Admit{Node: "n", Peers: peers[:3]},
		Signal{syscall.SIGUSR2},
	} {
		var before []netip.Addr
		var whole any
		for _, m := range FromOrder(Order{"j7", do}) {
			if size := proto.Size(m); size > MaxPiece+1<<10 || m.GetJob() != "j7" || whole != nil {
				t.Errorf("%T comes in a message of %d bytes of job %q, after %T", do, size, m.GetJob(), whole)
			}
			m = wiretest.Arrives(t, m)
			before, whole = Gather(before, m, ToAction(node, m))
		}
		if !reflect.DeepEqual(whole, do) || before != nil {
			t.Errorf("%T arrives otherwise, with %d peers left over", do, len(before))
		}
	}
}

func TestOrdersArrive(t *testing.T) {
	start, prepare, reach, stop := wiretest.Filled[job.Start](), wiretest.Filled[job.Prepare](), wiretest.Filled[job.Reach](), wiretest.Filled[job.Stop]()
	prepare.Node, reach.Node, stop.Node = start.Group.Node.Name, start.Group.Node.Name, start.Group.Node.Name
	stop.Alarm = 0 // the coordinator adds the time until then to Grace
	cpu := start
	cpu.Group.Bundles, cpu.World.GPUs = []placement.Bundle{{Rank: 3}}, nil
	for _, do := range []any{
		prepare, reach, start, cpu, stop, wiretest.Filled[job.Finish](),
		job.Admit{Node: start.Group.Node.Name, Peers: prepare.Peers},
		job.Finish{},
		Signal{syscall.SIGUSR2},
		wiretest.Filled[Assign](),
		Assign{Task: []byte("\xff\x00")},
		Assign{Submitter: new(uint32)},
		Leave{"drained"},
		Ask{Question: Question{About: AboutLogs, Logs: wiretest.Filled[report.LogFilter]()}, ID: "x"},
		Ask{Question: Question{About: AboutRAS}},
		Ask{Question: Question{About: AboutSamples, Samples: wiretest.Filled[SampleFilter]()}},
		Ask{Question: Question{About: AboutStacks}},
		Ask{Question: Question{About: AboutPing}},
		Ask{Question: Question{About: AboutGPUs}},
		Ask{},
	} {
		m := wiretest.Arrives(t, fromOrder(Order{"j7", do}))
		if got := ToAction(start.Group.Node, m); !reflect.DeepEqual(got, do) || m.GetJob() != "j7" {
			t.Errorf("got  %+v of job %s\nwant %+v", got, m.GetJob(), do)
		}
	}
	if ToAction(start.Group.Node, &pb.ToAgent{}) != nil || fromOrder(Order{"j7", job.Wait{}}) != nil {
		t.Error("something that is no order was translated")
	}
}

func TestNodesArrive(t *testing.T) {
	n := wiretest.Filled[placement.Node]()
	if got := ToNode(wiretest.Arrives(t, FromNode(n))); !reflect.DeepEqual(got, n) {
		t.Errorf("got  %+v\nwant %+v", got, n)
	}
	if got := ToNode(&pb.Node{Addr: "::ffff:10.0.0.1"}); got.Addr != netip.MustParseAddr("10.0.0.1") {
		t.Errorf("address %v", got.Addr)
	}
	if got := ToNode(&pb.Node{Addr: "example.com"}); got.Addr.IsValid() {
		t.Errorf("address %v", got.Addr)
	}
}

// TestClusterArrives has the questions of clients and their answers. A result's texts are bounded
// elsewhere.
func TestClusterArrives(t *testing.T) {
	s := wiretest.Filled[replica.Submission]()
	s.Job.Request.Keep = nil
	s.Submitter, s.User = nil, "" // clients do not send these fields
	if got := ToSubmission(wiretest.Whole(t, slices.Values(FromSubmission(s)))); !reflect.DeepEqual(got, s) {
		t.Errorf("got  %+v\nwant %+v", got, s)
	}
	if got := ToSubmission(wiretest.Whole(t, slices.Values(FromSubmission(replica.Submission{})))); !reflect.DeepEqual(got, replica.Submission{}) {
		t.Errorf("got  %+v of nothing", got)
	}
	d := wiretest.Filled[report.Decision]()
	d.Result = nil // it is sent in its own update
	if got := ToDecision(wiretest.Arrives(t, fromDecision(d)).GetDecision()); !reflect.DeepEqual(got, d) {
		t.Errorf("got  %+v\nwant %+v", got, d)
	}
	var status report.Status
	want := wiretest.Filled[report.Status]()
	want.Jobs[1].ID, want.Nodes[1].Name = "another", "another"
	for m := range FromStatus(want) {
		AddStatus(&status, wiretest.Arrives(t, m))
	}
	if !reflect.DeepEqual(status, want) {
		t.Errorf("got  %+v\nwant %+v", status, want)
	}
	chunk := wiretest.Filled[report.LogChunk]()
	chunk.Node, chunk.Missing = "", "" // the answer has them
	a := Answer{Node: "n7", Missing: "why", Chunk: &chunk, Facts: []byte("{}")}
	for m := range FromAnswer(a) {
		if got := ToAnswer(wiretest.Arrives(t, m)); !reflect.DeepEqual(got, a) {
			t.Errorf("got  %+v\nwant %+v", got, a)
		}
	}
	from := map[string][]report.LogPosition{"": wiretest.Filled[[]report.LogPosition](), "n7": wiretest.Filled[[]report.LogPosition]()}
	if got := wiretest.Whole(t, slices.Values(FromInquiry(Inquiry{Job: "j7"}, from))); !reflect.DeepEqual(ToFrom(got.GetFrom()), from) || got.GetJob() != "j7" {
		t.Errorf("got  %+v\nwant %+v", got, from)
	}
	q := Inquiry{Job: "j7", Question: Question{About: AboutPing}, Nodes: []string{"a", "b"}, Within: time.Second}
	if got := ToInquiry(wiretest.Whole(t, slices.Values(FromInquiry(q, nil)))); !reflect.DeepEqual(got, q) {
		t.Errorf("got  %+v\nwant %+v", got, q)
	}
	f := wiretest.Filled[report.LogFilter]()
	if got := ToFilter(wiretest.Arrives(t, fromFilter(f))); !reflect.DeepEqual(got, f) {
		t.Errorf("got  %+v\nwant %+v", got, f)
	}
}

// TestOutputIsBounded checks that a report fits into a message, for any output of a rank.
func TestOutputIsBounded(t *testing.T) {
	noise := strings.Repeat("\xff\x00", 1<<20)
	m := FromEvent("j7", job.Exited{Tail: noise + "end", Traceback: noise, Exit: report.Exit{Spawn: noise}})
	if size := proto.Size(m); size > MaxMessage/2 {
		t.Errorf("%d bytes", size)
	}
	ev := ToEvent("n1", wiretest.Arrives(t, m)).(job.Exited)
	if !strings.HasSuffix(ev.Tail, "\xff\x00end") || len(ev.Tail) != MaxTail {
		t.Errorf("tail of %d bytes", len(ev.Tail))
	}
	if !utf8.ValidString(ev.Exit.Spawn) {
		t.Error("invalid UTF-8")
	}
	hostile := &pb.FromAgent{Body: &pb.FromAgent_Exited{Exited: &pb.Exited{Tail: []byte(noise)}}}
	if ev := ToEvent("n1", hostile).(job.Exited); len(ev.Tail) != MaxTail {
		t.Errorf("tail of %d bytes", len(ev.Tail))
	}
}
