package spot

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// serve stands for a metadata service: it answers each path if the request has the header.
func serve(t *testing.T, header string, answers map[string]string) *machine {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := answers[r.Method+" "+r.URL.Path]
		switch {
		case r.Method == http.MethodGet && r.Header.Get(header) == "":
			w.WriteHeader(http.StatusUnauthorized)
		case !ok:
			w.WriteHeader(http.StatusNotFound)
		default:
			w.Write([]byte(text))
		}
	}))
	t.Cleanup(s.Close)
	return &machine{base: s.URL, client: s.Client()}
}

func TestClouds(t *testing.T) {
	at := time.Date(2026, 11, 21, 8, 22, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		header  string
		answers map[string]string
		ask     func(*machine) func(context.Context) (Notice, error)
		at      time.Time
		why     string
		err     string
	}{
		"aws, nothing": {"X-aws-ec2-metadata-token", map[string]string{"PUT /latest/api/token": "t"}, aws, time.Time{}, "", ""},
		"aws": {"X-aws-ec2-metadata-token", map[string]string{
			"PUT /latest/api/token":                      "t",
			"GET /latest/meta-data/spot/instance-action": `{"action": "terminate", "time": "2026-11-21T08:22:00Z"}`,
		}, aws, at, "AWS will terminate this spot instance", ""},
		"aws, garbage": {"X-aws-ec2-metadata-token", map[string]string{
			"PUT /latest/api/token": "t", "GET /latest/meta-data/spot/instance-action": "<html>",
		}, aws, time.Time{}, "", "spot/instance-action"},
		"not aws":      {"x", nil, aws, time.Time{}, "", "not found"},
		"gcp, nothing": {"Metadata-Flavor", map[string]string{"GET /computeMetadata/v1/instance/preempted": "FALSE\n"}, gcp, time.Time{}, "", ""},
		"gcp": {
			"Metadata-Flavor",
			map[string]string{"GET /computeMetadata/v1/instance/preempted": "TRUE\n"},
			gcp, time.Now(),
			"Google preempts this machine", "",
		},
		"azure, nothing": {"Metadata", map[string]string{
			"GET /metadata/scheduledevents": `{"Events": [{"EventType": "Freeze", "NotBefore": "Sat, 21 Nov 2026 08:22:00 GMT"}]}`,
		}, azure, time.Time{}, "", ""},
		"azure": {"Metadata", map[string]string{
			"GET /metadata/scheduledevents": `{"Events": [{"EventType": "Preempt", "NotBefore": "Sat, 21 Nov 2026 08:22:00 GMT"}]}`,
		}, azure, at, "Azure's event Preempt is scheduled for this machine", ""},
		"azure, refused": {"Metadata", nil, azure, time.Time{}, "", "not found"},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := test.ask(serve(t, test.header, test.answers))(t.Context())
			if (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("%v, want %q", err, test.err)
			}
			if n.Why != test.why || name != "gcp" && !n.At.Equal(test.at) || name == "gcp" && !n.At.After(test.at) {
				t.Errorf("%+v, want %v, %s", n, test.at, test.why)
			}
		})
	}
}

func aws(m *machine) func(context.Context) (Notice, error)   { return m.aws }
func gcp(m *machine) func(context.Context) (Notice, error)   { return m.gcp }
func azure(m *machine) func(context.Context) (Notice, error) { return m.azure }

// TestWatch: each problem is reported once, and the watch continues until there is a notice.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		asked := 0
		ask := func(context.Context) (Notice, error) {
			switch asked++; {
			case asked < 3:
				return Notice{}, errors.New("no route to host")
			case asked < 6:
				return Notice{}, nil
			}
			return Notice{Why: "it goes"}, nil
		}
		start := time.Now()
		n, err := watch(t.Context(), ask, func(err error) { told = append(told, err.Error()) })
		if n.Why != "it goes" || err != nil || len(told) != 1 || time.Since(start) != 5*every {
			t.Errorf("%+v, %v after %v, told %q", n, err, time.Since(start), told)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := watch(ctx, func(context.Context) (Notice, error) { return Notice{}, nil }, nil); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
