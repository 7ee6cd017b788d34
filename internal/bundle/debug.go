package bundle

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/golaunch/golaunch/internal/own"
	"github.com/golaunch/golaunch/nccl/dl"
)

const (
	// maxDebugged bounds the processes of a rank that are looked into, and debuggers those that are at work on this node: gdb takes
	// seconds and a gigabyte for the symbols of torch.
	maxDebugged = 4
	debuggers   = 4
	// maxReport bounds what NCCL says, in bytes.
	maxReport = 4 << 20
)

// debug are the sources that are worth seconds.
func debug(dir string, r Rank) []source {
	sources := []source{
		{name: dir + "stacks.txt", from: "py-spy or gdb", read: stacks(r)},
		{name: dir + "flight-recorder", from: "torch", most: maxDump, binary: true, read: flightRecorder(r)},
	}
	if r.RAS != "" {
		sources = append(sources, source{name: dir + "ras.txt", from: "NCCL's RAS service at " + r.RAS, most: maxReport, read: ras(r.RAS)})
	}
	return sources
}

func ras(addr string) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		ctx, cancel := context.WithTimeout(ctx, toolLimit)
		defer cancel()
		client, err := dl.Dial(ctx, addr)
		if err != nil {
			return nil, err
		}
		defer client.Close()
		text, err := client.Text(ctx, time.Second, true)
		return []byte(text), err
	}
}

// turns are the debuggers that may be at work.
var turns = make(chan struct{}, debuggers)

// stacks are those of each process, in Python's terms where py-spy can tell them, else in C's.
func stacks(r Rank) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		if len(r.PIDs) == 0 {
			return nil, errGone
		}
		ctx, cancel := context.WithTimeout(ctx, toolLimit)
		defer cancel()
		select {
		case turns <- struct{}{}:
			defer func() { <-turns }()
		case <-ctx.Done():
			return nil, errors.New("other ranks took all the time")
		}
		var out bytes.Buffer
		var errs []error
		for _, pid := range r.PIDs[:min(len(r.PIDs), maxDebugged)] {
			text, err := stack(ctx, r.Rights, strconv.Itoa(pid))
			fmt.Fprintf(&out, "process %d\n%s\n", pid, text)
			errs = append(errs, err)
		}
		return out.Bytes(), errors.Join(errs...)
	}
}

func stack(ctx context.Context, as *own.Rights, pid string) ([]byte, error) {
	python, noPython := run(ctx, as, "py-spy", "dump", "--pid", pid)
	if noPython == nil {
		return python, nil
	}
	// Neither the user's files nor those of the program, nor the network, have a say in what gdb does.
	c, noC := run(ctx, as, "gdb", "-nx", "-batch", "-iex", "set auto-load off", "-iex", "set debuginfod enabled off",
		"-p", pid, "-ex", "thread apply all backtrace 64")
	if noC != nil {
		noC = errors.Join(noPython, noC)
	}
	return c, noC
}

// run runs a tool in a process group of its own, which is killed when ctx ends, and returns what it printed until then. It learns
// nothing of golaunch's environment but the path.
func run(ctx context.Context, as *own.Rights, name string, args ...string) ([]byte, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return nil, fmt.Errorf("%s is not installed", name)
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if cmd.SysProcAttr.Credential, err = as.Credential(); err != nil {
		return nil, err
	}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	var out, complaint limited
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return out.Bytes(), fmt.Errorf("%s: %w%s", name, cmp.Or(context.Cause(ctx), err), complaint.tail())
	}
	return out.Bytes(), nil
}

// limited keeps the beginning of what is written to it.
type limited struct{ bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	l.Buffer.Write(p[:min(len(p), max(0, maxEntry+1-l.Len()))])
	return len(p), nil
}

// tail are the last words of a tool that failed.
func (l *limited) tail() string {
	text := bytes.TrimSpace(l.Bytes())
	if len(text) == 0 {
		return ""
	}
	return ": " + string(text[max(0, len(text)-200):])
}
