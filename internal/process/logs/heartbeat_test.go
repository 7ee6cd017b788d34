package logs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestHeartbeatsAreInMemory: each of two jobs has its own heartbeat, outside of the logs, which is
// removed with its rank.
func TestHeartbeatsAreInMemory(t *testing.T) {
	heartbeatsBase = t.TempDir()
	t.Cleanup(func() { heartbeatsBase = "/dev/shm" })
	var ranks []*Rank
	for range 2 {
		r := newRank(t, openDir(t, t.TempDir()), RankOptions{Rank: 3, Attempt: 2})
		if !strings.HasPrefix(r.HeartbeatFile(), heartbeatsBase+"/") {
			t.Errorf("the heartbeat is in %s", r.HeartbeatFile())
		}
		ranks = append(ranks, r)
	}
	for i, r := range ranks {
		if err := os.WriteFile(r.HeartbeatFile(), []byte{'0' + byte(i)}, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for i, r := range ranks {
		f, err := r.OpenHeartbeat()
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(f); err != nil || string(text) != string('0'+rune(i)) {
			t.Errorf("the heartbeat of job %d is %q, %v", i, text, err)
		}
		f.Close()
		run(t, r, "true")
		if _, err := os.Stat(r.HeartbeatFile()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the heartbeat of job %d outlives its rank: %v", i, err)
		}
	}
}

// TestHeartbeatsAmongLogs: a user without a directory in memory has heartbeats among the logs.
func TestHeartbeatsAmongLogs(t *testing.T) {
	t.Cleanup(func() { heartbeatsBase = "/dev/shm" })
	for what, prepare := range map[string]func(dir string) error{
		"no memory":           func(dir string) error { return os.Remove(filepath.Dir(dir)) },
		"others may write":    func(dir string) error { return errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o777)) },
		"a file in its place": func(dir string) error { return os.WriteFile(dir, nil, 0o600) },
	} {
		heartbeatsBase = t.TempDir()
		if err := prepare(filepath.Join(heartbeatsBase, fmt.Sprintf("golaunch-%d", os.Getuid()))); err != nil {
			t.Fatal(err)
		}
		d := openDir(t, t.TempDir())
		r := newRank(t, d, RankOptions{Rank: 3, Attempt: 2})
		if want := filepath.Join(d.Path(), "attempt-2", "rank-3.heartbeat"); r.HeartbeatFile() != want {
			t.Errorf("%s: the heartbeat is in %s, want %s", what, r.HeartbeatFile(), want)
		}
		run(t, r, "true")
	}
}
