package logs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// takes takes a directory, or returns its owner.
func takes(t *testing.T, base, run string) (*Dir, *TakenError) {
	t.Helper()
	d, err := Access{}.TakeDir(base, "job1", run)
	taken, ok := errors.AsType[*TakenError](err)
	if err != nil && !ok {
		t.Fatal(err)
	}
	return d, taken
}

// TestOneRunHasADirectory: a run has its directory until the last process of the run has ended.
func TestOneRunHasADirectory(t *testing.T) {
	base := t.TempDir()
	first, _ := takes(t, base, "a")
	second, _ := takes(t, base, "a")
	if first == nil || second == nil {
		t.Fatal("two processes of one run cannot share its directory")
	}
	for _, d := range []*Dir{first, second} {
		_, taken := takes(t, base, "b")
		if taken == nil || taken.Owner.PID != os.Getpid() || taken.Owner.Since.IsZero() || taken.Path != filepath.Join(base, "job1") {
			t.Fatalf("another run is refused because of %+v", taken)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	d, taken := takes(t, base, "b")
	if taken != nil {
		t.Fatalf("when it is over: %v", taken)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestARunWithoutAChoice: a run without a chosen ID gets the first free directory.
func TestARunWithoutAChoice(t *testing.T) {
	base := t.TempDir()
	for i, want := range []string{"job1", "job1.2", "job1.3"} {
		d, err := Access{}.TakeFree(base, "job1", NewRun())
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		if filepath.Base(d.Path()) != want || !d.Made() {
			t.Errorf("run %d has %s, want %s of its own", i, d.Path(), want)
		}
	}
}

// TestTheEndOfOneRunLeavesTheNext: Remove leaves the directory that the next run made under the
// same name.
func TestTheEndOfOneRunLeavesTheNext(t *testing.T) {
	base := t.TempDir()
	first, _ := takes(t, base, "a")
	run(t, newRank(t, first, RankOptions{}), "echo x")
	if err := first.Remove(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(base); err != nil || len(left) > 0 {
		t.Errorf("left are %v (%v)", left, err)
	}
	next, _ := takes(t, base, "b")
	defer next.Close()
	if _, err := os.Stat(filepath.Join(next.Path(), ownerFile)); err != nil {
		t.Error(err)
	}
}

// TestOwnersWithoutLocks: an owner counts if its process lives.
func TestOwnersWithoutLocks(t *testing.T) {
	locks := flock
	defer func() { flock = locks }()
	flock = func(*os.File, int) error { return unix.ENOLCK }
	base := t.TempDir()
	for _, run := range []string{"a", "a"} {
		d, taken := takes(t, base, run)
		if taken != nil {
			t.Fatal(taken)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, taken := takes(t, base, "b"); taken == nil || !strings.Contains(taken.Error(), "is in use by another run (pid ") {
		t.Errorf("%v", taken)
	}
	path := filepath.Join(base, "job1", ownerFile)
	for what, text := range map[string]string{
		"another process with this pid": strings.Replace(contents(t, path), `"Start":"`, `"Start":"9`, 1),
		"a machine that was booted":     strings.Replace(contents(t, path), `"Boot":"`, `"Boot":"9`, 1),
		"an owner that is torn":         contents(t, path)[:20],
		"no owner":                      "",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		d, taken := takes(t, base, "b")
		if taken != nil {
			t.Errorf("%s: %v", what, taken)
			continue
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

func contents(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
