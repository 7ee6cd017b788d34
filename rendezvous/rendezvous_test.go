package rendezvous

import (
	"bytes"
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestJobRestartsAndSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var journal bytes.Buffer
		w := newWorldOf(t.Context(), t, Config{Journal: &journal}, one(3))
		begin := time.Now()
		var agents []*agent
		for i := range 3 {
			agents = append(agents, w.join(i+1, func(attempt int) (int, bool) {
				if attempt == 0 {
					return 7, i == 1
				}
				return 0, true
			}))
		}
		r := <-w.result
		if r.Code != 0 || r.Attempts != 2 || r.Restarts != 1 {
			t.Fatalf("%+v\n%s", r, strings.Join(w.decided(), "\n"))
		}
		if took := time.Since(begin); took < 900*time.Millisecond || took > 1100*time.Millisecond {
			t.Errorf("took %v, want the backoff of 1s, give or take 10%%", took)
		}
		for i, a := range agents {
			<-a.done
			a.Close("")
			if a.Err() != nil || a.finish == nil || a.finish.Result.Reason != r.Reason {
				t.Errorf("n%d: error %v, finish %+v", i+1, a.Err(), a.finish)
			}
			if len(a.starts) != 2 || a.starts[1].World.WorldSize != 3 || a.starts[1].World.MasterAddr != "10.0.0.1" ||
				a.starts[1].Group.NodeRank != i || a.starts[1].Group.Node.Name != node(i+1).Name {
				t.Errorf("n%d: starts %+v", i+1, a.starts)
			}
		}
		checkJournal(t, &journal, []string{"submitted", "joined", "prepared", "started", "exited", "stopped", "elapsed"})
	})
}

// checkJournal checks that each line is an object with a time, that names are in snake_case, that
// no value is null, and that the wanted events are present.
func checkJournal(t *testing.T, journal *bytes.Buffer, want []string) {
	var events []string
	for _, text := range strings.Split(strings.TrimSpace(journal.String()), "\n") {
		var l struct {
			Format int `json:"format_version"`
			Time   time.Time
			Event  string
			Reason string
		}
		if err := json.Unmarshal([]byte(text), &l); err != nil || l.Time.IsZero() || l.Format != 1 {
			t.Errorf("%s: %v", text, err)
		}
		if odd := regexp.MustCompile(`"[a-z0-9_]*[A-Z][^" ]*":|":null`).FindString(text); odd != "" {
			t.Errorf("%s has %s", text, odd)
		}
		events = append(events, l.Event)
	}
	for _, event := range want {
		if !slices.Contains(events, event) {
			t.Errorf("no %s in the journal: %v", event, events)
		}
	}
}

// leave waits for the successful end of a session.
func (a *agent) leave(t *testing.T) {
	<-a.done
	if a.Err() != nil || a.finish == nil {
		t.Errorf("%s: %v, finish %v", a.Node.Name, a.Err(), a.finish)
	}
	a.Close("")
}

func TestClocksApart(t *testing.T) {
	var warnings []string
	c := NewCoordinator(Config{Warn: func(err error) { warnings = append(warnings, err.Error()) }})
	now := time.Now()
	c.compareClocks("n1", now.Add(30*time.Second))
	c.compareClocks("n2", now.Add(-30*time.Second))
	c.compareClocks("n3", now.Add(2*time.Hour))
	c.compareClocks("n4", now.Add(-2*time.Hour))
	c.audience.Close()
	if want := []string{"n3 is 2h0m0s ahead of", "n4 is 2h0m0s behind"}; len(warnings) != 2 ||
		!strings.Contains(warnings[0], want[0]) || !strings.Contains(warnings[1], want[1]) {
		t.Errorf("%q, want %q", warnings, want)
	}
}

func TestDeadlineAndCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		w := newWorldOf(ctx, t, Config{}, one(1))
		a := w.join(1, forever)
		if r := <-w.result; r.Code != 124 || !strings.Contains(r.Reason, "deadline") {
			t.Errorf("%+v", r)
		}
		a.leave(t)
		w = newWorld(t, 1)
		a = w.join(1, forever)
		w.c.Cancel(130, "interrupted")
		if r := <-w.result; r.Code != 130 || r.Reason != "job cancelled: interrupted" {
			t.Errorf("%+v", r)
		}
		a.leave(t)
	})
}

func TestFullDiskDoesNotEndTheJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorldOf(t.Context(), t, Config{Journal: fullDisk{}}, one(1))
		a := w.join(1, success)
		if r := <-w.result; r.Code != 0 {
			t.Errorf("%+v", r)
		}
		a.leave(t)
		if len(w.warnings) != 1 || w.warnings[0] != "the journal ends here, the job goes on: no space left on device" {
			t.Errorf("warnings %q", w.warnings)
		}
	})
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }
