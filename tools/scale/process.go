package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is a process that prints lines and reads its orders as lines.
type process struct {
	*exec.Cmd
	lines    chan string
	tell     io.WriteCloser
	profiled bool
}

// trouble gets an error that a process prints, for a wait that reads no process's lines (runs).
var trouble = make(chan error, 1)

// limit bounds each wait.
const limit = 5 * time.Minute

// begin starts the process on the given cores; on all cores if none are given.
func begin(cmd *exec.Cmd, cores []int) (*process, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	cmd.Stdout, cmd.Stderr = w, w
	tell, err := cmd.StdinPipe()
	if err == nil {
		err = startOn(cmd, cores)
	}
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	p := &process{Cmd: cmd, lines: make(chan string, 1<<16), tell: tell}
	go func() {
		defer close(p.lines)
		defer r.Close()
		for lines := bufio.NewScanner(r); lines.Scan(); {
			if strings.Contains(lines.Text(), "error: ") {
				select {
				case trouble <- errors.New(lines.Text()):
				default: // the first of several errors is enough
				}
			}
			p.lines <- lines.Text()
		}
	}()
	return p, nil
}

// startOn starts a process on some cores. The process inherits the cores of the thread that starts
// it.
func startOn(cmd *exec.Cmd, cores []int) error {
	if len(cores) == 0 {
		return cmd.Start()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var own, its unix.CPUSet
	for _, core := range cores {
		its.Set(core)
	}
	if err := errors.Join(unix.SchedGetaffinity(0, &own), unix.SchedSetaffinity(0, &its)); err != nil {
		return err
	}
	return errors.Join(cmd.Start(), unix.SchedSetaffinity(0, &own))
}

// split returns the n cores of the coordinators, and the cores of the agents. If n is 0, both are
// nil, which means all cores.
func split(n int) (coordinators, agents []int, err error) {
	var own unix.CPUSet
	if err := unix.SchedGetaffinity(0, &own); err != nil || n == 0 {
		return nil, nil, err
	}
	for core := range 8 * len(own) * 8 {
		if own.IsSet(core) {
			agents = append(agents, core)
		}
	}
	if len(agents) <= n {
		return nil, nil, fmt.Errorf("-cores %d: this machine has %d", n, len(agents))
	}
	return agents[:n], agents[n:], nil
}

// until waits for a line with a word, and returns it.
func (p *process) until(word string) (string, error) {
	over := time.After(limit)
	for {
		select {
		case line, ok := <-p.lines:
			switch {
			case !ok:
				return "", fmt.Errorf("%v ended before it said %q", p.Args, word)
			case strings.Contains(line, word):
				return line, nil
			case strings.Contains(line, "error: "):
				return "", errors.New(line)
			}
		case <-over:
			return "", fmt.Errorf("%v did not say %q within %v", p.Args, word, limit)
		}
	}
}

// say sends a line to the process.
func (p *process) say(format string, args ...any) error {
	_, err := fmt.Fprintf(p.tell, format+"\n", args...)
	return err
}

// end kills the process, or asks it to end if it has a profile to write.
func (p *process) end() {
	if p.ProcessState == nil {
		sig := syscall.SIGKILL
		if p.profiled {
			sig = syscall.SIGTERM
		}
		_ = p.Process.Signal(sig) // it may have ended
		for range p.lines {       // until all processes that hold its pipe are gone
		}
		_ = p.Wait()
	}
}

// cpu is the processor time that a process has used (proc_pid_stat(5): utime and stime, in ticks of
// 10 ms).
func (p *process) cpu() time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	var user, system int64
	if f := strings.Fields(rest); len(f) > 12 {
		_, err = fmt.Sscan(f[11]+" "+f[12], &user, &system)
	}
	if err != nil {
		return 0
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}

// memory returns the process's anonymous resident memory (RssAnon), in bytes.
func (p *process) memory() float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Process.Pid))
	if err != nil {
		return 0
	}
	var kib float64
	_, after, _ := strings.Cut(string(text), "RssAnon:")
	if _, err := fmt.Sscan(after, &kib); err != nil {
		return 0
	}
	return kib * 1024
}

// stop stops the process, like a machine that hangs.
func (p *process) stop() { _ = p.Process.Signal(syscall.SIGSTOP) } // it may have ended
