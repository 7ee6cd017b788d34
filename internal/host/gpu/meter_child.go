package gpu

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// meterChild is the child of a meter. Only the holder of the meter's turn uses it, apart from its
// two goroutines.
type meterChild struct {
	cmd     *exec.Cmd
	stdin   io.Writer
	started time.Time
	// opened says that the driver has been opened, and doomed that the child has been killed.
	opened, doomed bool
	// lines has the lines that the child prints. It is closed at the end, or when a line is too
	// long; flooded then says so.
	lines      chan []byte
	flooded    bool
	complaints *bounded
	// gone is closed when the child has been reaped and its helpers have been killed.
	gone chan struct{}
}

func newMeterChild() (*meterChild, error) {
	// No context ends the child: it ends with its standard input.
	cmd, err := command(context.Background(), meterName)
	if err != nil {
		return nil, err
	}
	t := &meterChild{
		cmd: cmd, started: time.Now(), lines: make(chan []byte), gone: make(chan struct{}),
		complaints: &bounded{max: maxComplaint, full: func() {}},
	}
	cmd.Stderr = t.complaints
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start a GPU meter: %w", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		stdin.Close()
		return nil, fmt.Errorf("start a GPU meter: %w", err)
	}
	t.stdin = stdin
	go t.hear(stdout)
	go t.watch()
	return t, nil
}

// hear ends with the child: Wait closes stdout, even if a daemon that the driver has started still
// holds the other end.
func (t *meterChild) hear(stdout io.Reader) {
	defer close(t.lines)
	in := bufio.NewScanner(stdout)
	in.Buffer(nil, maxReport)
	for in.Scan() {
		select {
		case t.lines <- bytes.Clone(in.Bytes()):
		case <-t.gone:
			return
		}
	}
	t.flooded = errors.Is(in.Err(), bufio.ErrTooLong)
}

// watch reaps the child. It kills the child's process group first: until the child is reaped, the
// kernel does not reuse the group's number.
func (t *meterChild) watch() {
	pid := t.cmd.Process.Pid
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	_ = syscall.Kill(-pid, syscall.SIGKILL)
	_ = t.cmd.Wait()
	close(t.gone)
}

// able reports whether the child can be asked.
func (t *meterChild) able() bool {
	select {
	case <-t.gone:
		return false
	default:
		return !t.doomed
	}
}

func (t *meterChild) kill() {
	t.doomed = true
	_ = t.cmd.Process.Kill()
}

// end waits until a killed child is gone. A child in an uninterruptible sleep may never be gone.
func (t *meterChild) end(ctx context.Context) error {
	t.kill()
	select {
	case <-t.gone:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(farewell):
		return fmt.Errorf("GPU meter, pid %d, cannot be killed: the NVIDIA driver hangs; hint: look for Xid in dmesg, and reboot",
			t.cmd.Process.Pid)
	}
}
