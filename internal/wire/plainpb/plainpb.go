// Package plainpb copies and measures protobuf messages as plain Go values. At the first use of a
// message's type, protobuf makes tables that cost a process more than all messages of a small job.
package plainpb

import (
	"math/bits"
	"reflect"

	"google.golang.org/protobuf/proto"
)

// Copy returns a copy of a message that shares nothing with it.
func Copy[M any](m *M) *M {
	n := new(M)
	copyInto(reflect.ValueOf(n).Elem(), reflect.ValueOf(m).Elem())
	return n
}

func copyInto(to, from reflect.Value) {
	switch from.Kind() {
	case reflect.Struct:
		for i := range from.NumField() {
			if f := to.Field(i); f.CanSet() { // the others belong to protobuf
				copyInto(f, from.Field(i))
			}
		}
	case reflect.Pointer:
		if !from.IsNil() {
			to.Set(reflect.New(from.Type().Elem()))
			copyInto(to.Elem(), from.Elem())
		}
	case reflect.Interface: // one of several
		if !from.IsNil() {
			of := reflect.New(from.Elem().Type()).Elem()
			copyInto(of, from.Elem())
			to.Set(of)
		}
	case reflect.Slice:
		if from.IsNil() {
			return
		}
		to.Set(reflect.MakeSlice(from.Type(), from.Len(), from.Len()))
		if plain(from.Type().Elem().Kind()) {
			reflect.Copy(to, from)
			return
		}
		for i := range from.Len() {
			copyInto(to.Index(i), from.Index(i))
		}
	case reflect.Map:
		if from.IsNil() {
			return
		}
		to.Set(reflect.MakeMapWithSize(from.Type(), from.Len()))
		for k, v := range from.Seq2() {
			of := reflect.New(v.Type()).Elem()
			copyInto(of, v)
			to.SetMapIndex(k, of)
		}
	default:
		to.Set(from)
	}
}

// plain reports whether values of a kind refer to nothing that can change.
func plain(k reflect.Kind) bool { return k <= reflect.Complex128 || k == reflect.String }

// Oversize returns the encoded size of a message if that is more than limit bytes, else 0.
func Oversize(m proto.Message, limit int) int {
	if SizeBound(m) <= limit {
		return 0
	}
	if size := proto.Size(m); size > limit {
		return size
	}
	return 0
}

// SizeBound returns a number that is at least the encoded size of a message, and little more.
func SizeBound(m proto.Message) int { return sizeBound(reflect.ValueOf(m)) }

func sizeBound(v reflect.Value) (size int) {
	switch v.Kind() {
	case reflect.Struct:
		n := v.NumField() // Fields would allocate for each of them
		for i := range n {
			if f := v.Field(i); f.CanInterface() && !f.IsZero() { // the others belong to protobuf
				size += fieldBound(f)
			}
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			size = sizeBound(v.Elem())
		}
	case reflect.String, reflect.Slice: // of bytes
		size = v.Len()
	case reflect.Int32, reflect.Int64:
		size = varint(uint64(v.Int()))
	case reflect.Uint32:
		size = varint(v.Uint())
	case reflect.Uint64:
		size = max(8, varint(v.Uint())) // the field may be a fixed64
	default: // a bool, or a floating-point number
		size = int(v.Type().Size())
	}
	return size
}

// fieldBound bounds a field that is set.
func fieldBound(f reflect.Value) (size int) {
	switch f.Kind() {
	case reflect.Slice:
		elem := f.Type().Elem().Kind()
		if elem == reflect.Uint8 {
			return delimited(f.Len())
		}
		for i := range f.Len() {
			n := sizeBound(f.Index(i))
			if elem == reflect.String || elem == reflect.Pointer || elem == reflect.Slice {
				n = delimited(n)
			}
			size += n
		}
		if plain(elem) && elem != reflect.String { // packed
			size = delimited(size)
		}
	case reflect.Map:
		for i := f.MapRange(); i.Next(); { // not Seq2, for which each call would allocate size
			size += delimited(delimited(sizeBound(i.Key())) + delimited(sizeBound(i.Value())))
		}
	default:
		size = delimited(sizeBound(f))
	}
	return size
}

// delimited adds the field's number and type, two bytes at most, and the length.
func delimited(size int) int { return 2 + varint(uint64(size)) + size }

func varint(n uint64) int { return (bits.Len64(n|1) + 6) / 7 }
