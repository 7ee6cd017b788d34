package gpu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/golaunch/golaunch/internal/host/helper/spawn"
)

const (
	// patience is how long a driver may take if the caller sets no deadline: eight GPUs without
	// persistence mode take seconds.
	patience = 10 * time.Second
	// farewell is how long a killed probe may take to die. A probe that hangs in the driver may
	// never die.
	farewell = time.Second
	// maxReport and maxComplaint bound a probe's output in bytes: 128 devices with 100 holders each
	// take 100 kB.
	maxReport    = 1 << 20
	maxComplaint = 4 << 10
)

// probe asks the driver through a child, and kills the child if it takes too long.
func probe(ctx context.Context) (report, error) {
	if _, set := ctx.Deadline(); !set {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	deadline, _ := ctx.Deadline()
	limit := time.Until(deadline).Round(time.Millisecond)
	stdout := &bounded{max: maxReport, full: func() { stop(errors.New("it printed more than 1 MiB")) }}
	stderr := &bounded{max: maxComplaint, full: func() {}}
	cmd, err := command(ctx, childName, (limit + farewell).String())
	if err != nil {
		return report{}, err
	}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if err := cmd.Start(); err != nil {
		return report{}, fmt.Errorf("start a GPU probe: %w", err)
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	dead, err := await(ctx, exited)
	switch {
	case ctx.Err() != nil:
		return report{}, givenUp(ctx, limit, dead, cmd.Process.Pid)
	case err != nil && !errors.Is(err, exec.ErrWaitDelay): // a daemon that the driver has started may hold our pipes
		return report{}, fmt.Errorf("GPU probe died: %w%s; hint: run nvidia-smi", err, firstLine(stderr.data))
	}
	return parse(stdout.data)
}

// command starts a child in its own process group, so that a kill includes the driver's helpers.
func command(ctx context.Context, name string, args ...string) (*exec.Cmd, error) {
	cmd, err := spawn.Command(ctx, name)
	if err != nil {
		return nil, err
	}
	cmd.Args = append(cmd.Args, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = farewell / 2
	return cmd, nil
}

// await returns how the probe ended. If ctx ends first, it kills the probe; dead says whether the
// probe then ended. A probe in an uninterruptible sleep does not end: the goroutine that waits for
// it stays.
func await(ctx context.Context, exited <-chan error) (dead bool, err error) {
	select {
	case err := <-exited:
		return true, err
	case <-ctx.Done():
	}
	select {
	case <-exited: //nolint:errcheck // it was killed
		return true, nil
	case <-time.After(farewell):
		return false, nil
	}
}

// givenUp says why the probe was killed, and whether it still exists.
func givenUp(ctx context.Context, limit time.Duration, dead bool, pid int) error {
	lingers := ""
	if !dead {
		lingers = fmt.Sprintf(", and its probe, pid %d, cannot be killed", pid)
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("the NVIDIA driver did not answer within %v%s; hint: run nvidia-smi, look for Xid in dmesg, "+
			"and set persistence mode (nvidia-smi -pm 1)", limit, lingers)
	}
	return fmt.Errorf("GPU probe given up%s: %w", lingers, context.Cause(ctx))
}

func parse(text []byte) (report, error) {
	var r report
	if err := json.Unmarshal(text, &r); err != nil {
		return report{}, fmt.Errorf("GPU probe printed %.80q instead of its report: %w", text, err)
	}
	switch {
	case r.Lost:
		return report{}, lost{r.Err}
	case r.Err != "":
		return report{}, errors.New("NVIDIA driver: " + r.Err)
	}
	return r, nil
}

// lost is a driver's error about a lost GPU.
type lost struct{ text string }

func (l lost) Error() string { return "NVIDIA driver: " + l.text }
func (l lost) Unwrap() error { return ErrLost }

// firstLine is the error message of a dying process.
func firstLine(text []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	if line == "" {
		return ""
	}
	return ": " + line
}

// bounded keeps the first max bytes that are written to it, and calls full when it first drops a
// byte.
type bounded struct {
	max  int
	data []byte
	full func()
}

func (b *bounded) Write(p []byte) (int, error) {
	n := min(len(p), b.max-len(b.data))
	b.data = append(b.data, p[:n]...)
	if n < len(p) {
		b.full()
	}
	return len(p), nil
}
