package rendezvous

import (
	"iter"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/golaunch/golaunch/internal/job"
	"github.com/golaunch/golaunch/placement"
	pb "github.com/golaunch/golaunch/rendezvous/rendezvouspb"
)

// fill sets every field to something, so that a field which the wire format forgets makes a test fail.
func fill(v reflect.Value) {
	switch x := v.Addr().Interface().(type) {
	case *time.Time:
		*x = time.Unix(1_700_000_000, 123).UTC()
		return
	case *netip.Addr:
		*x = netip.MustParseAddr("fd00::7")
		return
	case *placement.GPU:
		*x = placement.GPU{Index: 7, UUID: "text"} // the rest is for its own node
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0))
		fill(v.Index(1))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(value)
		v.SetMapIndex(key, value)
	case reflect.Func, reflect.Interface: // no message has one
	case reflect.Uint8:
		v.SetUint(7)
	case reflect.String:
		v.SetString(v.Type().Name() + " text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(0.7)
	default:
		v.SetInt(7)
	}
}

func filled[T any]() T {
	var v T
	fill(reflect.ValueOf(&v).Elem())
	return v
}

// wire is what arrives of a message.
func wire[M proto.Message](t *testing.T, m M) M {
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	out := m.ProtoReflect().New().Interface()
	if err := proto.Unmarshal(b, out); err != nil {
		t.Fatal(err)
	}
	return out.(M)
}

// whole is what arrives of a message that is sent in several.
func whole[M proto.Message](t *testing.T, pieces iter.Seq[M]) (all M) {
	first := true
	for m := range pieces {
		if first {
			all, first = wire(t, m), false
		} else {
			proto.Merge(all, wire(t, m))
		}
	}
	return all
}

func TestEventsArrive(t *testing.T) {
	for _, ev := range []job.Event{
		filled[job.Prepared](), filled[job.Reached](), filled[job.Started](), filled[job.Stalled](), filled[job.Stepped](), filled[job.Exited](),
		filled[job.Stopped](),
		job.Exited{},
	} {
		node := reflect.ValueOf(ev).FieldByName("Node").String()
		m := wire(t, fromEvent("j7", ev))
		if got := toEvent(node, m); !reflect.DeepEqual(got, ev) || m.GetJob() != "j7" {
			t.Errorf("got  %+v of job %s\nwant %+v", got, m.GetJob(), ev)
		}
	}
	if m := wire(t, fromEvent("j7", Opened{})); m.GetOpened() == nil || m.GetJob() != "j7" {
		t.Errorf("opened: %v", m)
	}
	if m := wire(t, fromEvent("", Restated{})); m.GetRestated() == nil {
		t.Errorf("restated: %v", m)
	}
	met := Met{Unit: 7, Attempt: 7, Meeting: job.Meeting{Key: "k", Came: 3, Waiting: 1, Clients: []job.Client{
		{Addr: netip.MustParseAddr("10.0.0.1"), PID: 7}, {Addr: netip.MustParseAddr("10.0.0.1"), PID: 8, Key: "k"}, {Addr: netip.MustParseAddr("fd00::7")},
	}}}
	if m := wire(t, fromEvent("j7", met)).GetMet(); m.GetUnit() != 7 || m.GetAttempt() != 7 || !reflect.DeepEqual(toMeeting(m), met.Meeting) {
		t.Errorf("met: %v", m)
	}
	if toEvent("n", &pb.FromAgent{}) != nil || fromEvent("j7", job.Joined{}) != nil {
		t.Error("something that is no report was translated")
	}
}

func TestOrdersArrive(t *testing.T) {
	start, prepare, reach, stop := filled[job.Start](), filled[job.Prepare](), filled[job.Reach](), filled[job.Stop]()
	prepare.Node, reach.Node, stop.Node = start.Group.Node.Name, start.Group.Node.Name, start.Group.Node.Name
	cpu := start
	cpu.Group.Bundles, cpu.World.GPUs = []placement.Bundle{{Rank: 3}}, nil
	for _, do := range []any{
		prepare, reach, start, cpu, stop, filled[job.Finish](),
		job.Admit{Node: start.Group.Node.Name, Peers: prepare.Peers},
		job.Finish{},
		Signal{syscall.SIGUSR2},
		Assign{[]byte("\xff\x00")},
		Leave{"drained"},
		ReadLogs{Filter: filled[LogFilter](), id: "x"},
		ReadLogs{},
	} {
		m := wire(t, fromOrder(Order{"j7", do}))
		if got := toAction(start.Group.Node, m); !reflect.DeepEqual(got, do) || m.GetJob() != "j7" {
			t.Errorf("got  %+v of job %s\nwant %+v", got, m.GetJob(), do)
		}
	}
	if toAction(start.Group.Node, &pb.ToAgent{}) != nil || fromOrder(Order{"j7", job.Wait{}}) != nil {
		t.Error("something that is no order was translated")
	}
}

func TestNodesArrive(t *testing.T) {
	n := filled[placement.Node]()
	if got := toNode(wire(t, fromNode(n))); !reflect.DeepEqual(got, n) {
		t.Errorf("got  %+v\nwant %+v", got, n)
	}
	if got := toNode(&pb.Node{Addr: "::ffff:10.0.0.1"}); got.Addr != netip.MustParseAddr("10.0.0.1") {
		t.Errorf("address %v", got.Addr)
	}
	if got := toNode(&pb.Node{Addr: "example.com"}); got.Addr.IsValid() {
		t.Errorf("address %v", got.Addr)
	}
}

// TestClusterArrives has what clients ask and are told. A result's texts are bounded elsewhere.
func TestClusterArrives(t *testing.T) {
	s := filled[Submission]()
	s.Job.Request.Keep = nil
	if got := toSubmission(whole(t, slices.Values(fromSubmission(s)))); !reflect.DeepEqual(got, s) {
		t.Errorf("got  %+v\nwant %+v", got, s)
	}
	if got := toSubmission(whole(t, slices.Values(fromSubmission(Submission{})))); !reflect.DeepEqual(got, Submission{}) {
		t.Errorf("got  %+v of nothing", got)
	}
	d := filled[Decision]()
	d.Event = nil
	if got := toDecision(wire(t, fromDecision(d)).GetDecision()); !reflect.DeepEqual(got, d) {
		t.Errorf("got  %+v\nwant %+v", got, d)
	}
	p, r := filled[placement.Plan](), filled[job.Result]()
	for _, u := range []Update{{Decision: &d}, {Granted: &p}, {Result: &r}} {
		var w Watch
		if got, ok := w.take(whole(t, fromUpdate(u))); !ok || !reflect.DeepEqual(got, u) {
			t.Errorf("got  %+v\nwant %+v", got, u)
		}
	}
	var status Status
	want := filled[Status]()
	want.Jobs[1].ID, want.Nodes[1].Node.Name = "another", "another"
	for m := range fromStatus(want) {
		status.add(wire(t, m))
	}
	if !reflect.DeepEqual(status, want) {
		t.Errorf("got  %+v\nwant %+v", status, want)
	}
	c := filled[LogChunk]()
	if got := toChunk(wire(t, fromChunk(c))); !reflect.DeepEqual(got, c) {
		t.Errorf("got  %+v\nwant %+v", got, c)
	}
	from := map[string][]LogPosition{"": filled[[]LogPosition](), "n7": filled[[]LogPosition]()}
	if got := whole(t, slices.Values(fromRequest("j7", LogFilter{}, from))); !reflect.DeepEqual(toFrom(got.GetFrom()), from) || got.GetJob() != "j7" {
		t.Errorf("got  %+v\nwant %+v", got, from)
	}
	f := filled[LogFilter]()
	if got := toFilter(wire(t, fromFilter(f))); !reflect.DeepEqual(got, f) {
		t.Errorf("got  %+v\nwant %+v", got, f)
	}
}

// TestOutputIsBounded holds that a report fits into a message whatever a rank has printed.
func TestOutputIsBounded(t *testing.T) {
	noise := strings.Repeat("\xff\x00", 1<<20)
	m := fromEvent("j7", job.Exited{Tail: noise + "end", Traceback: noise, Exit: job.Exit{Spawn: noise}})
	if size := proto.Size(m); size > maxMessage/2 {
		t.Errorf("%d bytes", size)
	}
	ev := toEvent("n1", wire(t, m)).(job.Exited)
	if !strings.HasSuffix(ev.Tail, "\xff\x00end") || len(ev.Tail) != maxTail {
		t.Errorf("tail of %d bytes", len(ev.Tail))
	}
	if !utf8.ValidString(ev.Exit.Spawn) {
		t.Error("invalid UTF-8")
	}
	hostile := &pb.FromAgent{Body: &pb.FromAgent_Exited{Exited: &pb.Exited{Tail: []byte(noise)}}}
	if ev := toEvent("n1", hostile).(job.Exited); len(ev.Tail) != maxTail {
		t.Errorf("tail of %d bytes", len(ev.Tail))
	}
}
