package report

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestResultAsJSON checks that a program can read a result back.
func TestResultAsJSON(t *testing.T) {
	whole := Result{
		Code: 1, Ending: EndProgram, Reason: "job failed", Attempts: 2, Restarts: 1,
		Cause: &Failure{
			Node: "n1", Rank: 3, GPU: &GPU{Index: 3, UUID: "GPU-3"}, Attempt: 1, Exit: Exit{Code: 137, Signal: 9, OOM: true, Spawn: "<no>"},
			At: time.Unix(1, 2000).UTC(), Lived: 1500 * time.Millisecond, Step: 7, Further: 2, Why: "a & b", Tail: "tail", Traceback: "traceback",
			Kernel: "kernel", Hung: true, Verdict: Verdict{
				Action: ActionStop, Cause: "cuda-oom", Title: "no memory", Quote: "oom", From: FromTail, Line: 4, Victim: true, Remedy: "less",
			},
		},
		Goodput: &Goodput{Unit: "GPU", Goodput: 0.5, Hours: 2, Training: 1, Interruptions: 1, Costs: []Cost{{Cause: "x", Node: "n1", Interruptions: 1, Hours: 1}}},
	}
	lost := Result{Code: 125, Cause: &Failure{Node: "n1", Rank: -1, At: time.Unix(1, 0).UTC(), Why: "n1 is gone"}}
	for _, r := range []Result{whole, lost, {}} {
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var read Result
		if err := json.Unmarshal(text, &read); err != nil || !reflect.DeepEqual(r, read) {
			t.Errorf("%s was read as %+v (%v)", text, read, err)
		}
	}
	if text, _ := json.Marshal(lost); strings.Contains(string(text), "rank") || strings.Contains(string(text), "exit") {
		t.Errorf("%s is about no rank", text)
	}
	want := `{"node":"n1","rank":3,"gpu":3,"gpu_uuid":"GPU-3","attempt":1,"exit":{"code":137,"signal":9,"oom":true,"spawn":"<no>"},` +
		`"at":"1970-01-01T00:00:01.000002Z","lived_seconds":1.5,"step":7,"further":2,"why":"a & b","tail":"tail","traceback":"traceback",` +
		`"kernel":"kernel","hung":true,"verdict":{"action":"stop","cause":"cuda-oom","title":"no memory","quote":"oom","from":"tail","line":4,` +
		`"victim":true,"remedy":"less"}}`
	if text, err := whole.Cause.MarshalJSON(); err != nil || string(text) != want {
		t.Errorf("a failure is\n%s, want\n%s (%v)", text, want, err)
	}
}
