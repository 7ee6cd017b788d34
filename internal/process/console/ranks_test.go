package console_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/process/console"
	"github.com/golaunch/golaunch/internal/process/logs"
	"github.com/golaunch/golaunch/internal/testkit/pipetest"
)

// TestLinesAreWhole makes eight ranks write to both streams, which are one pipe. Every line is
// whole, in its rank's order.
func TestLinesAreWhole(t *testing.T) {
	const ranks, lines = 8, 20000
	r, w := pipetest.Pipe(t)
	c := console.Patient(console.New(w, w))
	shown := pipetest.Collect(t, r, w)
	d := openDir(t, t.TempDir())
	var wg sync.WaitGroup
	for i := range ranks {
		rank := newRank(t, d, logs.RankOptions{Rank: i, Console: c, Prefix: fmt.Sprintf("[n1 r%02d] ", i)})
		wg.Go(func() { run(t, rank, `seq 1 $1 & seq -f e%.0f 1 $1 >&2; wait`, fmt.Sprint(lines)) })
	}
	wg.Wait()
	c.Say("done\nwith %d", ranks)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	next := map[string]int{}
	text, own, _ := strings.Cut(shown(), "golaunch: ")
	if own != "done\ngolaunch: with 8\n" {
		t.Errorf("last words %q", own)
	}
	whole := regexp.MustCompile(`^(\[n1 r\d\d\] e?)(\d+)\n$`)
	for line := range strings.Lines(text) {
		m := whole.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("torn line %q", line)
		}
		if next[m[1]]++; fmt.Sprint(next[m[1]]) != m[2] {
			t.Fatalf("line %q, want number %d", line, next[m[1]])
		}
	}
	for stream, n := range next {
		if n != lines {
			t.Errorf("%s: %d lines", stream, n)
		}
	}
	if len(next) != 2*ranks {
		t.Errorf("%d streams", len(next))
	}
}

// TestStuckPipe: a rank continues after a second without a reader, and once there is one, the lost
// lines are reported.
func TestStuckPipe(t *testing.T) {
	r, w := pipetest.Pipe(t)
	c := console.New(w, w)
	d := openDir(t, t.TempDir())
	const total = 800000
	began := time.Now()
	run(t, newRank(t, d, logs.RankOptions{Console: c}), `seq 100000 899999`)
	if took := time.Since(began); took < console.Patience {
		t.Errorf("lines were lost after %v", took)
	}
	if got := strings.Count(readFile(t, d.Path(), "attempt-0", "rank-0.stdout.log"), "\n"); got != total {
		t.Errorf("%d lines in the file", got)
	}
	shown := pipetest.Collect(t, r, w)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	n, lost := 0, 0
	for line := range strings.Lines(shown()) {
		if len(line) == len("100000\n") {
			n++
		} else if k, err := fmt.Sscanf(line, "golaunch: stderr was not read for a while: lines not shown: %d;", &lost); k != 1 {
			t.Errorf("line %q: %v", line, err)
		}
	}
	if n+lost != total || lost == 0 {
		t.Errorf("%d lines shown and %d lost, of %d", n, lost, total)
	}
}

// TestEachLineIsShownOrCounted: without a reader, every line is either in the pipe or counted as
// lost.
func TestEachLineIsShownOrCounted(t *testing.T) {
	r, w := pipetest.Pipe(t)
	c := console.New(w, console.Writer(nil))
	const total = 100_000
	run(t, newRank(t, openDir(t, t.TempDir()), logs.RankOptions{Console: c}), fmt.Sprint("seq 1 ", total))
	err := c.Close()
	held, sizeErr := unix.IoctlGetInt(int(r.Fd()), unix.TIOCINQ)
	text := make([]byte, held)
	if _, readErr := io.ReadFull(r, text); sizeErr != nil || readErr != nil {
		t.Fatal(sizeErr, readErr)
	}
	want := fmt.Sprintf("its reader does not read (lines not shown: %d;", total-console.CountLines(text))
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%d bytes are in the pipe, and the error is %v; want %q", held, err, want)
	}
}

func TestReaderGone(t *testing.T) {
	r, w := pipetest.Pipe(t)
	r.Close()
	var words bytes.Buffer
	c := console.New(w, &words)
	d := openDir(t, t.TempDir())
	run(t, newRank(t, d, logs.RankOptions{Console: c}), `seq 1 1000000`)
	if got := readFile(t, d.Path(), "attempt-0", "rank-0.stdout.log"); !strings.HasSuffix(got, "\n1000000\n") {
		t.Errorf("file of %d bytes", len(got))
	}
	if err := c.Close(); !errors.Is(err, unix.EPIPE) || !strings.Contains(err.Error(), "lines not shown: 1000000;") {
		t.Errorf("error %v", err)
	}
	if want := "golaunch: stdout: broken pipe: nothing more is shown there; the log files have it\n"; words.String() != want {
		t.Errorf("words %q", words.String())
	}
}

// TestARankAlone: the output of a single rank passes unchanged and at once; messages start on a new
// line.
func TestARankAlone(t *testing.T) {
	r, w := pipetest.Pipe(t)
	c := console.New(w, w)
	d := openDir(t, t.TempDir())
	rank := newRank(t, d, logs.RankOptions{Console: c, Alone: true})
	long := strings.Repeat("x", 200_000)
	cmd := start(t, rank, `printf '\r 50%%\033[2J'; kill -STOP $$; printf '\r100%%'; kill -STOP $$; printf ' done\n'; head -c 200000 /dev/zero | tr '\0' x; printf end`)
	expect := func(want string) {
		t.Helper()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(r, got); err != nil || string(got) != want {
			t.Fatalf("shown %.100q, %v, want %.100q", got, err, want)
		}
	}
	goOn := func() {
		t.Helper()
		var status syscall.WaitStatus // the script stops itself after it has written
		if _, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
			t.Fatal(status, err)
		}
		if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	expect("\r 50%\x1b[2J")
	c.Say("word")
	expect("\ngolaunch: word\n")
	goOn()
	expect("\r100%")
	goOn()
	expect(" done\n" + long + "end")
	if err := errors.Join(cmd.Wait(), rank.Close(pipetest.Soon(t))); err != nil {
		t.Error(err)
	}
	c.Say("more")
	expect("\ngolaunch: more\n")
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if got := readFile(t, d.Path(), "attempt-0", "rank-0.stdout.log"); got != "\r 50%\x1b[2J\r100% done\n"+long+"end" {
		t.Errorf("the file has %d bytes: %.100q", len(got), got)
	}
}

// TestFlushEndsWithContext: a context bounds Flush even if the console holds the rank back.
func TestFlushEndsWithContext(t *testing.T) {
	block := make(chan struct{})
	var words bytes.Buffer
	c := console.Patient(console.New(console.Writer(func(b []byte) (int, error) { <-block; return len(b), nil }), &words))
	d := openDir(t, t.TempDir())
	r := newRank(t, d, logs.RankOptions{Console: c})
	c.Fill()
	began := time.Now()
	if err := start(t, r, `echo held up`).Wait(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := r.Flush(ctx); err == nil || !strings.Contains(err.Error(), "rank 0 on n1") {
		t.Errorf("flush: %v", err)
	}
	if err := r.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
	if took := time.Since(began); took >= time.Minute {
		t.Errorf("close waited for the console, %v", took)
	}
	if got := readFile(t, d.Path(), "attempt-0", "rank-0.stdout.log"); got != "held up\n" {
		t.Errorf("file %q", got)
	}
	close(block)
	if err := c.Close(); err != nil || !strings.Contains(words.String(), "stdout was not read for a while: lines not shown: 1;") {
		t.Errorf("console %q, error %v", words.String(), err)
	}
}

func prefixOf(rank int) string { return fmt.Sprintf("[r%d] ", rank) }

func openDir(t *testing.T, base string) *logs.Dir {
	t.Helper()
	d, err := logs.Access{}.OpenDir(base, "job1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func newRank(t *testing.T, d *logs.Dir, opts logs.RankOptions) *logs.Rank {
	t.Helper()
	opts.Node = "n1"
	opts.Warn = func(err error) { t.Error(err) }
	r, err := d.Rank(opts)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// start runs a shell script as the rank, and kills it at the end of the test if it still runs.
func start(t *testing.T, r *logs.Rank, script string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(pipetest.Soon(t), "sh", append([]string{"-c", script, "sh"}, args...)...)
	cmd.Stdout, cmd.Stderr = r.Stdout, r.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.Started()
	return cmd
}

// run runs a shell script as the rank to its end and closes the rank.
func run(t *testing.T, r *logs.Rank, script string, args ...string) {
	t.Helper()
	if err := start(t, r, script, args...).Wait(); err != nil {
		t.Errorf("%s: %v", script, err)
	}
	if err := r.Close(pipetest.Soon(t)); err != nil {
		t.Error(err)
	}
}

func readFile(t *testing.T, path ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
