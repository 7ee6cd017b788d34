package logs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// writer is a console whose reader is this function; nil discards.
type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) {
	if w == nil {
		return len(b), nil
	}
	return w(b)
}

// patiently loses no line for a minute of a busy machine.
func patiently(c *Console) *Console {
	c.out.patience, c.err.patience = time.Minute, time.Minute
	return c
}

// Eight ranks write to both streams at once, and both are one pipe: lines are whole, in each rank's order, and none is lost.
func TestLinesAreWhole(t *testing.T) {
	const ranks, lines = 8, 20000
	r, w := pipe(t)
	c := patiently(NewConsole(w, w))
	shown := collect(t, r, w)
	d := openDir(t, t.TempDir())
	var wg sync.WaitGroup
	for i := range ranks {
		rank := newRank(t, d, RankOptions{Rank: i, Console: c, Prefix: fmt.Sprintf("[n1 r%02d] ", i)})
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

// Nobody reads: the rank goes on after a second, and once somebody reads, the lost lines are told.
func TestStuckPipe(t *testing.T) {
	r, w := pipe(t)
	c := NewConsole(w, w)
	d := openDir(t, t.TempDir())
	const total = 800000
	began := time.Now()
	run(t, newRank(t, d, RankOptions{Console: c}), `seq 100000 899999`)
	if took := time.Since(began); took < patience {
		t.Errorf("lines were lost after %v", took)
	}
	if got := strings.Count(readFile(t, d.Path(), "attempt-0", "rank-0.stdout.log"), "\n"); got != total {
		t.Errorf("%d lines in the file", got)
	}
	shown := collect(t, r, w)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	n, lost := 0, 0
	for line := range strings.Lines(shown()) {
		if len(line) == len("100000\n") {
			n++
		} else if k, err := fmt.Sscanf(line, "golaunch: nobody read stderr for a while: lines not shown: %d;", &lost); k != 1 {
			t.Errorf("line %q: %v", line, err)
		}
	}
	if n+lost != total || lost == 0 {
		t.Errorf("%d lines shown and %d lost, of %d", n, lost, total)
	}
}

// Each write takes nearly as long as patience lasts; nothing is lost however long it takes.
func TestSlowConsole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got bytes.Buffer
		c := NewConsole(writer(func(b []byte) (int, error) {
			time.Sleep(patience - time.Millisecond)
			return got.Write(b)
		}), writer(nil))
		var want strings.Builder
		v := view{lane: c.out}
		for i := range 100 {
			line := fmt.Sprintf("line %d\n", i)
			want.WriteString(line)
			feed(&v, line)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if got.String() != want.String() {
			t.Errorf("shown %q", got.String())
		}
	})
}

// After the first loss nobody waits again until the console moves.
func TestStuckConsoleLosesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		var words bytes.Buffer
		c := NewConsole(writer(func(b []byte) (int, error) { <-block; return len(b), nil }), &words)
		v := view{lane: c.out}
		began := time.Now()
		for range 1000 {
			feed(&v, "line\n")
		}
		if took := time.Since(began); took != patience {
			t.Errorf("ranks were held up for %v", took)
		}
		close(block)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		const notice = "golaunch: nobody read stdout for a while: lines not shown: %d; the log files have the ranks'\n"
		if want := fmt.Sprintf(notice, 1000-buffers); words.String() != want {
			t.Errorf("words %q, want %q", words.String(), want)
		}
	})
}

func TestSayNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		var got bytes.Buffer
		c := NewConsole(writer(nil), writer(func(b []byte) (int, error) { <-block; return got.Write(b) }))
		began := time.Now()
		for range maxWords + 5 {
			c.Say("word")
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("waited %v", took)
		}
		close(block)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		n := strings.Count(got.String(), "golaunch: word\n")
		if n != maxWords || !strings.Contains(got.String(), "lines not shown: 5;") {
			t.Errorf("%d words of %d: %q", n, maxWords, got.String())
		}
	})
}

// Lines that are lost after the last write are told too.
func TestLossAtTheEndIsTold(t *testing.T) {
	var words bytes.Buffer
	c := NewConsole(writer(nil), &words)
	c.out.lost.Add(2)
	c.err.lost.Add(3)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	for _, want := range []string{"stdout for a while: lines not shown: 2;", "stderr for a while: lines not shown: 3;"} {
		if !strings.Contains(words.String(), want) {
			t.Errorf("%q is not told in %q", want, words.String())
		}
	}
}

func TestCloseGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		c := NewConsole(writer(func(b []byte) (int, error) { <-block; return len(b), nil }), writer(nil))
		v := view{lane: c.out}
		feed(&v, "a\nb\nc\n")
		synctest.Wait()
		feed(&v, "d\ne\n")
		began := time.Now()
		if err := c.Close(); err == nil || !strings.Contains(err.Error(), "stdout: nobody reads it (lines not shown: 5;") {
			t.Errorf("error %v", err)
		}
		if took := time.Since(began); took != closePatience {
			t.Errorf("closed after %v", took)
		}
		close(block)
	})
}

// TestEachLineIsShownOrCounted of what a console that nobody reads was given: what the kernel has
// taken, and what has not been shown.
func TestEachLineIsShownOrCounted(t *testing.T) {
	r, w := pipe(t)
	c := NewConsole(w, writer(nil))
	const total = 100_000
	run(t, newRank(t, openDir(t, t.TempDir()), RankOptions{Console: c}), fmt.Sprint("seq 1 ", total))
	err := c.Close()
	held, sizeErr := unix.IoctlGetInt(int(r.Fd()), fionread)
	text := make([]byte, held)
	if _, readErr := io.ReadFull(r, text); sizeErr != nil || readErr != nil {
		t.Fatal(sizeErr, readErr)
	}
	want := fmt.Sprintf("nobody reads it (lines not shown: %d;", total-count(text))
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%d bytes are in the pipe, and the error is %v; want %q", held, err, want)
	}
}

func TestReaderGone(t *testing.T) {
	r, w := pipe(t)
	r.Close()
	var words bytes.Buffer
	c := NewConsole(w, &words)
	d := openDir(t, t.TempDir())
	run(t, newRank(t, d, RankOptions{Console: c}), `seq 1 1000000`)
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

// Go ends a program that writes to descriptor 1 when nobody reads it; the console does not let that happen.
func TestReaderOfStdoutGone(t *testing.T) {
	r, w := pipe(t)
	r.Close()
	cmd := exec.CommandContext(soon(t), "/proc/self/exe")
	cmd.Env = append(os.Environ(), helper+"=1")
	cmd.Stdout = w
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.Run()
	if cmd.ProcessState.ExitCode() != 7 || !strings.Contains(stderr.String(), "closed: show the output on stdout: broken pipe") {
		t.Errorf("%v: %s", cmd.ProcessState, stderr.String())
	}
}

func TestRelay(t *testing.T) {
	var out, errs bytes.Buffer
	c := NewConsole(&out, &errs)
	if err := c.Relay(strings.NewReader("[n1 r00] a\n[n1 r00] b"), Stdout); err != nil {
		t.Error(err)
	}
	if err := c.Relay(io.MultiReader(strings.NewReader("c\n"), badReader{}), Stderr); !errors.Is(err, syscall.EIO) {
		t.Errorf("error %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if out.String() != "[n1 r00] a\n[n1 r00] b\n" || errs.String() != "c\n" {
		t.Errorf("stdout %q, stderr %q", out.String(), errs.String())
	}
}

type badReader struct{}

func (badReader) Read([]byte) (int, error) { return 0, syscall.EIO }

func TestTerminal(t *testing.T) {
	master, slave := openPTY(t)
	c := NewConsole(slave, slave)
	if c.out != c.err {
		t.Error("one terminal has two lanes")
	}
	v := view{lane: c.out, prefix: []byte("[0] ")}
	feed(&v, "\x1b]0;title\a\x1b[31mred\x1b[2J\tx\n10%\r20%\r\n")
	c.Say("peer said %q", "\x1b")
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	const want = "[0] ^[]0;title^G\x1b[31mred^[[2J\tx\x1b[0m\n[0] 20%\ngolaunch: peer said \"\\x1b\"\n"
	got := make([]byte, len(want))
	if _, err := io.ReadFull(master, got); err != nil || string(got) != want {
		t.Errorf("%q, want %q, error %v", got, want, err)
	}
}

// openPTY makes a terminal that passes bytes as they are.
func openPTY(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	fd := int(master.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err := errors.Join(err, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)); err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	termios, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	termios.Oflag &^= unix.OPOST
	if err := unix.IoctlSetTermios(int(slave.Fd()), unix.TCSETS, termios); err != nil {
		t.Fatal(err)
	}
	return master, slave
}

// TestARankAlone is shown at once and as it is; golaunch's own words begin a line of their own.
func TestARankAlone(t *testing.T) {
	r, w := pipe(t)
	c := NewConsole(w, w)
	d := openDir(t, t.TempDir())
	rank := newRank(t, d, RankOptions{Console: c, Alone: true})
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
		var status syscall.WaitStatus // it stops by itself when it has written
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
	if err := errors.Join(cmd.Wait(), rank.Close(soon(t))); err != nil {
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
