package failurebundle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/golaunch/golaunch/internal/process/procfs"
)

const (
	// maxProcesses and maxTasks bound what is read of a rank.
	maxProcesses = 32
	maxTasks     = 256
)

var errGone = errors.New("no process of it lives")

func environment(r Rank) func(context.Context) ([]byte, error) {
	return func(context.Context) ([]byte, error) {
		var out bytes.Buffer
		for _, pair := range slices.Sorted(slices.Values(r.Env)) {
			fmt.Fprintln(&out, strings.ReplaceAll(variable(pair), "\n", `\n`))
		}
		return out.Bytes(), nil
	}
}

// each calls write for each process of a rank until ctx ends, and returns what the calls wrote.
func each(r Rank, write func(out *bytes.Buffer, dir string) error) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		if len(r.PIDs) == 0 {
			return nil, errGone
		}
		var out bytes.Buffer
		var errs []error
		for _, pid := range r.PIDs[:min(len(r.PIDs), maxProcesses)] {
			if ctx.Err() != nil || out.Len() > maxEntry {
				break
			}
			fmt.Fprintf(&out, "process %d\n", pid)
			errs = append(errs, write(&out, fmt.Sprintf("/proc/%d", pid)))
		}
		return out.Bytes(), errors.Join(errs...)
	}
}

// status names the lines of /proc/PID/status that are kept (proc_pid_status(5)).
var status = []string{"Name", "State", "PPid", "TracerPid", "VmRSS", "VmSwap", "Threads", "SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt"}

// processes returns the state of each process and task, where it waits in the kernel, and in which
// system call. Only root may read the kernel's stack.
func processes(r Rank) func(context.Context) ([]byte, error) {
	return each(r, func(out *bytes.Buffer, dir string) error {
		text, err := procfs.ReadFile(dir + "/status")
		for line := range strings.Lines(string(text)) {
			if name, _, _ := strings.Cut(line, ":"); slices.Contains(status, name) {
				fmt.Fprint(out, "  ", line)
			}
		}
		tasks, _ := filepath.Glob(dir + "/task/*")
		for _, task := range tasks[:min(len(tasks), maxTasks)] {
			fmt.Fprintf(out, "  task %s %q wchan %s syscall %s\n",
				filepath.Base(task), word(task, "comm"), word(task, "wchan"), word(task, "syscall"))
			if stack := word(task, "stack"); stack != "" {
				fmt.Fprintln(out, "    "+strings.ReplaceAll(stack, "\n", "\n    "))
			}
		}
		return err
	})
}

// word returns a small file of a task; "" if this user may not read it.
func word(task, name string) string {
	text, err := procfs.ReadFile(filepath.Join(task, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// libraries returns the files from which a process has mapped code.
func libraries(r Rank) func(context.Context) ([]byte, error) {
	return each(r, func(out *bytes.Buffer, dir string) error {
		text, err := procfs.ReadFile(dir + "/maps")
		var paths []string
		for line := range strings.Lines(string(text)) {
			f := strings.SplitN(strings.TrimSpace(line), " ", 6) // RANGE PERMISSIONS OFFSET DEVICE INODE PATH
			if path := strings.TrimSpace(f[len(f)-1]); len(f) == 6 && strings.Contains(f[1], "x") && strings.HasPrefix(path, "/") {
				paths = append(paths, path)
			}
		}
		slices.Sort(paths)
		for _, path := range slices.Compact(paths) {
			fmt.Fprintln(out, "  "+path)
		}
		return err
	})
}
