// Package wiretest has values and messages for tests of the messages between processes.
package wiretest

import (
	"context"
	"iter"
	"net"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// fill sets every field to a value, so that a field which the wire format forgets makes a test
// fail.
func fill(v reflect.Value) {
	switch x := v.Addr().Interface().(type) {
	case *time.Time:
		*x = time.Unix(1_700_000_000, 123).UTC()
		return
	case *netip.Addr:
		*x = netip.MustParseAddr("fd00::7")
		return
	case *report.GPU:
		*x = report.GPU{Index: 7, UUID: "text"}
		return
	case *placement.GPU:
		*x = placement.GPU{Index: 7, UUID: "text"} // other nodes do not get the other fields
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			fill(field)
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
	case reflect.Func, reflect.Interface: // no message has such a field
	case reflect.Uint8, reflect.Uint32:
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

// Filled returns a value in which every field is set.
func Filled[T any]() T {
	var v T
	fill(reflect.ValueOf(&v).Elem())
	return v
}

// Arrives returns a message as its receiver gets it.
func Arrives[M proto.Message](t testing.TB, m M) M {
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

// Whole returns a message that is sent in several parts, as its receiver gets it.
func Whole[M proto.Message](t testing.TB, pieces iter.Seq[M]) (all M) {
	first := true
	for m := range pieces {
		if first {
			all, first = Arrives(t, m), false
		} else {
			proto.Merge(all, Arrives(t, m))
		}
	}
	return all
}

// Pipe returns the two ends of a listener inside this process, for an agent and a coordinator that
// talk gRPC in memory.
func Pipe() (net.Listener, func(context.Context) (net.Conn, error)) {
	l := bufconn.Listen(64 << 10)
	return l, l.DialContext
}
