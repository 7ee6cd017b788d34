package main

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/cli"
	"github.com/golaunch/golaunch/internal/testkit/nettest"
	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// beating is a rank that reports its steps and writes lines until a file exists.
const beating = `step=0
until [ -e "$1/stop" ]; do
	step=$((step+1))
	echo "$step 100000" > "$GOLAUNCH_HEARTBEAT_FILE.new"
	mv "$GOLAUNCH_HEARTBEAT_FILE.new" "$GOLAUNCH_HEARTBEAT_FILE"
	echo "line $step"
	sleep 0.1
done`

// TestMetricsOfARealJob: a node-exporter reads the metrics from a file. The file is never partial,
// its counters grow, and it does not look current when it is no longer written.
func TestMetricsOfARealJob(t *testing.T) {
	t.Parallel()
	dir, id := t.TempDir(), fmt.Sprintf("metrics-%d", os.Getpid())
	file := filepath.Join(dir, "golaunch.prom")
	job := start(t, exec.Command(golaunch(t), "--procs-per-node", "2", "--job-id", id, "--", "sh", "-c", beating, "sh", dir))
	job.line("line 3$")

	written := renames(t, dir)
	metrics := func(more ...string) *process {
		return start(t, exec.Command(golaunch(t), append([]string{"metrics", id, "--textfile", file}, more...)...), "GOLAUNCH_COORDINATOR=")
	}
	watch := metrics("--every", "1s")
	for grown := false; !grown; {
		written(t)
		text := readMetrics(t, file)
		if metric(text, `golaunch_up{source=`) != 1 || metric(text, fmt.Sprintf(`golaunch_ranks{job=%q,state="running"}`, id)) != 2 {
			t.Fatalf("this is no sight of a job that runs:\n%s", text)
		}
		grown = metric(text, fmt.Sprintf("golaunch_steps_total{job=%q}", id)) > 0 && metric(text, fmt.Sprintf("golaunch_log_lines_total{job=%q}", id)) > 1 &&
			metric(text, fmt.Sprintf("golaunch_goodput_seconds_total{job=%q,state=\"training\"}", id)) > 0
	}
	if text := exported(t, dir); !strings.Contains(text, "node_textfile_scrape_error 0") || metric(text, "golaunch_up{") != 1 {
		t.Errorf("node-exporter has:\n%s", text)
	}
	watch.cmd.Process.Signal(syscall.SIGTERM)
	watch.ends(0)
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v is left", err, left)
	}

	metrics().ends(0)
	text := readMetrics(t, file)
	if step := metric(text, fmt.Sprintf("golaunch_step{job=%q}", id)); step < 3 || strings.Contains(text, "golaunch_steps_total{") {
		t.Errorf("written once, at step %v:\n%s", step, text)
	}
	if err := os.WriteFile(filepath.Join(dir, "stop"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	job.ends(0)
	metrics().ends(125, "no coordinator runs on this machine")
	if text := readMetrics(t, file); metric(text, "golaunch_up{") != 0 || strings.Contains(text, "golaunch_job_state") {
		t.Errorf("the job is over:\n%s", text)
	}
}

// TestMetricsOfALaunchThatIsKilled: a job that ends is no error, and a job whose coordinator is
// killed is reported once.
func TestMetricsOfALaunchThatIsKilled(t *testing.T) {
	t.Parallel()
	node := nettest.Nodes(t, "10.78.0.2")[0]
	dir, home := t.TempDir(), t.TempDir()
	file := filepath.Join(dir, "golaunch.prom")
	here := func(args ...string) *process {
		return start(t, node.Command(append([]string{golaunch(t)}, args...)...), "GOLAUNCH_COORDINATOR=", "HOME="+home)
	}
	good := here("--job-id", "good", "--", "sh", "-c", beating, "sh", home)
	bad := here("--job-id", "bad", "--", "sleep", "1000")
	written := renames(t, dir)
	watch := here("metrics", "--textfile", file, "--every", "1s")
	until := func(up, lost float64) {
		t.Helper()
		for {
			written(t)
			text := readMetrics(t, file)
			if metric(text, `golaunch_up{source="job good"}`) == 0 {
				t.Fatalf("a job that has ended is trouble:\n%s", text)
			}
			if metric(text, `golaunch_up{source="job good"}`) == up && metric(text, `golaunch_up{source="job bad"}`) == lost {
				return
			}
		}
	}
	until(1, 1)
	here("cost").ends(125, "no coordinator runs on this machine; start one") // these jobs have no cost
	if err := os.WriteFile(filepath.Join(home, "stop"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	good.ends(0)
	until(-1, 1)
	bad.kill()
	until(-1, 0)
	written(t)
	watch.signal(syscall.SIGTERM)
	watch.ends(0)
	if text := watch.all(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "the coordinator of job bad is gone") {
		t.Errorf("it says %q", text)
	}
}

// renames returns a function that waits until a file has been moved into its place in a directory.
func renames(t *testing.T, dir string) func(*testing.T) {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	events := os.NewFile(uintptr(fd), "inotify")
	t.Cleanup(func() { events.Close() })
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_MOVED_TO); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 16*unix.SizeofInotifyEvent+16*unix.NAME_MAX)
	return func(t *testing.T) {
		t.Helper()
		if _, err := events.Read(buffer); err != nil {
			t.Fatal(err)
		}
	}
}

// readMetrics returns the whole file, which every user may read.
func readMetrics(t *testing.T, file string) string {
	t.Helper()
	info, err := os.Stat(file)
	if err != nil || info.Mode() != 0o644 {
		t.Fatalf("%v, %v", info, err)
	}
	text, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(text), "\ngolaunch_up{") || !bytes.HasSuffix(text, []byte("\n")) {
		t.Fatalf("%v: it is not whole:\n%s", err, text)
	}
	return string(text)
}

// metric returns the value of the series that begins with a text; -1 when there is none.
func metric(text, begins string) float64 {
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(begins) + `.* (\S+)$`).FindStringSubmatch(text)
	if m == nil {
		m = regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(begins) + ` (\S+)$`).FindStringSubmatch(text)
	}
	if m == nil {
		return -1
	}
	value, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		return -1
	}
	return value
}

// exported returns the output of a real node-exporter for a directory.
func exported(t *testing.T, dir string) string {
	t.Helper()
	path, err := exec.LookPath("prometheus-node-exporter")
	if err != nil {
		suite.Missing(t, "there is no node-exporter; apt-get install prometheus-node-exporter")
	}
	at := fmt.Sprintf("127.0.0.1:%d", nettest.Port(t))
	p := start(t, exec.Command(path, "--collector.disable-defaults", "--collector.textfile", "--collector.textfile.directory", dir, "--web.listen-address", at))
	p.line("Listening on|TLS is disabled")
	answer, err := http.Get("http://" + at + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestMetricsCannotBeWritten: one line says why, and names the file if a file is at fault.
func TestMetricsCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "a.prom"), 0o700); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "a.txt"):          "node-exporter reads only files whose names end in .prom",
		filepath.Join(dir, "none", "a.prom"): "there is no directory",
		filepath.Join(dir, "a.prom"):         "no plain file",
	} {
		var said bytes.Buffer
		code := Main(&cli.Console{Stdout: io.Discard, Stderr: &said}, []string{"metrics", "--textfile", path})
		if code != cli.ExitUsage || !strings.Contains(said.String(), want) || strings.Count(said.String(), "\n") != 1 {
			t.Errorf("%s: exit code %d, %s", path, code, said.String())
		}
	}
	if err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			t.Errorf("%s is left", path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}
