package job

import (
	"net/netip"
	"reflect"
	"time"
	"unsafe"

	"github.com/golaunch/golaunch/internal/verdict"
)

// clone copies a state as one that is written down and read again is: nothing of it is shared, between the two or within the copy.
func (s *State) clone() *State {
	c := s.lasting()
	return cloned(reflect.ValueOf(&c)).Interface().(*State)
}

// lasting is the state without what the newest step came to.
func (s *State) lasting() State {
	c := *s
	c.actions, c.changes, c.stale = nil, nil, false
	return c
}

// whole are types that are copied as they are: what is in them is nobody's to change.
var whole = map[reflect.Type]bool{
	reflect.TypeFor[netip.Addr](): true, reflect.TypeFor[time.Time](): true, reflect.TypeFor[verdict.Rule](): true,
}

func cloned(v reflect.Value) reflect.Value {
	to := reflect.New(v.Type()).Elem()
	switch {
	case whole[v.Type()]:
		to.Set(v)
	case v.Kind() == reflect.Pointer:
		if !v.IsNil() {
			to.Set(reflect.New(v.Type().Elem()))
			to.Elem().Set(cloned(v.Elem()))
		}
	case v.Kind() == reflect.Slice:
		if !v.IsNil() {
			to.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
			for i := range v.Len() {
				to.Index(i).Set(cloned(v.Index(i)))
			}
		}
	case v.Kind() == reflect.Map:
		if !v.IsNil() {
			to.Set(reflect.MakeMap(v.Type()))
			for key, value := range v.Seq2() {
				to.SetMapIndex(key, cloned(value))
			}
		}
	case v.Kind() == reflect.Struct:
		from := reflect.New(v.Type()).Elem()
		from.Set(v)
		for i := range v.NumField() {
			open(to.Field(i)).Set(cloned(open(from.Field(i))))
		}
	case v.Kind() == reflect.Interface, v.Kind() == reflect.Func, v.Kind() == reflect.Chan:
		panic("a state has a " + v.Kind().String())
	default:
		to.Set(v)
	}
	return to
}

// open makes a field accessible that is not exported.
func open(field reflect.Value) reflect.Value {
	return reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem()
}

// equals compares all but what the newest step came to.
func (s *State) equals(other *State) bool {
	return reflect.DeepEqual(s.lasting(), other.lasting())
}
