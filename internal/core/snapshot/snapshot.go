// Package snapshot writes a whole graph of Go values into bytes, and reads it back. It includes
// unexported fields and keeps shared pointers shared. It is for the state of a coordinator, which
// is plain data.
//
// A [Schema] names the types and fields. The bytes depend on the names and their order in the
// schema, not on the Go source: renaming, moving or reordering a declaration changes no byte. The
// bytes begin with a fingerprint of the names and kinds. Bytes with another fingerprint, such as
// those of another version of the program, are refused with [ErrTypes]. A field with the tag
// `snapshot:"-"` is omitted, and zero after reading. A pointer with the tag `snapshot:"value"`
// points to an immutable value, which is written whole and not shared after reading.
package snapshot

import (
	"bytes"
	"encoding"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"unsafe"
)

// ErrTypes says that a program with other types wrote the bytes.
var ErrTypes = errors.New("the snapshot is of another version")

// errShort says that bytes, or a part of them, end too early.
var errShort = errors.New("the snapshot is damaged")

// Encode and Decode use the Go names of types, for bytes that do not outlive the program.
func Encode(p any) []byte          { return unnamed.Encode(p) }
func Decode(b []byte, p any) error { return unnamed.Decode(b, p) }

// Encode returns the bytes of what p points to. The same graph always gives the same bytes. Encode
// panics for a type that contains a function, a channel or an interface. A test with the zero value
// of the type finds such a type.
func (s *Schema) Encode(p any) []byte {
	v := reflect.ValueOf(p)
	w := writer{schema: s, out: slices.Clone(s.fingerprint(v.Type())), seen: map[pointer]uint64{}}
	w.pointer(v)
	return w.out
}

// Decode reads what Encode wrote into *p, which must be a zero value of the same type.
func (s *Schema) Decode(b []byte, p any) error {
	v := reflect.ValueOf(p)
	rest, same := bytes.CutPrefix(b, s.fingerprint(v.Type()))
	if !same {
		return ErrTypes
	}
	r := reader{schema: s, in: rest, seen: map[uint64]reflect.Value{1: v}}
	if first := r.number(); first != 1 {
		r.err = errShort
	}
	r.value(v.Elem())
	if r.err == nil && len(r.in) > 0 {
		r.err = errShort
	}
	return r.err
}

// Check reports whether Decode restores the value that p points to. It does not restore the value
// if a pointer points into the middle of another value, because that value then exists twice. Check
// is for tests, and is as slow as Encode.
func Check(p any) error {
	v := reflect.ValueOf(p)
	unnamed.fingerprint(v.Type()) // it panics for a type that cannot be in a snapshot
	w := writer{schema: unnamed, seen: map[pointer]uint64{}, inside: map[pointer]bool{}}
	w.pointer(v)
	for p := range w.seen {
		if w.inside[p] {
			return fmt.Errorf("a %v leads into the middle of another value", p.of)
		}
	}
	return nil
}

var (
	marshaler   = reflect.TypeFor[encoding.BinaryMarshaler]()
	unmarshaler = reflect.TypeFor[encoding.BinaryUnmarshaler]()
)

// binaryType reports whether a type encodes its values itself, as time.Time and netip.Addr do.
func binaryType(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && t.Implements(marshaler) && reflect.PointerTo(t).Implements(unmarshaler)
}

// open makes an unexported field readable and settable.
func open(v reflect.Value) reflect.Value {
	return reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem()
}

// pointer is a pointer with its type, because the first field of a struct has the same address as
// the struct.
type pointer struct {
	at unsafe.Pointer
	of reflect.Type
}

type writer struct {
	schema *Schema
	out    []byte
	// seen numbers the pointers that were written, from 1.
	seen map[pointer]uint64
	// inside, if not nil, has the values that were written as a part of another value.
	inside map[pointer]bool
}

func (w *writer) number(n uint64) { w.out = binary.AppendUvarint(w.out, n) }

func (w *writer) text(b string) {
	w.number(uint64(len(b)))
	w.out = append(w.out, b...)
}

// missing writes 0 if no is true, and returns no.
func (w *writer) missing(no bool) bool {
	if no {
		w.number(0)
	}
	return no
}

// value writes an addressable value.
func (w *writer) value(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		n := uint64(0)
		if v.Bool() {
			n = 1
		}
		w.number(n)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		w.out = binary.AppendVarint(w.out, v.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		w.number(v.Uint())
	case reflect.Float32, reflect.Float64:
		w.out = binary.BigEndian.AppendUint64(w.out, math.Float64bits(v.Float()))
	case reflect.String:
		w.text(v.String())
	case reflect.Struct:
		w.fields(v)
	case reflect.Array:
		for i := range v.Len() {
			w.value(v.Index(i))
		}
	case reflect.Slice:
		w.slice(v)
	case reflect.Map:
		w.entries(v)
	case reflect.Pointer:
		w.pointer(v)
	default: // describe has refused all other kinds
	}
}

func (w *writer) fields(v reflect.Value) {
	l := w.schema.layoutOf(v.Type())
	if l.binary {
		b, err := v.Addr().Interface().(encoding.BinaryMarshaler).MarshalBinary()
		if err != nil {
			panic(fmt.Sprintf("snapshot: %v: %v", v.Type(), err)) // only a time zone with odd seconds gives an error, and no state has one
		}
		w.text(string(b))
		return
	}
	for _, kept := range l.fields {
		f := v.Field(kept.index)
		w.note(f)
		if kept.whole {
			w.constant(open(f))
		} else {
			w.value(open(f))
		}
	}
}

func (w *writer) note(v reflect.Value) {
	if w.inside != nil {
		w.inside[pointer{v.Addr().UnsafePointer(), reflect.PointerTo(v.Type())}] = true
	}
}

// slice writes a slice. A nil slice differs from an empty one.
func (w *writer) slice(v reflect.Value) {
	if w.missing(v.IsNil()) {
		return
	}
	w.number(uint64(v.Len()) + 1)
	if v.Type().Elem().Kind() == reflect.Uint8 {
		w.out = append(w.out, v.Bytes()...)
		return
	}
	for i := range v.Len() {
		w.note(v.Index(i))
		w.value(v.Index(i))
	}
}

func (w *writer) entries(v reflect.Value) {
	if w.missing(v.IsNil()) {
		return
	}
	w.number(uint64(v.Len()) + 1)
	for _, e := range sorted(w.schema, v) {
		w.out = append(w.out, e.text...)
		w.value(settable(v.MapIndex(e.key)))
	}
}

// entry is a key of a map with its bytes.
type entry struct {
	key  reflect.Value
	text string
}

// sorted returns the keys of a map in the order of their bytes. A key must have no pointer that it
// shares with another value.
func sorted(schema *Schema, v reflect.Value) []entry {
	all := make([]entry, 0, v.Len())
	for _, key := range v.MapKeys() {
		w := writer{schema: schema, seen: map[pointer]uint64{}}
		w.value(settable(key))
		all = append(all, entry{key, string(w.out)})
	}
	slices.SortFunc(all, func(a, b entry) int { return strings.Compare(a.text, b.text) })
	return all
}

// settable returns an addressable copy.
func settable(v reflect.Value) reflect.Value {
	c := reflect.New(v.Type()).Elem()
	c.Set(v)
	return c
}

// constant writes the value behind a pointer in the place of the pointer.
func (w *writer) constant(v reflect.Value) {
	if w.missing(v.IsNil()) {
		return
	}
	w.number(1)
	w.value(v.Elem())
}

func (w *writer) pointer(v reflect.Value) {
	if w.missing(v.IsNil()) {
		return
	}
	p := pointer{v.UnsafePointer(), v.Type()}
	if n := w.seen[p]; n > 0 {
		w.number(n)
		return
	}
	n := uint64(len(w.seen) + 1)
	w.seen[p] = n
	w.number(n)
	w.value(v.Elem())
}
