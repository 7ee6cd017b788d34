package main

import (
	"bufio"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// daemon starts a command, waits until it says a word on its standard error, and ends it in order with the benchmark.
func daemon(b *testing.B, word string, cmd *exec.Cmd) {
	b.Helper()
	words, err := cmd.StderrPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	said := make(chan bool, 1)
	go func() {
		lines := bufio.NewScanner(words)
		for lines.Scan() {
			if strings.Contains(lines.Text(), word) {
				said <- true
			}
		}
		close(said)
	}()
	b.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		_ = cmd.Wait()
	})
	select {
	case ok := <-said:
		if !ok {
			b.Fatalf("%v ended early", cmd.Args)
		}
	case <-time.After(time.Minute):
		b.Fatalf("%v does not say %q", cmd.Args, word)
	}
}

func timed(b *testing.B, cmd *exec.Cmd) time.Duration {
	b.Helper()
	start := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	return time.Since(start)
}

// median is in milliseconds.
func median(all []time.Duration) float64 {
	slices.Sort(all)
	return float64(all[len(all)/2].Microseconds()) / 1000
}

// daemonLines is a process whose output is read.
type daemonLines struct {
	cmd   *exec.Cmd
	lines chan string
}

func begin(b *testing.B, cmd *exec.Cmd) *daemonLines {
	b.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	w.Close()
	d := &daemonLines{cmd, make(chan string, 1<<16)}
	go func() {
		defer close(d.lines)
		defer r.Close()
		for lines := bufio.NewScanner(r); lines.Scan(); {
			d.lines <- lines.Text()
		}
	}()
	b.Cleanup(d.end)
	return d
}

// until waits for that many lines with a word.
func (d *daemonLines) until(b *testing.B, word string, n int) {
	b.Helper()
	limit := time.After(5 * time.Minute)
	for n > 0 {
		select {
		case line, ok := <-d.lines:
			if !ok {
				b.Fatalf("%v ended early", d.cmd.Args)
			}
			if strings.Contains(line, word) {
				n--
			}
		case <-limit:
			b.Fatalf("%v: %q is missing %d times", d.cmd.Args, word, n)
		}
	}
}

func (d *daemonLines) end() {
	if d.cmd.ProcessState == nil {
		_ = d.cmd.Process.Kill() // it may have ended
		_ = d.cmd.Wait()
	}
}
