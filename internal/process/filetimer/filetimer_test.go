package filetimer_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/process/filetimer"
)

// served is a timer file with its warnings.
type served struct {
	t       *testing.T
	path    string
	expired chan filetimer.Expired
	warned  chan error
}

func serve(t *testing.T) served {
	s := served{t, filepath.Join(t.TempDir(), "timer"), make(chan filetimer.Expired, 16), make(chan error, 16)}
	ctx, cancel := context.WithCancel(t.Context())
	gone, err := filetimer.Serve(ctx, s.path, func(e filetimer.Expired) { s.expired <- e }, func(err error) { s.warned <- err })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		<-gone
		if _, err := os.Lstat(s.path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the FIFO is still there: %v", err)
		}
		if len(s.warned)+len(s.expired) > 0 {
			t.Errorf("unexpected: %d warnings and %d timers", len(s.warned), len(s.expired))
		}
	})
	return s
}

// process is a process that may use the timer file.
func (s served) process(path string) *exec.Cmd {
	cmd := exec.Command("sleep", "1000")
	cmd.Env = []string{filetimer.Variable + "=" + path}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for { // Start returns before the program has its environment
		if env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", cmd.Process.Pid)); err != nil {
			s.t.Fatal(err)
		} else if len(env) > 0 {
			return cmd
		}
		time.Sleep(time.Millisecond)
	}
}

func (s served) write(text string) {
	s.t.Helper()
	f, err := os.OpenFile(s.path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text + "\n"); err != nil {
		s.t.Fatal(err)
	}
}

// timer is what torch's FileTimerClient writes.
func timer(pid int, scope string, in time.Duration, signal syscall.Signal) string {
	return fmt.Sprintf(`{"version": 1, "pid": %d, "scope_id": %q, "expiration_time": %f, "signal": %d}`,
		pid, scope, float64(time.Now().Add(in).UnixMicro())/1e6, signal)
}

func released(pid int, scope string) string {
	return fmt.Sprintf(`{"version": 1, "pid": %d, "scope_id": %q, "expiration_time": -1, "signal": 0}`, pid, scope)
}

func TestExpired(t *testing.T) {
	s := serve(t)
	p := s.process(s.path)
	s.write(timer(p.Process.Pid, "load", time.Hour, syscall.SIGKILL))
	s.write(timer(p.Process.Pid, "step", 50*time.Millisecond, syscall.SIGTERM))
	e := <-s.expired
	if e.PID != p.Process.Pid || e.Scope != "step" || e.Signal != syscall.SIGTERM || e.Late < 0 {
		t.Errorf("%+v", e)
	}
	if !strings.Contains(e.String(), `did not leave "step" in time`) {
		t.Error(e)
	}
	if err := p.Wait(); err == nil || !strings.Contains(err.Error(), "terminated") {
		t.Errorf("the process ended with %v", err)
	}
}

// TestSpared: no process is killed if its timer was released, has no signal or was extended, or if
// the process was not given the FIFO.
func TestSpared(t *testing.T) {
	s := serve(t)
	p, stranger, last := s.process(s.path), s.process("/elsewhere"), s.process(s.path)
	// A release may be read after the deadline if it was written before the deadline: here
	// everything is written at once.
	pid := p.Process.Pid
	s.write(strings.Join([]string{
		timer(pid, "released", 0, syscall.SIGKILL), released(pid, "released"),
		timer(pid, "extended", 0, syscall.SIGKILL), timer(pid, "extended", time.Hour, syscall.SIGKILL),
		timer(pid, "told alone", 0, 0), timer(stranger.Process.Pid, "mine", 0, syscall.SIGKILL), timer(os.Getpid(), "the launcher", 0, syscall.SIGKILL),
		timer(last.Process.Pid, "last", time.Second/4, syscall.SIGKILL),
	}, "\n"))
	if e := <-s.expired; e.Scope != "last" {
		t.Errorf("%+v", e)
	}
	for _, cmd := range []*exec.Cmd{p, stranger} {
		if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
			t.Errorf("a process that should live: %v", err)
		}
	}
}

func TestNonsense(t *testing.T) {
	s := serve(t)
	s.write("nonsense")
	if err := <-s.warned; !strings.Contains(err.Error(), `makes no sense`) {
		t.Error(err)
	}
	s.write(`{"pid": -1, "scope_id": "x", "expiration_time": 1e300, "signal": 9}`) // told once
	p := s.process(s.path)
	s.write(timer(p.Process.Pid, "step", 0, syscall.SIGKILL))
	<-s.expired
}

func TestNoPlace(t *testing.T) {
	if _, err := filetimer.Serve(t.Context(), filepath.Join(t.TempDir(), "none", "timer"), nil, nil); err == nil {
		t.Error("a FIFO in a directory that is not there")
	}
}

// TestALongRequest: a request that is too long is ignored, and other requests still count.
func TestALongRequest(t *testing.T) {
	s := serve(t)
	p := s.process(s.path)
	s.write(strings.Repeat("x", 3*4096))
	if err := <-s.warned; !strings.Contains(err.Error(), "it is too long") {
		t.Error(err)
	}
	s.write(timer(p.Process.Pid, "step", 0, syscall.SIGKILL))
	<-s.expired
}

// TestBehind: if a timer file was not read for a while, a process that was in time is not killed.
func TestBehind(t *testing.T) {
	s := serve(t)
	p, last := s.process(s.path), s.process(s.path)
	for range 50 {
		pid := p.Process.Pid
		var all []string
		for i := range 20 { // less than PIPE_BUF, so that the whole text arrives at once
			scope := fmt.Sprint(i)
			all = append(all, timer(pid, scope, 0, syscall.SIGKILL), released(pid, scope))
		}
		s.write(strings.Join(all, "\n"))
	}
	s.write(timer(last.Process.Pid, "last", 0, syscall.SIGKILL))
	if e := <-s.expired; e.Scope != "last" {
		t.Errorf("%+v", e)
	}
}
