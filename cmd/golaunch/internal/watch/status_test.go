package watch

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/view/viewtest"
	"github.com/golaunch/golaunch/launcher"
	"github.com/golaunch/golaunch/launcher/report"
)

// silentSource does not answer.
type silentSource struct {
	view.Source
	why error
}

func (s silentSource) Query(context.Context, report.Query) (report.Status, error) {
	return report.Status{}, s.why
}

// TestSilentSource: status shows the answers of the other sources and returns the error of a source
// that does not answer. A job that has ended since is no error.
func TestSilentSource(t *testing.T) {
	good, silent := &viewtest.Cluster{Nodes: 1}, silentSource{why: errors.New("no answer")}
	ending := silentSource{why: fmt.Errorf("job a is over: %w", launcher.ErrNotThere)}
	refuses := silentSource{why: fmt.Errorf("%w: refused", launcher.ErrUsage)}
	for name, c := range map[string]struct {
		connected map[string]view.Source
		answered  bool
		says      string
	}{
		"all answer":          {map[string]view.Source{"h:1": good, "h:2": good}, true, ""},
		"one does not":        {map[string]view.Source{"h:1": good, "h:2": silent}, true, "h:2: no answer"},
		"a job ends":          {map[string]view.Source{"h:1": good, "h:2": ending}, true, ""},
		"one refuses":         {map[string]view.Source{"h:1": good, "h:2": refuses}, true, "h:2: " + refuses.why.Error()},
		"none does":           {map[string]view.Source{"h:1": silent, "h:2": silent}, false, "h:1: no answer\nh:2: no answer"},
		"a job has ended":     {map[string]view.Source{"h:1": good, "job gone": silent}, true, ""},
		"all jobs have ended": {map[string]view.Source{"job a": silent, "job b": silent}, false, "no answer\nno answer"},
		"the only one":        {map[string]view.Source{"h:1": silent}, false, "no answer"},
	} {
		s, answered, err := new(statusOptions).query(t.Context(), c.connected, report.Query{})
		said := ""
		if err != nil {
			said = err.Error()
		}
		if answered && errors.Is(err, launcher.ErrUsage) {
			t.Errorf("%s: the exit code is that of wrong usage", name)
		}
		if answered != c.answered || said != c.says || answered && len(s.Jobs) == 0 {
			t.Errorf("%s: answered %v, said %q, %d jobs", name, answered, said, len(s.Jobs))
		}
	}
}
