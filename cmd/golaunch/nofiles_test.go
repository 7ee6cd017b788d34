package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestNoPlaceForFiles: if the default log directory cannot be made, a job runs without it, with one
// warning.
func TestNoPlaceForFiles(t *testing.T) {
	t.Parallel()
	const said = "; this job goes on without files"
	run := func(tmp string, args ...string) (int, string) {
		code, text := start(t, exec.Command(golaunch(t), args...), "TMPDIR="+tmp).wait()
		if n := strings.Count(text, said); n != 1 {
			t.Errorf("%q says %d times that it has no files", args, n)
		}
		return code, text
	}
	missing := filepath.Join(t.TempDir(), "missing")
	for tmp, why := range map[string]string{
		missing:                   "no such file or directory",
		mounted(t, "nr_inodes=1"): "no space left on device",
	} {
		if code, text := run(tmp, "-n", "2", "--", "sh", "-c", "echo rank $RANK; echo e$RANK >&2"); code != 0 || !strings.Contains(text, why) ||
			!strings.Contains(text, "] rank 1\n") || !strings.Contains(text, "] e0\n") {
			t.Errorf("exit code %d", code)
		}
		if code, text := run(tmp, "-n", "2", "--max-restarts=0", "--", "sh", "-c", "echo because >&2; exit 3"); code != 3 ||
			!strings.Contains(text, "  | because\n") || strings.Contains(text, "  logs  ") {
			t.Errorf("exit code %d", code)
		}
	}
	if code, _ := run(missing, "--simulate", "--nodes=2", "--procs-per-node=1", "--", "true"); code != 0 {
		t.Errorf("simulated: exit code %d", code)
	}
	if code, text := run(missing, "torchrun", "--standalone", "-r", "3", "-t", "3", "--no-python", "sh", "-c", "echo file: $TORCHELASTIC_ERROR_FILE."); code != 0 ||
		!strings.Contains(text, "[default0]:file: .\n") {
		t.Errorf("torchrun: exit code %d", code)
	}
	start(t, exec.Command(golaunch(t), "--log-dir", filepath.Join(mounted(t, "nr_inodes=1"), "logs"), "--", "true")).
		ends(125, "no space left on device", "choose another with --log-dir")
}

// TestNoPlaceForAnotherAttempt: the first attempt uses up all inodes of the log directory.
func TestNoPlaceForAnotherAttempt(t *testing.T) {
	t.Parallel()
	dir := mounted(t, "nr_inodes=64")
	start(t, exec.Command(golaunch(t), "--log-dir", dir, "--job-id", "a", "--bundle=off", "--backoff", "0s:0s", "--", "sh", "-c",
		`i=0; while [ $GOLAUNCH_ATTEMPT = 0 ] && : >$0/$i; do i=$((i+1)); done; echo attempt $GOLAUNCH_ATTEMPT; exit $((GOLAUNCH_ATTEMPT == 0))`, dir)).
		ends(0, "attempt 1", "make the log directory of rank 0 on ", "no space left on device: the rank goes on without files")
}

// mounted is a file system in memory with options of tmpfs(5).
func mounted(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}
