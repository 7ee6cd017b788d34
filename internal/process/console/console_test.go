package console

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/testkit/pipetest"
)

// writer is a stream of the console; a nil writer discards.
type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) {
	if w == nil {
		return len(b), nil
	}
	return w(b)
}

// patient makes a console lose no line for a minute on a busy machine.
func patient(c *Console) *Console {
	c.SetPatience(time.Minute)
	return c
}

// TestSlowConsole makes each write take nearly as long as the patience. Nothing is lost.
func TestSlowConsole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got bytes.Buffer
		c := New(writer(func(b []byte) (int, error) {
			time.Sleep(patience - time.Millisecond)
			return got.Write(b)
		}), writer(nil))
		var want strings.Builder
		v := Splitter{printer: c.out}
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

// TestStuckConsoleLosesAtOnce: after the first loss no rank waits until the reader reads again.
func TestStuckConsoleLosesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		var words bytes.Buffer
		c := New(writer(func(b []byte) (int, error) { <-block; return len(b), nil }), &words)
		v := Splitter{printer: c.out}
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
		const notice = "golaunch: stdout was not read for a while: lines not shown: %d; the log files have the ranks'\n"
		if want := fmt.Sprintf(notice, 1000-buffers); words.String() != want {
			t.Errorf("words %q, want %q", words.String(), want)
		}
	})
}

func TestSayNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		var got bytes.Buffer
		c := New(writer(nil), writer(func(b []byte) (int, error) { <-block; return got.Write(b) }))
		began := time.Now()
		for range maxMessages + 5 {
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
		if n != maxMessages || !strings.Contains(got.String(), "lines not shown: 5;") {
			t.Errorf("%d words of %d: %q", n, maxMessages, got.String())
		}
	})
}

// TestLossAtTheEndIsReported: lines lost after the last write are reported too.
func TestLossAtTheEndIsReported(t *testing.T) {
	var words bytes.Buffer
	c := New(writer(nil), &words)
	c.out.lost.Add(2)
	c.err.lost.Add(3)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	for _, want := range []string{"stdout was not read for a while: lines not shown: 2;", "stderr was not read for a while: lines not shown: 3;"} {
		if !strings.Contains(words.String(), want) {
			t.Errorf("%q is not told in %q", want, words.String())
		}
	}
}

func TestCloseGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		c := New(writer(func(b []byte) (int, error) { <-block; return len(b), nil }), writer(nil))
		v := Splitter{printer: c.out}
		feed(&v, "a\nb\nc\n")
		synctest.Wait()
		feed(&v, "d\ne\n")
		began := time.Now()
		if err := c.Close(); err == nil || !strings.Contains(err.Error(), "stdout: its reader does not read (lines not shown: 5;") {
			t.Errorf("error %v", err)
		}
		if took := time.Since(began); took != closePatience {
			t.Errorf("closed after %v", took)
		}
		close(block)
	})
}

// TestReaderOfStdoutGone: Go ends a program that writes to a descriptor 1 without a reader; the
// console prevents that.
func TestReaderOfStdoutGone(t *testing.T) {
	r, w := pipetest.Pipe(t)
	r.Close()
	cmd := exec.CommandContext(pipetest.Soon(t), "/proc/self/exe")
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
	c := New(&out, &errs)
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
	c := New(slave, slave)
	if c.out != c.err {
		t.Error("one terminal has two lanes")
	}
	v := Splitter{printer: c.out, opts: SplitOptions{Prefix: "[0] "}}
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
