package logs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// past makes files under base that were written, like the directories above them, the given number
// of hours ago.
func past(t *testing.T, base string, hours int, names ...string) {
	t.Helper()
	at := time.Now().Add(-time.Duration(hours) * time.Hour)
	for _, name := range names {
		path := filepath.Join(base, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range names {
		for path := filepath.Join(base, name); path != base; path = filepath.Dir(path) {
			if err := os.Chtimes(path, at, at); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func entries(t *testing.T, base string) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(base, func(path string, _ fs.DirEntry, err error) error {
		name, _ := filepath.Rel(base, path)
		names = append(names, name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func jobs(t *testing.T, base string) string {
	t.Helper()
	all, err := os.ReadDir(base)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range all {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

func TestPruneKeepsTheNewest(t *testing.T) {
	base := t.TempDir()
	past(t, base, 1, "b/attempt-0/rank-0.stdout.log")
	past(t, base, 2, "d/attempt-0/rank-3.stderr.log", "d/attempt-12/rank-0.error.json", "d/events.jsonl",
		"d/attempt-0/rank-3.heartbeat", "d/attempt-0/rank-3.notice.json", "d/attempt-0/rank-3.notice.json.ready", "d/bundle-n1.x-attempt-0.tar.gz", "d/bundle-n1.x-attempt-1.tar.gz.part")
	past(t, base, 9, "a/attempt-0/rank-0.stdout.log", "a/events.jsonl")
	past(t, base, 5, "c/attempt-0/rank-0.stdout.log", "c/events.jsonl")
	past(t, base, 8, "e/attempt-0/rank-0.stdout.log", "e/events.jsonl")
	now := time.Now()
	if err := os.Chtimes(filepath.Join(base, "e/events.jsonl"), now, now); err != nil {
		t.Fatal(err)
	}
	past(t, base, 99, "f/attempt-0/rank-0.stdout.log", "f/events-n1.jsonl")
	used, err := FindDir(base, "f")
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		keep int
		left string
	}{
		{6, "a b c d e f"},
		{4, "b c d e f"},
		{2, "b e f"},
		{1, "e f"},
		{0, "f"},
	} {
		if err := Prune(base, step.keep); err != nil {
			t.Error(err)
		}
		if got := jobs(t, base); got != step.left {
			t.Errorf("keep %d: left %s, want %s", step.keep, got, step.left)
		}
	}
	if err := used.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Prune(base, 0); err != nil || jobs(t, base) != "" {
		t.Errorf("left %s, error %v", jobs(t, base), err)
	}
	if err := Prune(filepath.Join(base, "missing"), 0); err != nil {
		t.Error(err)
	}
}

// TestPruneLeavesOthersThings: Prune removes a directory only if everything in it is golaunch's,
// and follows no link.
func TestPruneLeavesOthersThings(t *testing.T) {
	base, outside := t.TempDir(), t.TempDir()
	past(t, outside, 9, "job/attempt-0/rank-0.stdout.log", "attempt-0/rank-0.stdout.log")
	past(t, base, 9,
		"notes.txt", "data/x", "only-events/events.jsonl", "attempt-0/rank-0.stdout.log", "-x/attempt-0/rank-0.stdout.log",
		".hidden/attempt-0/rank-0.stdout.log", "more/attempt-0/rank-0.stdout.log", "more/model.pt", "deep/attempt-0/rank-0.stdout.log",
		"deep/attempt-0/checkpoint", "nested/attempt-0/rank-0.stdout.log/x", "odd/attempt-00/rank-0.stdout.log",
		"file/attempt-0", "linked/events.jsonl", "events/events.jsonl/x", "events/attempt-0/rank-0.stdout.log")
	for name, target := range map[string]string{
		"link": filepath.Join(outside, "job"), "inner": "more", "linked/attempt-0": filepath.Join(outside, "attempt-0"),
		"more/link": outside,
	} {
		if err := os.Symlink(target, filepath.Join(base, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(base, "empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	before, far := entries(t, base), entries(t, outside)
	past(t, base, 9, "job/attempt-0/rank-0.stdout.log")
	if err := Prune(base, 0); err != nil {
		t.Error(err)
	}
	if got := entries(t, base); !slices.Equal(got, before) {
		t.Errorf("left %q, want %q", got, before)
	}
	if got := entries(t, outside); !slices.Equal(got, far) {
		t.Errorf("outside %q, want %q", got, far)
	}
}

// TestPruneKnowsDir: Prune recognizes a job's directory as Dir makes it.
func TestPruneKnowsDir(t *testing.T) {
	base := t.TempDir()
	d := openDir(t, base)
	r := newRank(t, d, RankOptions{Rank: 12, Attempt: 3})
	run(t, r, `echo x; echo y >&2; echo '{"message": "m"}' > "$1"`, r.ErrorFile())
	events, err := d.Create("events.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	events.Close()
	if !d.Made() || Prune(base, 0) != nil || jobs(t, base) != "job1" {
		t.Errorf("left %q while it is open", jobs(t, base))
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Prune(base, 1); err != nil || jobs(t, base) != "job1" {
		t.Errorf("left %q, error %v", jobs(t, base), err)
	}
	if err := Prune(base, 0); err != nil || jobs(t, base) != "" {
		t.Errorf("left %q, error %v", jobs(t, base), err)
	}
}

// TestPruneOthers: root removes the directories of other users, with their rights, if no one except
// root can have put the directories there.
func TestPruneOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		suite.Missing(t, "only root has directories for others")
	}
	base := t.TempDir()
	for _, mode := range []fs.FileMode{0o711, 0o777} {
		past(t, base, 1, "a/attempt-0/rank-0.stdout.log")
		past(t, base, 2, "b/attempt-0/rank-0.stdout.log")
		for _, id := range []string{"a", "b"} {
			for _, name := range entries(t, filepath.Join(base, id)) {
				if err := os.Chown(filepath.Join(base, id, name), 1234, 1234); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := os.Chmod(filepath.Dir(base), 0o711); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(base, mode); err != nil {
			t.Fatal(err)
		}
		if err := Prune(base, 1); err != nil {
			t.Error(err)
		}
		want := map[fs.FileMode]string{0o711: "a", 0o777: "a b"}[mode]
		if got := jobs(t, base); got != want {
			t.Errorf("with mode %v left are %s, not %s", mode, got, want)
		}
	}
}

// TestOldAttempts: only the files of the first and the newest attempts and of a running rank are
// kept.
func TestOldAttempts(t *testing.T) {
	d := openDir(t, t.TempDir())
	for attempt := range 50 {
		if attempt == 3 {
			run(t, newRank(t, d, RankOptions{Rank: 1, Attempt: attempt, Alias: "attempt_3/1"}), "echo x")
		}
		r := newRank(t, d, RankOptions{Attempt: attempt, Alias: fmt.Sprintf("attempt_%d/0", attempt)})
		run(t, r, `echo x; echo y >&2; echo '{"message": "m"}' > "$1"; touch "$2"`, r.ErrorFile(), r.HeartbeatFile())
	}
	for attempt := range 50 {
		for _, dir := range []string{"attempt-%d/rank-0.stderr.log", "attempt_%d/0/error.json", "attempt-%d", "attempt_%d"} {
			name := fmt.Sprintf(dir, attempt)
			want := attempt == 0 || attempt > 50-keptAttempts || attempt == 3 && dir != "attempt-%d/rank-0.stderr.log"
			if _, err := d.root.Stat(name); (err == nil) != want {
				t.Errorf("%s is there: %v, want %v", name, err == nil, want)
			}
		}
	}
	if _, err := d.root.Stat("attempt-3/rank-1.stdout.log"); err != nil {
		t.Errorf("the file of another rank: %v", err)
	}
}
