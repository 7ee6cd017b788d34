package launcher

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/golaunch/golaunch/launcher/report"
)

var recordTask = flag.Bool("record-task", false, "write the golden file of a job as agents get it")

// TestTaskKeepsItsBytes encodes a job with every field set, as for a coordinator, and compares the
// bytes with recorded ones. It also reads a job that an earlier version wrote, whose fields had no
// names for JSON.
func TestTaskKeepsItsBytes(t *testing.T) {
	j := filled[Job]()
	j.Restarts.ExitCodes = map[report.Ending]int{report.EndProgram: 3}
	j.Output.Torch.Redirects, j.Output.Torch.Tee = map[int]int{0: 1}, map[int]int{1: 2}
	text, err := json.MarshalIndent(j, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	if *recordTask {
		if err := os.WriteFile("testdata/task.json", text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	recorded, err := os.ReadFile("testdata/task.json")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(text, recorded) {
		t.Errorf("a task is\n%s", text)
	}
	before, err := os.ReadFile("testdata/task-before.json")
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(before))
	d.DisallowUnknownFields()
	var read Job
	if err := d.Decode(&read); err != nil {
		t.Fatal(err)
	}
	if text, err = json.Marshal(read); err != nil {
		t.Fatal(err)
	}
	var wrote, reads any // lower case, because readers of JSON ignore the case of names
	if err := errors.Join(json.Unmarshal(bytes.ToLower(before), &wrote), json.Unmarshal(bytes.ToLower(text), &reads)); err != nil {
		t.Fatal(err)
	}
	if diff := unread(wrote, reads, "the task"); diff != "" {
		t.Errorf("read what another version wrote: %s", diff)
	}
}

// unread returns the parts of the value wrote that are not in the value reads, which may have more
// fields.
func unread(wrote, reads any, at string) string {
	switch wrote := wrote.(type) {
	case map[string]any:
		fields, _ := reads.(map[string]any)
		for name, v := range wrote {
			if diff := unread(v, fields[name], at+"."+name); diff != "" {
				return diff
			}
		}
	case []any:
		list, _ := reads.([]any)
		if len(list) != len(wrote) {
			return fmt.Sprintf("%s has %d values instead of %d", at, len(list), len(wrote))
		}
		for i, v := range wrote {
			if diff := unread(v, list[i], fmt.Sprintf("%s[%d]", at, i)); diff != "" {
				return diff
			}
		}
	default:
		if wrote != reads {
			return fmt.Sprintf("%s is %v instead of %v", at, reads, wrote)
		}
	}
	return ""
}

// fill sets every field below v to a value. No two numbers or texts are equal.
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
