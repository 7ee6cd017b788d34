package jsonout

import (
	"bytes"
	"encoding/json"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"
)

type inner struct {
	Lived   time.Duration
	PIDs    []int
	MaxTime time.Time
	hidden  string
}

type embedded struct {
	Given string `json:"given_name"`
}

type everything struct {
	Header
	embedded
	Left    string `json:"-"`
	Inner   inner  `json:"inner"`
	At      time.Time
	Within  time.Duration `json:"within_seconds"`
	Addr    netip.Addr
	Task    []byte
	Labels  map[string]string
	List    []*inner
	None    []string `json:"none,omitempty"`
	Pointer *int
	Any     any
	Zero    int                `json:",omitempty"`
	Exit    struct{ Code int } `json:",omitzero"`
	Raw     json.RawMessage
	Text    string
}

func TestMarshal(t *testing.T) {
	at := time.Date(2026, 5, 4, 3, 2, 1, 500, time.FixedZone("", 7200))
	for want, v := range map[string]any{
		`{"format_version":0,"given_name":"","inner":{"lived_seconds":0,"pids":[]},"within_seconds":0,"addr":"","task":"","labels":{},"list":[],"text":""}`: everything{},
		`{"format_version":1,"given_name":"x","inner":{"lived_seconds":0.001,"pids":[1],"max_time":"2026-05-04T01:02:01.000000Z"},"at":"2026-05-04T01:02:01.000000Z",` +
			`"within_seconds":90,"addr":"10.0.0.9","task":"AQI=","labels":{"a":"1","b":"<&>"},"list":[{"lived_seconds":0,"pids":[]},null],"pointer":0,"any":true,` +
			`"zero":1,"exit":{"code":3},"raw":[1],"text":"a\ufffd\n"}`: everything{
			Header: Header{1}, embedded: embedded{"x"}, Inner: inner{time.Millisecond, []int{1}, at, "h"}, At: at, Within: 90 * time.Second,
			Addr: netip.MustParseAddr("10.0.0.9"), Task: []byte{1, 2}, Labels: map[string]string{"b": "<&>", "a": "1"}, List: []*inner{{}, nil},
			Pointer: new(int), Any: true, Zero: 1, Exit: struct{ Code int }{3}, Raw: json.RawMessage("[1]"), Text: "a\xff\n",
		},
	} {
		text, err := Marshal(v)
		if err != nil || string(text) != want {
			t.Errorf("%+v is written as\n%s, not as\n%s (%v)", v, text, want, err)
		}
		if !json.Valid(text) {
			t.Errorf("%s is no JSON", text)
		}
	}
	if text, err := Marshal(math.NaN()); err == nil {
		t.Errorf("NaN is %s", text)
	}
}

func TestSnake(t *testing.T) {
	for name, want := range map[string]string{
		"Code": "code", "MaxRestarts": "max_restarts", "PIDs": "pids", "GPU": "gpu", "HeldBy": "held_by", "OOM": "oom", "GPUsUsed": "gpus_used",
		"ExitCode2": "exit_code2", "RASAddress": "ras_address", "Is": "is",
	} {
		if got := snake(name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

// TestWords checks that each record is one line, and has the version and a time.
func TestWords(t *testing.T) {
	at := time.Unix(1, 0)
	text := string(Words{Time: at, Error: &Error{Kind: Usage, Code: 2, Verb: "run", Message: "a\nb"}}.Bytes())
	want := `{"format_version":1,"time":"1970-01-01T00:00:01.000000Z","error":{"kind":"usage","code":2,"verb":"run","message":"a\nb"}}` + "\n"
	if text != want {
		t.Errorf("%s, want %s", text, want)
	}
	if text := string(Words{Reason: "because"}.Bytes()); !strings.HasPrefix(text, `{"format_version":1,"time":"2`) {
		t.Errorf("%s has no version and no time", text)
	}
}

// TestPrint checks that one object is written over several lines.
func TestPrint(t *testing.T) {
	var out bytes.Buffer
	if err := Print(&out, &struct {
		Header
		Jobs []string `json:"jobs"`
	}{}); err != nil || out.String() != "{\n  \"format_version\": 1,\n  \"jobs\": []\n}\n" {
		t.Errorf("%q, %v", &out, err)
	}
}
