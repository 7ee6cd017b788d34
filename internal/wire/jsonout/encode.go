package jsonout

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
)

// timeFormat is RFC 3339 in UTC, always with microseconds, so that the strings sort like the times.
const timeFormat = "2006-01-02T15:04:05.000000Z"

var (
	timeType     = reflect.TypeFor[time.Time]()
	durationType = reflect.TypeFor[time.Duration]()
	rawType      = reflect.TypeFor[json.RawMessage]()
)

// Marshal encodes a value in one line, by the rules of the contract. It follows the tags of
// encoding/json. In addition:
//
//   - A field without a name in a tag gets its Go name in snake_case. A duration's name ends in
//     _seconds.
//   - Times are strings in UTC, and durations are numbers of seconds.
//   - Nil lists and maps are empty. Nothing is null: nil pointers, interfaces and raw values are
//     omitted, and so are zero times.
//   - Invalid UTF-8 becomes U+FFFD.
func Marshal(v any) ([]byte, error) { return appendValue(nil, reflect.ValueOf(v)) }

func appendValue(b []byte, v reflect.Value) ([]byte, error) {
	if !v.IsValid() || isPointer(v.Kind()) && v.IsNil() {
		return append(b, "null"...), nil
	}
	if v.Kind() == reflect.Pointer && (v.Type().Elem() == timeType || v.Type().Elem() == durationType) {
		v = v.Elem()
	}
	switch x := v.Interface().(type) {
	case time.Time:
		return x.UTC().AppendFormat(b, `"`+timeFormat+`"`), nil
	case time.Duration:
		return appendPlain(b, x.Seconds())
	case int:
		return strconv.AppendInt(b, int64(x), 10), nil
	case json.Marshaler:
		text, err := x.MarshalJSON()
		return append(b, text...), err
	case encoding.TextMarshaler:
		text, err := x.MarshalText()
		if err != nil {
			return b, err
		}
		return appendPlain(b, string(text))
	case []byte:
		return appendPlain(b, append([]byte{}, x...))
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return appendValue(b, v.Elem())
	case reflect.Struct:
		return appendStruct(b, v)
	case reflect.Map:
		return appendMap(b, v)
	case reflect.Slice, reflect.Array:
		return appendList(b, v)
	}
	return appendPlain(b, v.Interface())
}

// appendPlain appends what encoding/json writes, but leaves <, > and & as they are.
func appendPlain(b []byte, v any) ([]byte, error) {
	out := bytes.NewBuffer(b)
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(out.Bytes(), []byte{'\n'}), err
}

func appendList(b []byte, v reflect.Value) (_ []byte, err error) {
	b = append(b, '[')
	for i := range v.Len() {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendValue(b, v.Index(i)); err != nil {
			return b, err
		}
	}
	return append(b, ']'), nil
}

func appendMap(b []byte, v reflect.Value) (_ []byte, err error) {
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	b = append(b, '{')
	for i, key := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendPlain(b, fmt.Sprint(key)); err == nil {
			b, err = appendValue(append(b, ':'), v.MapIndex(key))
		}
		if err != nil {
			return b, err
		}
	}
	return append(b, '}'), nil
}

func appendStruct(b []byte, v reflect.Value) (_ []byte, err error) {
	b = append(b, '{')
	first := true
	for _, f := range fieldsOf(v.Type()) {
		field := v.FieldByIndex(f.index)
		if f.absent(field) {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		if b, err = appendValue(append(b, `"`+f.name+`":`...), field); err != nil {
			return b, err
		}
	}
	return append(b, '}'), nil
}

// field is a field of a struct, or of a struct that it embeds.
type field struct {
	name  string
	index []int
	// omit says that an empty or zero value is omitted.
	omit bool
}

func (f field) absent(v reflect.Value) bool {
	switch {
	case (isPointer(v.Kind()) || v.Type() == rawType) && v.IsNil():
		return true
	case v.Type() == timeType || f.omit:
		return v.IsZero() || f.omit && v.Kind() == reflect.Slice && v.Len() == 0
	}
	return false
}

func isPointer(k reflect.Kind) bool { return k == reflect.Pointer || k == reflect.Interface }

// known has the fields of types that were already written.
var known sync.Map

func fieldsOf(t reflect.Type) []field {
	if fields, ok := known.Load(t); ok {
		return fields.([]field)
	}
	var fields []field
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported() || f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct:
			continue
		case name == "" && f.Type == durationType:
			name = snake(f.Name) + "_seconds"
		case name == "":
			name = snake(f.Name)
		}
		fields = append(fields, field{name, f.Index, strings.Contains(options, "omit")})
	}
	known.Store(t, fields)
	return fields
}

// snake converts a Go name to snake_case: MaxRestarts to max_restarts, GPUUUID to gpuuuid, PIDs to
// pids.
func snake(name string) string {
	var out strings.Builder
	runes := []rune(name)
	for i, r := range runes {
		if i > 0 && unicode.IsUpper(r) {
			next := append(runes[i+1:], 0, 0)[:2]
			plural := next[0] == 's' && !unicode.IsLower(next[1])
			if !unicode.IsUpper(runes[i-1]) || unicode.IsLower(next[0]) && !plural {
				out.WriteByte('_')
			}
		}
		out.WriteRune(unicode.ToLower(r))
	}
	return out.String()
}
