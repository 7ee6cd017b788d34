package scrape

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/metrics"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/sources"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/view"
	"github.com/golaunch/golaunch/cmd/golaunch/internal/view/viewtest"
	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// TestRoundsWatchOn: slow ranks show only over time, so each round continues the round before. A
// source that is gone or in trouble is dropped.
func TestRoundsWatchOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		c := &viewtest.Cluster{Nodes: 4, Slow: 13, SlowFrom: time.Now().Add(3 * time.Minute), Began: time.Now().Add(-20 * time.Minute), Every: time.Second}
		c.Fails = func() error {
			if away.Load() {
				return errors.New("it does not answer")
			}
			return nil
		}
		var said []error
		r := New(Options{Level: metrics.Jobs, Every: 15 * time.Second, Warn: func(err error) { said = append(said, err) }})
		look := func(sources map[string]view.Source) error {
			time.Sleep(r.opts.Every)
			return r.look(t.Context(), sources)
		}
		here := map[string]view.Source{"a": c}
		for range 16 {
			if err := look(here); err != nil {
				t.Fatal(err)
			}
		}
		s := r.states[0]
		if slow := s.Job("llama-70b").Slow; !(slow.Ratio > 1.1) || s.At.Sub(s.Nodes[0].Heard) > freshness+time.Second {
			t.Errorf("after four minutes the stragglers are %+v; a node reported last at %v", slow, s.Nodes[0].Heard)
		}
		away.Store(true)
		if err := errors.Join(look(here), look(here)); err == nil || r.states[0].Trouble == "" {
			t.Errorf("it does not answer: %v, %q", err, r.states[0].Trouble)
		}
		away.Store(false)
		if err := look(here); err != nil || r.states[0].Trouble != "" || r.states[0].Job("llama-70b") == nil {
			t.Errorf("it answers again: %v, %q", err, r.states[0].Trouble)
		}
		away.Store(true)
		if err := errors.Join(look(here), look(here)); err == nil {
			t.Error("it answers while it is away")
		}
		if err := errors.Join(look(nil), look(nil)); err != nil || len(r.watches) > 0 || len(r.states) != 1 || r.states[0].Trouble == "" || len(said) != 1 {
			t.Errorf("it is gone: %v, %d watches, %d states, %q is said", err, len(r.watches), len(r.states), said)
		}
		time.Sleep(sources.VanishedFor)
		if err := look(nil); err != nil || len(r.states) != 1 || r.states[0].Trouble != "" {
			t.Errorf("it has been gone for long: %v, %d states", err, len(r.states))
		}
	})
}

// TestAVanishedSourceAlerts: while a coordinator is gone, the metrics show that it does not answer,
// and the rule for this case fires.
func TestAVanishedSourceAlerts(t *testing.T) {
	var series []string
	synctest.Test(t, func(t *testing.T) {
		here := map[string]view.Source{"a": &viewtest.Cluster{Nodes: 1, Began: time.Now().Add(-time.Minute)}}
		r := New(Options{Level: metrics.Jobs, Every: 15 * time.Second, Warn: func(error) {}})
		for _, sources := range []map[string]view.Source{here, nil, here} {
			for range 20 {
				if err := r.look(t.Context(), sources); err != nil {
					t.Fatal(err)
				}
				var text bytes.Buffer
				if err := r.all.Write(&text); err != nil {
					t.Fatal(err)
				}
				_, up, _ := strings.Cut(text.String(), `golaunch_up{source="a"} `)
				up, _, _ = strings.Cut(up, "\n")
				series = append(series, up)
				if coordinated := strings.Contains(text.String(), "\ngolaunch_coordinator_info{"); coordinated != (up == "1") {
					t.Fatalf("golaunch_up is %s, and there is golaunch_coordinator_info: %v", up, coordinated)
				}
				time.Sleep(r.opts.Every)
			}
		}
		_ = r.end(anyWatch) // the sources have answered
	})
	path, err := exec.LookPath("promtool")
	if err != nil {
		suite.Missing(t, "there is no promtool; apt-get install prometheus")
	}
	rules, err := filepath.Abs("../../../../examples/grafana/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	fires := func(at string, times int) string {
		return fmt.Sprintf(`{expr: 'count(ALERTS{alertname="GolaunchBlind",alertstate="firing"}) or vector(0)', eval_time: %s, exp_samples: [{labels: '{}', value: %d}]}`, at, times)
	}
	file := filepath.Join(t.TempDir(), "test.yml")
	if err := os.WriteFile(file, fmt.Appendf(nil, "rule_files: [%s]\nevaluation_interval: 15s\ntests:\n- interval: 15s\n  input_series: [{series: 'golaunch_up{source=\"a\"}', values: '%s'}]\n  promql_expr_test: [%s, %s, %s]\n",
		rules, strings.Join(series, " "), fires("4m", 0), fires("9m", 1), fires("14m", 0)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(path, "test", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("golaunch_up is %v: %v\n%s", series, err, out)
	}
}
