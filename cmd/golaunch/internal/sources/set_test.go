package sources

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/metrics"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
	"github.com/golaunch/golaunch/launcher/report"
)

// TestMetricsOfAJobThatVanished: the page shows the last state of a job whose coordinator is gone,
// and the metrics show that its coordinator does not answer, unless the job's end is known.
func TestMetricsOfAJobThatVanished(t *testing.T) {
	known := report.Status{Version: "v1", Since: time.Now(), Jobs: []report.JobStatus{{ID: "x", Phase: "running", Submitted: time.Now()}}}
	for _, result := range []*report.Result{nil, {Ending: report.EndSuccess}} {
		said := 0
		job := &LocalJob{job: "x", last: known, result: result, lost: func() { said++ }}
		for range 2 {
			if past, ok := job.past(t.Context()); !ok || len(past.Jobs) != 1 || past.Version != "" {
				t.Fatalf("%+v is known of it, %v", past, ok)
			}
		}
		p := &Set{sources: map[string]view.Source{"job x": job}}
		c := &metrics.Collector{Level: metrics.Jobs, States: func() []*view.State { return p.States(view.New(nil, view.Options{})) }}
		answer := httptest.NewRecorder()
		c.Handler().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
		text := answer.Body.String()
		gone := strings.Contains(text, "golaunch_up{source=\"job x\"} 0\n")
		if gone != (result == nil) || strings.Contains(text, `golaunch_up{source="job x"`) != gone || (said == 1) != gone || said > 1 ||
			!strings.Contains(text, "golaunch_up{source=\"this machine\"} 1\n") || strings.Contains(text, "golaunch_coordinator_info{") {
			t.Errorf("with %v, which was printed %d times:\n%s", result, said, text)
		}
	}
}
