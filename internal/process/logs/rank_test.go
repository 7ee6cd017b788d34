package logs

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/golaunch/golaunch/internal/process/console"
	"github.com/golaunch/golaunch/internal/testkit/pipetest"
)

func TestRankFiles(t *testing.T) {
	d := openDir(t, t.TempDir())
	r := newRank(t, d, RankOptions{Rank: 3, Attempt: 2})
	run(t, r, `echo out; echo err >&2; printf 'no end'`)
	if got := readFile(t, d.Path(), "attempt-2", "rank-3.stdout.log"); got != "out\nno end" {
		t.Errorf("stdout: %q", got)
	}
	if got := readFile(t, d.Path(), "attempt-2", "rank-3.stderr.log"); got != "err\n" {
		t.Errorf("stderr: %q", got)
	}
	if want := filepath.Join(d.Path(), "attempt-2", "rank-3.error.json"); r.ErrorFile() != want {
		t.Errorf("error file %s, want %s", r.ErrorFile(), want)
	}
	if want := int64(len("out\nerr\nno end")); r.Written() != want {
		t.Errorf("%d bytes written, want %d", r.Written(), want)
	}
	for _, name := range r.Files() {
		if _, err := d.Root().Stat(name); err != nil {
			t.Error(err)
		}
	}
}

// TestOldFilesOfARankGo: the files of an earlier run do not count for a rank.
func TestOldFilesOfARankGo(t *testing.T) {
	base := t.TempDir()
	d := openDir(t, base)
	first := newRank(t, d, RankOptions{})
	run(t, first, "echo 7 >"+first.HeartbeatFile()+"; echo x >"+first.ErrorFile()+"; cd $(dirname "+first.NoticeFile()+"); touch rank-0.notice.json rank-0.notice.json.ready")
	second := newRank(t, openDir(t, base), RankOptions{})
	for _, name := range []string{second.HeartbeatFile(), second.ErrorFile(), second.NoticeFile(), second.NoticeFile() + ".ready"} {
		if _, err := os.Stat(name); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	run(t, second, "true")
}

func TestSilentRankMakesNoFile(t *testing.T) {
	d := openDir(t, t.TempDir())
	run(t, newRank(t, d, RankOptions{}), `exit 0`)
	entries, err := os.ReadDir(filepath.Join(d.Path(), "attempt-0"))
	if err != nil || len(entries) != 0 {
		t.Errorf("entries %v, error %v", entries, err)
	}
}

func TestChildGetsBlockingPipe(t *testing.T) {
	d := openDir(t, t.TempDir())
	r := newRank(t, d, RankOptions{})
	run(t, r, `grep flags /proc/self/fdinfo/1`)
	text := readFile(t, d.Path(), "attempt-0", "rank-0.stdout.log")
	flags, err := strconv.ParseInt(strings.Fields(text)[1], 8, 64)
	if err != nil || flags&syscall.O_NONBLOCK != 0 {
		t.Errorf("flags %#o, error %v", flags, err)
	}
}

// TestFlushWhilePipesAreHeld: a rank has exited, but a grandchild holds its pipes open, so there is
// no end of file.
func TestFlushWhilePipesAreHeld(t *testing.T) {
	r, w := pipetest.Pipe(t)
	c := console.New(w, w)
	shown := pipetest.Collect(t, r, w)
	d := openDir(t, t.TempDir())
	rank := newRank(t, d, RankOptions{Console: c, Prefix: "[0] "})
	holder := exec.Command("sleep", "1000")
	holder.Stdout, holder.Stderr = rank.Stdout, rank.Stderr
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	defer holder.Wait()
	defer holder.Process.Kill()
	cmd := start(t, rank, `echo out; printf 'last words' >&2; exit 3`)
	if cmd.Wait(); cmd.ProcessState.ExitCode() != 3 {
		t.Fatal(cmd.ProcessState)
	}
	for range 2 {
		if err := rank.Flush(pipetest.Soon(t)); err != nil {
			t.Fatal(err)
		}
	}
	if got := readFile(t, d.Path(), "attempt-0", "rank-0.stdout.log"); got != "out\n" {
		t.Errorf("file %q", got)
	}
	if got := rank.Tail(); got != "last words" {
		t.Errorf("tail %q", got)
	}
	if err := rank.Close(pipetest.Soon(t)); err != nil {
		t.Error(err)
	}
	if err := rank.Flush(pipetest.Soon(t)); err != nil {
		t.Errorf("flush after the end: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if got := shown(); !strings.Contains(got, "[0] last words\n") || !strings.Contains(got, "[0] out\n") {
		t.Errorf("shown %q", got)
	}
}

// TestTailHasTheQuestionOfPDB: since Python 3.14, nothing but the last line of stdout shows that a
// user left pdb.
func TestTailHasTheQuestionOfPDB(t *testing.T) {
	const question = "(Pdb) Quitting pdb will kill the process. Quit anyway? [y/n] "
	for script, want := range map[string]string{
		"echo step; printf '%s' '" + question + "'":                      strings.TrimSpace(question),
		"echo step; echo '" + question + "'; echo words >&2":             "words\n" + strings.TrimSpace(question),
		"echo '" + question + "'; echo '(Pdb) c'; echo words >&2":        "words",
		"echo step; echo 'it is the end of the process'; echo words >&2": "words",
	} {
		rank := newRank(t, openDir(t, t.TempDir()), RankOptions{})
		cmd := start(t, rank, script+"; exit 1")
		_ = cmd.Wait()
		if err := rank.Flush(pipetest.Soon(t)); err != nil {
			t.Fatal(err)
		}
		if got := rank.Tail(); got != want {
			t.Errorf("%s: tail %q, want %q", script, got, want)
		}
		if err := rank.Close(pipetest.Soon(t)); err != nil {
			t.Error(err)
		}
	}
}

// TestFlushHandlesWhatIsThere: a pump that is woken before it has read handles the contents of the
// pipe before it answers.
func TestFlushHandlesWhatIsThere(t *testing.T) {
	d := openDir(t, t.TempDir())
	r := &Rank{dir: d}
	if err := os.Mkdir(filepath.Join(d.Path(), r.attempt()), 0o700); err != nil {
		t.Fatal(err)
	}
	p, w, err := newPump(nil)
	if err != nil {
		t.Fatal(err)
	}
	r.connect(p, console.Stdout)
	defer w.Close()
	if _, err := w.WriteString("there"); err != nil {
		t.Fatal(err)
	}
	answered := make(chan struct{})
	p.flushes <- answered
	if p.answer() {
		t.Error("told to stop")
	}
	<-answered
	if got := readFile(t, d.Path(), "attempt-0", "rank-0.stdout.log"); got != "there" {
		t.Errorf("file %q", got)
	}
	go p.run()
	if err := p.close(pipetest.Soon(t)); err != nil {
		t.Error(err)
	}
}

// TestCloseHandlesWhatIsLeft: the last output of a dead rank is not lost, even if another process
// holds the pipe.
func TestCloseHandlesWhatIsLeft(t *testing.T) {
	d := openDir(t, t.TempDir())
	in := strings.Repeat("0123456789abcde\n", 8<<10)
	file := filepath.Join(t.TempDir(), "in")
	if err := os.WriteFile(file, []byte(in), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		r := newRank(t, d, RankOptions{Rank: i})
		fd, err := syscall.Dup(int(r.Stdout.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		defer syscall.Close(fd)
		run(t, r, `cat "$1"`, file)
		if got := readFile(t, d.Path(), "attempt-0", "rank-"+strconv.Itoa(i)+".stdout.log"); got != in {
			t.Fatalf("%d bytes of %d", len(got), len(in))
		}
	}
}

func TestBytesAreExact(t *testing.T) {
	var in strings.Builder
	for i := range 1 << 20 {
		in.WriteString("\x00\xff\x1b" + strconv.Itoa(i))
	}
	file := filepath.Join(t.TempDir(), "in")
	if err := os.WriteFile(file, []byte(in.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	r, w := pipetest.Pipe(t)
	c := patient(console.New(w, w))
	shown := pipetest.Collect(t, r, w)
	d := openDir(t, t.TempDir())
	run(t, newRank(t, d, RankOptions{Console: c, Prefix: "[0] "}), `cat "$1"`, file)
	if readFile(t, d.Path(), "attempt-0", "rank-0.stdout.log") != in.String() {
		t.Error("the file differs")
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	var back strings.Builder
	for line := range strings.Lines(shown()) {
		if len(line) > len("[0] ")+4<<20+1 {
			t.Fatalf("a piece of %d bytes", len(line))
		}
		back.WriteString(strings.TrimSuffix(strings.TrimPrefix(line, "[0] "), "\n"))
	}
	if back.String() != in.String() {
		t.Error("the console differs")
	}
}

func TestMemoryIsBounded(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	c := console.New(null, null)
	d := openDir(t, t.TempDir())
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	run(t, newRank(t, d, RankOptions{Console: c, Prefix: "[0] ", Limit: 1000}), `head -c 256M /dev/zero; yes | head -c 10M >&2`)
	runtime.ReadMemStats(&after)
	if got := after.Sys - before.Sys; got > 20*4<<20 {
		t.Errorf("%d bytes were needed for 266 MB of output", got)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	const end = "\ngolaunch: log limit of 1000 bytes reached, the rest is not kept\n"
	if got, want := readFile(t, d.Path(), "attempt-0", "rank-0.stdout.log"), strings.Repeat("\x00", 1000)+end; got != want {
		t.Errorf("%q", got)
	}
}
