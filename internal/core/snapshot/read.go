package snapshot

import (
	"cmp"
	"encoding"
	"encoding/binary"
	"math"
	"reflect"
)

type reader struct {
	schema *Schema
	in     []byte
	err    error
	seen   map[uint64]reflect.Value
}

func (r *reader) number() uint64 {
	n, size := binary.Uvarint(r.in)
	return advance(r, n, size)
}

func advance[T int64 | uint64](r *reader, n T, size int) T {
	if size <= 0 || r.err != nil {
		r.err, r.in = cmp.Or(r.err, errShort), nil
		return 0
	}
	r.in = r.in[size:]
	return n
}

// take returns the next n bytes.
func (r *reader) take(n uint64) []byte {
	if n > uint64(len(r.in)) {
		r.err, r.in = cmp.Or(r.err, errShort), nil
		return nil
	}
	b := r.in[:n]
	r.in = r.in[n:]
	return b
}

// length reads the length of a slice or map; -1 for nil. Each element has at least one byte, unless
// it is an empty struct.
func (r *reader) length(element reflect.Type) int {
	n := r.number()
	if n == 0 {
		return -1
	}
	if n--; n > uint64(len(r.in)) && element.Size() > 0 {
		r.err, r.in = cmp.Or(r.err, errShort), nil
		return -1
	}
	return int(n)
}

func (r *reader) value(v reflect.Value) {
	if r.err != nil {
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(r.number() == 1)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n, size := binary.Varint(r.in)
		v.SetInt(advance(r, n, size))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(r.number())
	case reflect.Float32, reflect.Float64:
		if b := r.take(8); b != nil {
			v.SetFloat(math.Float64frombits(binary.BigEndian.Uint64(b)))
		}
	case reflect.String:
		v.SetString(string(r.take(r.number())))
	case reflect.Struct:
		r.fields(v)
	case reflect.Array:
		for i := range v.Len() {
			r.value(v.Index(i))
		}
	case reflect.Slice:
		r.slice(v)
	case reflect.Map:
		r.entries(v)
	case reflect.Pointer:
		r.pointer(v)
	default: // describe has refused all other kinds
	}
}

func (r *reader) fields(v reflect.Value) {
	l := r.schema.layoutOf(v.Type())
	if l.binary {
		b := r.take(r.number())
		if r.err == nil {
			r.err = v.Addr().Interface().(encoding.BinaryUnmarshaler).UnmarshalBinary(b)
		}
		return
	}
	for _, f := range l.fields {
		if f.whole {
			r.constant(open(v.Field(f.index)))
		} else {
			r.value(open(v.Field(f.index)))
		}
	}
}

func (r *reader) slice(v reflect.Value) {
	n := r.length(v.Type().Elem())
	if n < 0 {
		return
	}
	if v.Type().Elem().Kind() == reflect.Uint8 {
		v.SetBytes(append([]byte{}, r.take(uint64(n))...))
		return
	}
	s := reflect.MakeSlice(v.Type(), n, n)
	for i := 0; i < n && r.err == nil; i++ {
		r.value(s.Index(i))
	}
	v.Set(s)
}

func (r *reader) entries(v reflect.Value) {
	n := r.length(v.Type().Key())
	if n < 0 {
		return
	}
	m := reflect.MakeMapWithSize(v.Type(), n)
	v.Set(m)
	for i := 0; i < n && r.err == nil; i++ {
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		r.value(key)
		r.value(value)
		if r.err == nil {
			m.SetMapIndex(key, value)
		}
	}
}

func (r *reader) constant(v reflect.Value) {
	if r.number() == 0 || r.err != nil {
		return
	}
	v.Set(reflect.New(v.Type().Elem()))
	r.value(v.Elem())
}

func (r *reader) pointer(v reflect.Value) {
	n := r.number()
	if n == 0 || r.err != nil {
		return
	}
	if p, known := r.seen[n]; known {
		if p.Type() != v.Type() {
			r.err = errShort
			return
		}
		v.Set(p)
		return
	}
	p := reflect.New(v.Type().Elem())
	if v.Type() != p.Type() {
		p = p.Convert(v.Type())
	}
	r.seen[n] = p
	v.Set(p)
	r.value(p.Elem())
}
