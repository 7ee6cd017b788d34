package snapshot

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// Schema has the names of types and their fields in the bytes.
type Schema struct {
	types func() map[string]names
	// prints are the fingerprints of types, and layouts the kept fields of structs.
	prints, layouts sync.Map
}

// names has the names of one type and of its fields, in the order in which values are written.
type names struct {
	name   string
	fields []namedField
}

type namedField struct{ name, goName string }

// NewSchema reads a schema when it is first used. Each line of the text names a struct and its
// fields:
//
//	job.node = node: node nodeRank ran leavesAt=leaves
//
// The Go type job.node has the name node. A line that begins with a tab continues the line before.
// The text gives a field by its Go name, in upper or lower case, or as "name=GoField". After
// renaming a Go type, change the text left of " = ". After renaming a Go field, change the text
// right of its "=". Keep the names.
func NewSchema(text string) *Schema {
	return &Schema{types: sync.OnceValue(func() map[string]names { return parse(text) })}
}

// unnamed is a schema that names types as in Go.
var unnamed = NewSchema("")

func parse(text string) map[string]names {
	all := map[string]names{}
	goType := ""
	for line := range strings.Lines(text) {
		fields := line
		if !strings.HasPrefix(line, "\t") {
			head, rest, _ := strings.Cut(line, ":")
			of, name, named := strings.Cut(head, " = ")
			if !named {
				continue
			}
			goType, fields = of, rest
			all[goType] = names{name: name}
		}
		n := all[goType]
		for f := range strings.FieldsSeq(fields) {
			name, goName, renamed := strings.Cut(f, "=")
			if !renamed {
				goName = name
			}
			n.fields = append(n.fields, namedField{name, goName})
		}
		all[goType] = n
	}
	return all
}

// layout describes the type of a struct: either the type encodes its values itself, or it has
// fields that are kept.
type layout struct {
	name   string
	binary bool
	fields []field
}

type field struct {
	name  string
	index int
	whole bool
}

// layoutOf returns the layout of a type. It has the fields in the order of the schema, then the
// fields that the schema does not name.
func (s *Schema) layoutOf(t reflect.Type) *layout {
	if l, known := s.layouts.Load(t); known {
		return l.(*layout)
	}
	n, named := s.types()[t.String()]
	l := &layout{name: t.String(), binary: binaryType(t)}
	if named {
		l.name = n.name
	}
	taken := map[int]bool{}
	for _, f := range n.fields {
		if i := fieldOf(t, f.goName); i >= 0 {
			taken[i] = true
			l.fields = append(l.fields, field{f.name, i, whole(t.Field(i))})
		}
	}
	for i := range t.NumField() {
		if f := t.Field(i); kept(f) && !taken[i] {
			l.fields = append(l.fields, field{f.Name, i, whole(f)})
		}
	}
	s.layouts.Store(t, l)
	return l
}

// fieldOf returns the index of a kept field; -1 if there is none.
func fieldOf(t reflect.Type, name string) int {
	for i := range t.NumField() {
		if f := t.Field(i); kept(f) && strings.EqualFold(f.Name, name) {
			return i
		}
	}
	return -1
}

// Gaps lists how the schema differs from the types of the value that p points to: structs and
// fields that the schema does not name, and names without a struct or field. Gaps is for a test.
func (s *Schema) Gaps(p any) (gaps []string) {
	seen := map[reflect.Type]bool{}
	var look func(reflect.Type)
	look = func(t reflect.Type) {
		if seen[t] {
			return
		}
		seen[t] = true
		switch t.Kind() {
		case reflect.Map:
			look(t.Key())
			look(t.Elem())
		case reflect.Slice, reflect.Array, reflect.Pointer:
			look(t.Elem())
		case reflect.Struct:
			if !binaryType(t) {
				gaps = append(gaps, s.gapsOf(t)...)
				for _, f := range s.layoutOf(t).fields {
					look(t.Field(f.index).Type)
				}
			}
		default: // it has no fields
		}
	}
	look(reflect.TypeOf(p))
	for name := range s.types() {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(seen)), func(t reflect.Type) bool { return t.String() == name }) {
			gaps = append(gaps, name+" is named, and not used")
		}
	}
	slices.Sort(gaps)
	return gaps
}

func (s *Schema) gapsOf(t reflect.Type) (gaps []string) {
	n, named := s.types()[t.String()]
	if !named {
		return []string{fmt.Sprintf("%v has no name", t)}
	}
	for _, f := range n.fields {
		if fieldOf(t, f.goName) < 0 {
			gaps = append(gaps, fmt.Sprintf("%v has no field %s", t, f.goName))
		}
	}
	for _, f := range s.layoutOf(t).fields[min(len(n.fields), len(s.layoutOf(t).fields)):] {
		gaps = append(gaps, fmt.Sprintf("field %s of %v has no name", f.name, t))
	}
	return gaps
}

// printSize is the size of a fingerprint in bytes.
const printSize = 16

func (s *Schema) fingerprint(t reflect.Type) []byte {
	if print, known := s.prints.Load(t); known {
		return print.([]byte)
	}
	var text strings.Builder
	s.describe(t, &text, map[reflect.Type]bool{})
	sum := sha256.Sum256([]byte(text.String()))
	print, _ := s.prints.LoadOrStore(t, sum[:printSize:printSize])
	return print.([]byte)
}

// describe writes everything that determines how values of a type are encoded.
func (s *Schema) describe(t reflect.Type, text *strings.Builder, known map[reflect.Type]bool) {
	fmt.Fprintf(text, "%v;", t.Kind())
	if t.Kind() == reflect.Array {
		fmt.Fprintf(text, "%d;", t.Len())
	}
	switch t.Kind() {
	case reflect.Struct:
		if binaryType(t) {
			fmt.Fprintf(text, "%v;", t)
			return
		}
		l := s.layoutOf(t)
		fmt.Fprintf(text, "%s;", l.name)
		if known[t] {
			return
		}
		known[t] = true
		for _, f := range l.fields {
			fmt.Fprintf(text, "%s %v ", f.name, f.whole)
			s.describe(t.Field(f.index).Type, text, known)
		}
	case reflect.Map:
		s.describe(t.Key(), text, known)
		s.describe(t.Elem(), text, known)
	case reflect.Slice, reflect.Array, reflect.Pointer:
		s.describe(t.Elem(), text, known)
	case reflect.Func, reflect.Chan, reflect.Interface, reflect.UnsafePointer, reflect.Uintptr, reflect.Complex64, reflect.Complex128:
		panic(fmt.Sprintf("snapshot: a %v cannot be in one", t))
	default: // its kind suffices
	}
}

func whole(f reflect.StructField) bool { return f.Tag.Get("snapshot") == "value" }

func kept(f reflect.StructField) bool { return f.Tag.Get("snapshot") != "-" }
