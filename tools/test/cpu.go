package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"time"
)

// measure is the first argument of this program when go test starts it in place of a test binary.
// The line of output about the CPUs begins with the same word.
const measure = "measured"

// measured runs a test binary, and prints the CPU time of the binary and of the processes for whose
// end it waited.
func measured(args []string) int {
	runtime.LockOSThread() // the test binary is killed at the end of this thread
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM)
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	go func() {
		for s := range told {
			if s != syscall.SIGINT { // a terminal sends SIGINT to all
				_ = cmd.Process.Signal(s) // it may have ended
			}
		}
	}()
	_ = cmd.Wait() // the exit code is below
	fmt.Println(measure, taken(cmd))
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
		fmt.Println("the test binary was ended by", status.Signal())
		return 128 + int(status.Signal())
	}
	return cmd.ProcessState.ExitCode()
}

// taken returns the CPU time of a process that has ended.
func taken(cmd *exec.Cmd) time.Duration {
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

// costs lists the packages whose tests took at least a second of CPU time.
func (r *report) costs() {
	building := r.all
	fmt.Fprintln(r.to, "\nCPU seconds of the tests:")
	for _, pkg := range slices.SortedFunc(maps.Keys(r.cpu), func(a, b string) int { return cmp.Compare(r.cpu[b], r.cpu[a]) }) {
		building -= r.cpu[pkg]
		if r.cpu[pkg] >= time.Second {
			fmt.Fprintf(r.to, "%8.1f\t%s\n", r.cpu[pkg].Seconds(), pkg)
		}
	}
	fmt.Fprintf(r.to, "%8.1f\tbuilding them\n%8.1f\tin all\n", building.Seconds(), r.all.Seconds())
}
