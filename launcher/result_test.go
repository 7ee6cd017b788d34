package launcher

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/wire/session"
)

// fill sets every field below v to something, no two numbers and texts alike.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), n)
		fill(v.Index(1), n)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(int64(*n), 0).UTC()))
			return
		}
		for _, f := range v.Fields() {
			if f.CanSet() {
				fill(f, n)
			}
		}
	case reflect.String:
		v.SetString(fmt.Sprint("text ", *n))
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Float64:
		v.SetFloat(float64(*n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint8:
		v.SetUint(uint64(*n % 256))
	}
}

func filled[T any]() (v T) {
	n := 0
	fill(reflect.ValueOf(&v).Elem(), &n)
	return v
}

// TestNothingIsLost checks that facts of the packages below arrive here completely, under the same
// names.
func TestNothingIsLost(t *testing.T) {
	chunk := filled[session.LogChunk]()
	for what, c := range map[string][2]any{
		"a log's chunk": {chunk, chunkOf(chunk)},
	} {
		if diff := differ(reflect.ValueOf(c[0]), reflect.ValueOf(c[1])); diff != "" {
			t.Errorf("%s: %+v came as\n%+v: %s", what, c[0], c[1], diff)
		}
	}
}

// differ says where two values differ under the same field names, ignoring the names of their
// types.
func differ(a, b reflect.Value) string {
	if a.Kind() != b.Kind() {
		return fmt.Sprintf("a %v is a %v", a.Kind(), b.Kind())
	}
	switch a.Kind() {
	case reflect.Struct:
		if a.Type() == b.Type() {
			break
		}
		names := plainFields(a.Type())
		if others := plainFields(b.Type()); !slices.Equal(names, others) {
			return fmt.Sprintf("%v is not %v", names, others)
		}
		for _, name := range names {
			if diff := differ(a.FieldByName(name), b.FieldByName(name)); diff != "" {
				return name + ": " + diff
			}
		}
		return ""
	case reflect.Pointer:
		if a.IsNil() || b.IsNil() {
			break
		}
		return differ(a.Elem(), b.Elem())
	case reflect.Slice:
		if a.Len() != b.Len() {
			return fmt.Sprintf("%d are %d", a.Len(), b.Len())
		}
		for i := range a.Len() {
			if diff := differ(a.Index(i), b.Index(i)); diff != "" {
				return diff
			}
		}
		return ""
	}
	if x, y := fmt.Sprint(a), fmt.Sprint(b); x != y {
		return fmt.Sprintf("%s is %s", x, y)
	}
	return ""
}

// plainFields returns the names of a struct's fields and of those that it embeds, sorted.
func plainFields(t reflect.Type) (names []string) {
	for _, f := range reflect.VisibleFields(t) {
		if !f.Anonymous {
			names = append(names, f.Name)
		}
	}
	slices.Sort(names)
	return names
}
