package launcher_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/golaunch/golaunch/launcher"
)

// tree lists what is below a directory, with modes.
func tree(t *testing.T, root string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		info, err := d.Info()
		fmt.Fprintf(&b, "%v %s\n", info.Mode(), strings.TrimPrefix(path, root+"/"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestLogFiles(t *testing.T) {
	for _, simulate := range []bool{false, true} {
		job, _, _ := marked(t, 2, `umask 077; echo out $RANK; [ $RANK = 0 ] || exec sleep 1000; echo err >&2
echo '{"message": "boom"}' >$TORCHELASTIC_ERROR_FILE; exit 1`)
		job.ID, job.Restarts.Max, job.Output.LogDir, job.Resources.Simulate = "j", 1, filepath.Join(t.TempDir(), "made", "on", "demand"), simulate
		if result, err := launcher.Run(t.Context(), job); err != nil || result.Code != 1 {
			t.Fatalf("%+v (%v)", result, err)
		}
		want := `drwx------ j
drwx------ j/attempt-0
-rw------- j/attempt-0/rank-0.error.json
-rw------- j/attempt-0/rank-0.stderr.log
-rw------- j/attempt-0/rank-0.stdout.log
-rw------- j/attempt-0/rank-1.stdout.log
drwx------ j/attempt-1
-rw------- j/attempt-1/rank-0.error.json
-rw------- j/attempt-1/rank-0.stderr.log
-rw------- j/attempt-1/rank-0.stdout.log
-rw------- j/attempt-1/rank-1.stdout.log
-rw------- j/events.jsonl
`
		node := "n1"
		if simulate {
			node = "node0"
		}
		want = strings.Replace(want, "-rw------- j/events", fmt.Sprintf(
			"-rw------- j/bundle-%[1]s-attempt-0.tar.gz\n-rw------- j/bundle-%[1]s-attempt-1.tar.gz\n-rw------- j/events", node), 1)
		got := tree(t, job.Output.LogDir)
		// A rank that is stopped may not have come to its first word.
		for _, line := range []string{"-rw------- j/attempt-0/rank-1.stdout.log\n", "-rw------- j/attempt-1/rank-1.stdout.log\n"} {
			got, want = strings.Replace(got, line, "", 1), strings.Replace(want, line, "", 1)
		}
		if got != want {
			t.Errorf("simulate %v: the logs are\n%swant\n%s", simulate, got, want)
		}
		if text, err := os.ReadFile(filepath.Join(job.Output.LogDir, "j/attempt-1/rank-0.stdout.log")); err != nil || string(text) != "out 0\n" {
			t.Errorf("rank 0's stdout is %q (%v)", text, err)
		}
	}
}

// TestDefaultLogs stay when they can be needed: after a failure, but not after success, nor when nothing was started.
func TestDefaultLogs(t *testing.T) {
	for _, c := range []struct {
		script string
		set    func(*launcher.Job)
		kept   bool
	}{
		{`echo hello`, func(*launcher.Job) {}, false},
		{`echo hello; exit 1`, func(*launcher.Job) {}, true},
		{`echo hello`, func(j *launcher.Job) { j.Resources.Simulate = true }, false},
		{`echo hello; exit 1`, func(j *launcher.Job) { j.Resources.Simulate = true }, true},
		{`echo hello`, func(j *launcher.Job) { j.Network.Address = "0.0.0.0" }, false},
		{`echo hello`, func(j *launcher.Job) { j.Output.Stdout = deaf{} }, true},
	} {
		tmp := t.TempDir()
		t.Setenv("TMPDIR", tmp)
		job, _, words := marked(t, 1, c.script)
		job.Output.LogDir, job.ID = "", "j"
		c.set(&job)
		_, err := launcher.Run(t.Context(), job)
		path := filepath.Join(tmp, fmt.Sprintf("golaunch-%d", os.Getuid()), "j")
		if _, gone := os.Stat(path); (gone == nil) != c.kept {
			t.Errorf("%+v: the logs are kept: %v, want %v", job.Command, gone == nil, c.kept)
		}
		if told := fmt.Sprint(words, err); strings.Contains(told, path) != c.kept {
			t.Errorf("%+v: where the logs are is told: %v, want %v:\n%s", job.Command, !c.kept, c.kept, told)
		}
	}
}

// deaf takes nothing.
type deaf struct{}

var errDeaf = errors.New("it is deaf")

func (deaf) Write([]byte) (int, error) { return 0, errDeaf }

// TestOutputThatCannotBeShown is no failure of the job.
func TestOutputThatCannotBeShown(t *testing.T) {
	job, _, _ := marked(t, 1, `echo hello`)
	job.Output.Stdout = deaf{}
	result, err := launcher.Run(t.Context(), job)
	if result.Code != 0 || !errors.Is(err, errDeaf) || !strings.Contains(err.Error(), job.Output.LogDir) {
		t.Errorf("code %d, error %v; want 0 and why the output was not shown", result.Code, err)
	}
}

// TestAFIFOInThePlaceOfLogs is one that another user has made in /tmp. Nobody writes to it.
func TestAFIFOInThePlaceOfLogs(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	if err := syscall.Mkfifo(filepath.Join(os.TempDir(), fmt.Sprintf("golaunch-%d", os.Getuid())), 0o666); err != nil {
		t.Fatal(err)
	}
	job, _, _ := marked(t, 1, `exit 0`)
	job.Output.LogDir = ""
	result, err := launcher.Run(t.Context(), job)
	if result.Code != 125 || !errors.Is(err, syscall.ENOTDIR) || !strings.Contains(err.Error(), "choose another directory for logs with --log-dir") {
		t.Errorf("code %d, error %v; want 125, what it is and a way out", result.Code, err)
	}
}

// TestLogsInASharedPlace refuses a directory that others can write to.
func TestLogsInASharedPlace(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	dir := filepath.Join(tmp, fmt.Sprintf("golaunch-%d", os.Getuid()))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil { // Mkdir heeds the umask
		t.Fatal(err)
	}
	job, _, _ := marked(t, 1, `exit 0`)
	job.Output.LogDir = ""
	result, err := launcher.Run(t.Context(), job)
	if result.Code != 125 || err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "--log-dir") {
		t.Errorf("code %d, error %v; want 125, the directory and a way out", result.Code, err)
	}
}
