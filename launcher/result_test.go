package launcher

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/wire"

	"github.com/golaunch/golaunch/internal/goodput"
	"github.com/golaunch/golaunch/internal/job"
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

// TestNothingIsLost holds that what the packages below say comes here whole, under the same names.
func TestNothingIsLost(t *testing.T) {
	result, status, ras, report := filled[job.Result](), filled[wire.Status](), filled[wire.RAS](), filled[goodput.Report]()
	for what, c := range map[string][2]any{
		"result":           {result, resultOf(result)},
		"an early result":  {job.Result{}, resultOf(job.Result{})},
		"status":           {status, statusOf(status)},
		"an empty cluster": {wire.Status{}, statusOf(wire.Status{})},
		"ras":              {ras, rasOf(ras)},
		"goodput":          {report, goodputOf(&report)},
		"goodput and back": {report, goodputOf(&report).report()},
	} {
		below, here := text(t, c[0]), text(t, c[1])
		if below != here {
			t.Errorf("%s: %s came as\n%s", what, below, here)
		}
	}
	if got, want := rasOf(ras).String(), ras.String(); got != want {
		t.Errorf("ras reads %q, want %q", got, want)
	}
	chunk := filled[wire.LogChunk]()
	if got := text(t, chunkOf(chunk)); len(got) != len(text(t, chunk)) {
		t.Errorf("%+v came as %s", chunk, got)
	}
	for _, e := range append(slices.Clone(job.Unsuccessful), job.EndSuccess) {
		if !slices.Contains([]Ending{EndSuccess, EndProgram, EndBudget, EndInfrastructure, EndPreempted, EndTimeout, EndCancelled}, Ending(e)) {
			t.Errorf("ending %s has no word here", e)
		}
	}
}

func text(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
