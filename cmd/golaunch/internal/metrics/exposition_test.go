package metrics

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
)

// TestEscapes: Prometheus' own parser reads back texts that need escapes.
func TestEscapes(t *testing.T) {
	const value = "a \"b\" \\ \n c,d=\"}"
	s := sheet{}
	s.set(gauge("x", "A help\nwith \\ in it."), 0.5)
	s.set(gauge("y", "Help.", "zone", "area"), 2e9, value, "1")
	var text strings.Builder
	if err := s.write(&text); err != nil {
		t.Fatal(err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	got, err := parser.TextToMetricFamilies(strings.NewReader(text.String()))
	if err != nil {
		t.Fatalf("%v:\n%s", err, text.String())
	}
	x, y := got["golaunch_x"], got["golaunch_y"].GetMetric()[0]
	if x.GetHelp() != "A help\nwith \\ in it." || x.GetMetric()[0].GetGauge().GetValue() != 0.5 {
		t.Errorf("read as %v", x)
	}
	if l := y.GetLabel(); len(l) != 2 || l[0].GetName() != "area" || l[1].GetValue() != value || y.GetGauge().GetValue() != 2e9 {
		t.Errorf("read as %v", y)
	}
}

func TestSeriesTwice(t *testing.T) {
	s := sheet{}
	f := gauge("x", "Help.", "job")
	s.set(f, 1, "a")
	s.set(f, 2, "a")
	if err := s.write(io.Discard); err == nil || !strings.Contains(err.Error(), `golaunch_x{job="a"} is there twice`) {
		t.Errorf("error %v", err)
	}
}

// TestHandler: the handler compresses for clients that accept it, and refuses too many scrapes at a
// time.
func TestHandler(t *testing.T) {
	h := New(Jobs, &pinned{&view.State{Source: "n0:29400", Trouble: "no route to host"}}).Handler()
	const line = `golaunch_up{source="n0:29400"} 0`
	for _, accepted := range []string{"", "gzip"} {
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.Header.Set("Accept-Encoding", accepted)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		var body io.Reader = w.Body
		if accepted != "" {
			packed, err := gzip.NewReader(w.Body)
			if err != nil {
				t.Fatal(err)
			}
			body = packed
		}
		text, err := io.ReadAll(body)
		if err != nil || !strings.Contains(string(text), line) || w.Header().Get("Content-Encoding") != accepted {
			t.Errorf("%q: %q, %v", accepted, text, err)
		}
	}

	slow := &slowReader{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
	done := make(chan struct{})
	for range maxScrapes {
		go func() { h.ServeHTTP(slow, httptest.NewRequest(http.MethodGet, "/metrics", nil)); done <- struct{}{} }()
	}
	for range maxScrapes {
		<-slow.writes
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("one scrape too many got %d", w.Code)
	}
	close(slow.read)
	for range maxScrapes {
		<-done
	}
}

// slowReader is a client that signals the first write, and reads once read is closed.
type slowReader struct {
	http.ResponseWriter
	writes, read chan struct{}
}

func (s *slowReader) Header() http.Header { return http.Header{} }

func (s *slowReader) Write(p []byte) (int, error) {
	s.writes <- struct{}{}
	<-s.read
	return len(p), nil
}
