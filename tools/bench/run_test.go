package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golaunch/golaunch/tools/bench/record"
)

func newRun(t *testing.T) *run { return &run{dir: t.TempDir(), rec: &record.Record{}} }

// orphaned is a command whose children are in sessions of their own and keep its output open.
var orphaned = []string{"sh", "-c", "setsid sleep 1000 & setsid setsid sleep 1000 & echo trouble; exit 3"}

func TestExecLeavesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		argv  []string
		limit time.Duration
		want  string
	}{
		"fails": {orphaned, time.Minute, "exit status 3: trouble"},
		"hangs": {append(slices.Clone(orphaned[:2]), "setsid sleep 1000 & echo slow; wait"), 3 * time.Second, "it had not ended after 3s: slow"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRun(t)
			_, err := r.exec(t.Context(), c.limit, c.argv)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, not %s", err, c.want)
			}
			if left := marked(workMark + "=" + os.Getenv(workMark)); len(left) > 0 {
				t.Errorf("the processes %v are left", left)
			}
		})
	}
}

func TestExecIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	r := newRun(t)
	if _, err := r.exec(ctx, time.Minute, []string{"sleep", "1000"}); err == nil {
		t.Error("it ended well")
	} else if r.failed(ctx, "launch-1", record.Golaunch, nil, err); len(r.rec.Series) > 0 {
		t.Error("what was interrupted counts as failed")
	}
}

func TestWithin(t *testing.T) {
	var ended []string
	err := within(t.Context(), func(s *scope) error {
		s.Cleanup(func() { ended = append(ended, "first") })
		s.Cleanup(func() { s.Fatalf("cannot end the %s", "second") })
		s.Cleanup(func() { ended = append(ended, fmt.Sprint("third, ", s.Failed(), ", ", s.Context().Err())) })
		s.Fatal("it fails")
		return errors.New("it goes on")
	})
	if want := []string{"third, true, context canceled", "first"}; !slices.Equal(ended, want) {
		t.Errorf("ended were %q, not %q", ended, want)
	}
	if err == nil || err.Error() != "it fails\ncannot end the second" {
		t.Errorf("the error is %v", err)
	}
}

func TestShell(t *testing.T) {
	sh, err := open(t, exec.Command("sh"), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		line  string
		limit time.Duration
		want  string
	}{
		{"echo said", time.Minute, ""},
		{"cat", time.Minute, ""}, // the input of the command is empty
		{"echo wrong >&2; echo ===; (exit 4)", time.Minute, "exit code 4: wrong"},
		{"echo RuntimeError: no; echo and so on; (exit 1)", time.Minute, "exit code 1: RuntimeError: no"},
		{"sleep 0.5; echo late", 50 * time.Millisecond, "it had not ended after 50ms"},
		{"true", time.Minute, ""}, // not the answer of the command before
		{"false", time.Minute, "exit code 1: it said nothing"},
	} {
		_, err := sh.run(t.Context(), c.limit, c.line)
		if got := fmt.Sprint(err); (c.want == "") != (err == nil) || c.want != "" && got != c.want {
			t.Errorf("%s: %v, not %q", c.line, err, c.want)
		}
	}
}

func TestNotes(t *testing.T) {
	r := newRun(t)
	notes := filepath.Join(r.dir, "notes")
	text := "0 step 5000000\n0 step 7000000\n0 step 6000000\n0 step 6500000\n0 memory 3\n0 death 8000000\n1 step 9000000\n1 ste"
	if err := os.WriteFile(notes, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r.trained(t.Context(), record.Torchrun, []string{"torchrun", notes}, notes, 1000000, true, nil)
	for work, want := range map[string]float64{"ddp-start": 6, "ddp-memory": 3072} {
		if s := r.rec.Of(work, record.Torchrun); s == nil || !slices.Equal(s.Samples, []float64{want}) || s.Command != "torchrun NOTES" {
			t.Errorf("%s is %+v, not %v", work, s, want)
		}
	}
	if s := r.rec.Of("ddp-restart", record.Torchrun); s == nil || s.Failed != 1 || s.Failure != "1 of 4 ranks noted a step of the next attempt" {
		t.Errorf("the restart is %+v", s)
	}
}

func TestGathered(t *testing.T) {
	file := filepath.Join(t.TempDir(), "out")
	text := "goos: linux\nBenchmarkGather/1000/torch-2.15.0-libuv-2         \t       1\t 123500000 ns/op\t      6801 B/conn\nPASS\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if took, each, err := gathered(file); err != nil || took != 123.5 || each != 6801 {
		t.Errorf("%v ms, %v B, %v", took, each, err)
	}
	if err := os.WriteFile(file, []byte("goos: linux\nPASS\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := gathered(file); err == nil {
		t.Error("no benchmark ran, and that is no error")
	}
}
