package plainpb

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/golaunch/golaunch/internal/wire/rendezvouspb"
)

// TestMessagesAsValues compares this package with protobuf, for each kind of message, and for each
// choice of fields that exclude each other.
func TestMessagesAsValues(t *testing.T) {
	all := (&pb.FromAgent{}).ProtoReflect().Descriptor().ParentFile().Messages()
	for i := range all.Len() {
		kind, err := protoregistry.GlobalTypes.FindMessageByName(all.Get(i).FullName())
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range []filling{{}, {n: 1, number: 1, text: "x"}, {n: 3, number: -1, text: strings.Repeat("x", 200)}, {n: 20, number: math.MaxInt32}} {
			for choice := range 20 {
				f.choice = choice
				m := kind.New()
				f.fill(m, 2)
				checkAsValue(t, m.Interface())
			}
		}
	}
}

func checkAsValue(t *testing.T, m proto.Message) {
	t.Helper()
	size, bound := proto.Size(m), SizeBound(m)
	if bound < size || bound > 3*size+16 {
		t.Errorf("%T has %d bytes, said to be at most %d", m, size, bound)
	}
	if got := Oversize(m, size-1); got != size && size > 0 {
		t.Errorf("%T of %d bytes is said to be %d more than one less", m, size, got)
	}
	if got := Oversize(m, size); got != 0 {
		t.Errorf("%T of %d bytes is said to be more: %d", m, size, got)
	}
	before, to := proto.Clone(m), reflect.New(reflect.TypeOf(m).Elem())
	copyInto(to.Elem(), reflect.ValueOf(m).Elem())
	if got := to.Interface().(proto.Message); !proto.Equal(got, m) {
		t.Errorf("%T: the copy is %v, want %v", m, got, m)
	}
	erase(to.Elem())
	if !proto.Equal(m, before) {
		t.Errorf("%T: a change of the copy makes of it %v, want %v", m, m, before)
	}
}

// filling says how fields are set. Lists have n elements. Of several fields that exclude each
// other, the field with the number choice is set.
type filling struct {
	n      int
	number int64
	text   string
	choice int
}

func (f filling) fill(m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		d := fields.Get(i)
		if one := d.ContainingOneof(); one != nil && one.Fields().Get(f.choice%one.Fields().Len()) != d {
			continue
		}
		switch {
		case d.IsMap():
			m.Mutable(d).Map().Set(protoreflect.ValueOfString(f.text).MapKey(), f.value(d.MapValue(), m.NewField(d).Map().NewValue, depth))
		case d.IsList():
			list := m.Mutable(d).List()
			for range f.n {
				list.Append(f.value(d, list.NewElement, min(depth, 1)))
			}
		case d.Message() == nil || depth > 0:
			m.Set(d, f.value(d, func() protoreflect.Value { return m.NewField(d) }, depth))
		}
	}
}

// value returns a value for a field; empty has an empty message for the field.
func (f filling) value(d protoreflect.FieldDescriptor, empty func() protoreflect.Value, depth int) protoreflect.Value {
	switch d.Kind() {
	case protoreflect.MessageKind:
		v := empty()
		f.fill(v.Message(), depth-1)
		return v
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(f.text)
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(f.text))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(f.number != 0)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(f.number))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(f.number)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(f.number))
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(uint64(f.number))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(float64(f.number))
	default:
		panic("messages have no field of kind " + d.Kind().String() + "; SizeBound must know it")
	}
}

// erase overwrites all that a value refers to.
func erase(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for _, f := range v.Fields() {
			if f.CanSet() {
				erase(f)
			}
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			erase(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			erase(v.Index(i))
		}
	case reflect.Map:
		for _, e := range v.Seq2() {
			erase(e)
		}
		v.Clear()
	default:
		if v.CanSet() {
			v.SetZero()
		}
	}
}

// BenchmarkSize compares SizeBound, which builds no tables, with protobuf's own size once its tables
// are built.
func BenchmarkSize(b *testing.B) {
	pids := make([]int32, 1024)
	for i := range pids {
		pids[i] = int32(i) << 10
	}
	for name, m := range map[string]proto.Message{
		"exited": &pb.FromAgent{Seq: 7, Body: &pb.FromAgent_Exited{Exited: &pb.Exited{
			Attempt: 1, Rank: 3, At: timestamppb.Now(), Lived: durationpb.New(time.Hour), Tail: make([]byte, 4<<10),
		}}},
		"started 1024": &pb.FromAgent{Seq: 7, Body: &pb.FromAgent_Started{Started: &pb.Started{Pids: pids}}},
	} {
		for by, size := range map[string]func(proto.Message) int{"SizeBound": SizeBound, "proto.Size": proto.Size} {
			b.Run(name+"/"+by, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					size(m)
				}
			})
		}
	}
}
