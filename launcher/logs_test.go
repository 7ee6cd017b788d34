package launcher_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/golaunch/golaunch/launcher"
	"github.com/golaunch/golaunch/launcher/report"
)

// tree lists the files and directories below a directory, with their modes.
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
-rw------- j/.owner
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
		// A stopped rank may not have printed anything yet.
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

// TestDefaultLogs: logs are kept after a failure. They are removed after a success, and if nothing
// was started.
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
		{`echo hello`, func(j *launcher.Job) { j.Output.Stdout = failingWriter{} }, true},
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
			t.Errorf("%+v: the message names the logs: %v, want %v:\n%s", job.Command, !c.kept, c.kept, told)
		}
	}
}

// failingWriter fails each write.
type failingWriter struct{}

var errWriter = errors.New("it takes nothing")

func (failingWriter) Write([]byte) (int, error) { return 0, errWriter }

// TestOutputThatCannotBeShown: the job does not fail if its output cannot be shown.
func TestOutputThatCannotBeShown(t *testing.T) {
	job, _, _ := marked(t, 1, `echo hello`)
	job.Output.Stdout = failingWriter{}
	result, err := launcher.Run(t.Context(), job)
	if result.Code != 0 || !errors.Is(err, errWriter) || !strings.Contains(err.Error(), job.Output.LogDir) {
		t.Errorf("code %d, error %v; want 0 and why the output was not shown", result.Code, err)
	}
}

// TestAFIFOInThePlaceOfLogs: golaunch does not write to a FIFO that another user has made in /tmp.
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
	if err := os.Chmod(dir, 0o777); err != nil { // needed because Mkdir obeys the umask
		t.Fatal(err)
	}
	job, _, _ := marked(t, 1, `exit 0`)
	job.Output.LogDir = ""
	result, err := launcher.Run(t.Context(), job)
	if result.Code != 125 || err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "--log-dir") {
		t.Errorf("code %d, error %v; want 125, the directory and a way out", result.Code, err)
	}
}

// TestTwoRunsWithOneID: of two runs at the same time, the second gets another directory, or is
// refused if the user chose the directory.
func TestTwoRunsWithOneID(t *testing.T) {
	for _, c := range []struct {
		dir  string
		code int
	}{{"", 5}, {filepath.Join(t.TempDir(), "logs"), 2}} {
		tmp := t.TempDir()
		t.Setenv("TMPDIR", tmp)
		first, out, _ := marked(t, 1, `echo up; until [ -e end ]; do sleep 0.02; done; exit 7`)
		first.ID, first.Output.LogDir, first.Dir = "j", c.dir, t.TempDir()
		ended := make(chan report.Result, 1)
		go func() {
			result, err := launcher.Run(context.Background(), first)
			if err != nil {
				t.Error(err)
			}
			ended <- result
		}()
		out.await(t, "up")
		second, _, words := marked(t, 1, `echo down; exit 5`)
		second.ID, second.Output.LogDir = "j", c.dir
		result, err := launcher.Run(t.Context(), second)
		if result.Code != c.code {
			t.Errorf("the second ends with %+v (%v), want code %d", result, err, c.code)
		}
		want := "logs      " + filepath.Join(tmp, fmt.Sprintf("golaunch-%d", os.Getuid()), "j.2")
		if c.code == 2 {
			want = fmt.Sprintf("is in use by another run (pid %d on ", os.Getpid())
		}
		if said := fmt.Sprint(words, err); !strings.Contains(said, want) {
			t.Errorf("the second says %q, want %q", said, want)
		}
		if err := os.WriteFile(filepath.Join(first.Dir, "end"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if result := <-ended; result.Code != 7 {
			t.Errorf("the first ends with %+v", result)
		}
		base := cmp.Or(c.dir, filepath.Join(tmp, fmt.Sprintf("golaunch-%d", os.Getuid())))
		if text, err := os.ReadFile(filepath.Join(base, "j/attempt-0/rank-0.stdout.log")); err != nil || string(text) != "up\n" {
			t.Errorf("the first has written %q (%v)", text, err)
		}
	}
}

// TestTwoAgentsWithOneName: of two agents at the same time, the second is refused if the user chose
// its name and its directory. Otherwise it gets another directory.
func TestTwoAgentsWithOneName(t *testing.T) {
	t.Setenv("GOLAUNCH_TOKEN", strings.Repeat("a", 64))
	t.Setenv("TMPDIR", t.TempDir())
	zero, asked := 0, filepath.Join(t.TempDir(), "logs")
	agent := launcher.Agent{Coordinator: "127.0.0.1:1", Name: "n1", GPUs: &zero, Preflight: "off", AllowRunAsRoot: true, Say: func(string) {}}
	begin := func(a launcher.Agent) {
		t.Helper()
		ctx, cancel := context.WithCancel(context.Background())
		left, tries := make(chan struct{}), make(chan struct{})
		var once sync.Once
		a.Warn = func(error) { once.Do(func() { close(tries) }) } // no process listens at that port
		go func() {
			defer close(left)
			_, _ = a.Serve(ctx)
		}()
		t.Cleanup(func() {
			cancel()
			<-left
		})
		select {
		case <-tries:
		case <-time.After(patience):
			t.Fatal("the agent does not try to join")
		}
	}
	begin(agent)
	begin(agent)
	agent.LogDir = asked
	begin(agent)
	agent.Warn = func(error) {}
	for _, adopt := range []bool{false, true} {
		agent.Adopt = adopt
		_, err := agent.Serve(t.Context())
		if want := fmt.Sprintf("n1 is in use by another run (pid %d on ", os.Getpid()); !errors.Is(err, launcher.ErrUsage) || !strings.Contains(err.Error(), want) {
			t.Errorf("adopt %v: %v, want %q", adopt, err, want)
		}
	}
	for _, name := range []string{"n1", "n1.2"} {
		if _, err := os.Stat(filepath.Join(os.TempDir(), fmt.Sprintf("golaunch-%d", os.Getuid()), name)); err != nil {
			t.Error(err)
		}
	}
}
