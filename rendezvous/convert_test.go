package rendezvous

import (
	"net/netip"
	"reflect"
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
		v.SetMapIndex(reflect.ValueOf("k"), reflect.ValueOf("v"))
	case reflect.String:
		v.SetString(v.Type().Name() + " text")
	case reflect.Bool:
		v.SetBool(true)
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

func TestEventsArrive(t *testing.T) {
	for _, ev := range []job.Event{
		filled[job.Prepared](), filled[job.Started](), filled[job.Exited](), filled[job.Stopped](), job.Exited{},
	} {
		node := reflect.ValueOf(ev).FieldByName("Node").String()
		if got := toEvent(node, wire(t, fromEvent(ev))); !reflect.DeepEqual(got, ev) {
			t.Errorf("got  %+v\nwant %+v", got, ev)
		}
	}
	if toEvent("n", &pb.FromAgent{}) != nil || fromEvent(job.Joined{}) != nil {
		t.Error("something that is no report was translated")
	}
}

func TestOrdersArrive(t *testing.T) {
	start, prepare, stop := filled[job.Start](), filled[job.Prepare](), filled[job.Stop]()
	prepare.Node, stop.Node = start.Group.Node.Name, start.Group.Node.Name
	cpu := start
	cpu.Group.Bundles, cpu.World.GPUs = []placement.Bundle{{Rank: 3}}, nil
	for _, o := range []Order{prepare, start, cpu, stop, filled[job.Finish](), job.Finish{}, Signal{syscall.SIGUSR2}} {
		if got := toOrder(start.Group.Node, wire(t, fromOrder(o))); !reflect.DeepEqual(got, o) {
			t.Errorf("got  %+v\nwant %+v", got, o)
		}
	}
	if toOrder(start.Group.Node, &pb.ToAgent{}) != nil || fromOrder(job.Wait{}) != nil {
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

// TestOutputIsBounded holds that a report fits into a message whatever a rank has printed.
func TestOutputIsBounded(t *testing.T) {
	noise := strings.Repeat("\xff\x00", 1<<20)
	m := fromEvent(job.Exited{Tail: noise + "end", Traceback: noise, Exit: job.Exit{Spawn: noise}})
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
