package launcher_test

import (
	"context"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/golaunch/golaunch/launcher"
)

// TestNothingLeaks runs jobs that end in several ways, twice. The second run may not leave more
// goroutines or files than the first.
func TestNothingLeaks(t *testing.T) {
	for _, c := range []struct {
		name, script string
		simulate     bool
		stop         bool
	}{
		{"success", `exit 0`, false, false},
		{"failure", `exit 1`, false, false},
		{"cancelled", `echo up; exec sleep 1000`, false, true},
		{"simulated", `exit 0`, true, false},
		{"simulated, cancelled", `echo up; exec sleep 1000`, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			once := func() {
				job, out, _ := marked(t, 2, c.script)
				job.Resources.Simulate, job.Restarts.Max, job.Stopping.Grace = c.simulate, 1, time.Second
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.stop {
					go func() {
						out.await(t, "up")
						cancel()
					}()
				}
				if _, err := launcher.Run(ctx, job); err != nil {
					t.Error(err)
				}
			}
			once()
			goroutines, files := settled(0, time.Second/2), openFiles(t)
			once()
			if now := settled(goroutines, patience); now > goroutines {
				var b strings.Builder
				pprof.Lookup("goroutine").WriteTo(&b, 1)
				t.Errorf("%d goroutines after a second job, %d after the first:\n%s", now, goroutines, &b)
			}
			if now := openFiles(t); now != files {
				t.Errorf("%d open files after a second job, %d after the first", now, files)
			}
		})
	}
}

// settled returns the number of goroutines once it is at most the expected one, or the least within
// a limit: goroutines of a finished job may still be ending.
func settled(expected int, limit time.Duration) int {
	least := runtime.NumGoroutine()
	for until := time.Now().Add(limit); least > expected && time.Now().Before(until); least = min(least, runtime.NumGoroutine()) {
		runtime.Gosched()
	}
	return least
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
