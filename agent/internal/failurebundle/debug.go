package failurebundle

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

	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/internal/process/stacks"
	"github.com/golaunch/golaunch/nccl/dl"
)

const (
	// maxDebugged bounds the processes of a rank that gdb examines, and debuggers bounds how many
	// debuggers run at once. gdb takes seconds and a gigabyte for the symbols of torch.
	maxDebugged = 4
	debuggers   = 4
	// maxReport bounds NCCL's report, in bytes.
	maxReport = 4 << 20
)

// debug returns the sources that take seconds to read.
func debug(dir string, r Rank) []source {
	sources := []source{
		{name: dir + "stacks.txt", from: "its memory, or gdb", read: stacksOf(r)},
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

// debuggerSlots has a value for each debugger that runs.
var debuggerSlots = make(chan struct{}, debuggers)

// width is the width of a tree of stacks, in columns.
const width = 200

// allStacks returns the Python stacks of all ranks here in one tree.
func allStacks(ranks []Rank) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		var all []stacks.Process
		for _, r := range ranks {
			all = append(all, r.processes()...)
		}
		ctx, cancel := context.WithTimeout(ctx, toolLimit)
		defer cancel()
		return tree(stacks.Take(ctx, all, stacks.Options{}))
	}
}

func (r Rank) processes() (all []stacks.Process) {
	for _, pid := range r.PIDs {
		all = append(all, stacks.Process{PID: pid, Rank: r.Number, Rights: r.Rights})
	}
	return all
}

func tree(samples []stacks.Sample) ([]byte, error) {
	var out bytes.Buffer
	err := stacks.Merge(samples, stacks.MergeOptions{Lines: true, Waits: true}).Text(&out, width)
	return out.Bytes(), err
}

// stacksOf returns the Python stacks of a rank, and the C stacks of its processes without Python.
func stacksOf(r Rank) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		if len(r.PIDs) == 0 {
			return nil, errGone
		}
		ctx, cancel := context.WithTimeout(ctx, toolLimit)
		defer cancel()
		samples := stacks.Take(ctx, r.processes(), stacks.Options{})
		text, err := tree(samples)
		out, errs := bytes.NewBuffer(text), []error{err}
		debugged := 0
		for _, s := range samples {
			if s.Python != "" && s.Missing == "" || debugged == maxDebugged {
				continue
			}
			debugged++
			c, err := stack(ctx, r.Rights, s.PID)
			fmt.Fprintf(out, "\nprocess %d\n%s", s.PID, c)
			errs = append(errs, err)
		}
		return out.Bytes(), errors.Join(errs...)
	}
}

// stack returns the C stacks of a process.
func stack(ctx context.Context, as *safefile.Rights, pid int) ([]byte, error) {
	select {
	case debuggerSlots <- struct{}{}:
		defer func() { <-debuggerSlots }()
	case <-ctx.Done():
		return nil, errors.New("other ranks took all the time")
	}
	// Files of the user or the program, and the network, must not influence gdb.
	return run(ctx, as, "gdb", "-nx", "-batch", "-iex", "set auto-load off", "-iex", "set debuginfod enabled off",
		"-p", strconv.Itoa(pid), "-ex", "thread apply all backtrace 64")
}

// run runs a tool in a process group of its own, which it kills when ctx ends, and returns its
// output. Of golaunch's environment the tool gets only PATH.
func run(ctx context.Context, as *safefile.Rights, name string, args ...string) ([]byte, error) {
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

// tail returns the last output of a tool that failed.
func (l *limited) tail() string {
	text := bytes.TrimSpace(l.Bytes())
	if len(text) == 0 {
		return ""
	}
	return ": " + string(text[max(0, len(text)-200):])
}
