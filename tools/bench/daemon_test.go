package main

import (
	"bufio"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// built is the program to measure.
func built(b *testing.B, dir string) (golaunch, rank string) {
	b.Helper()
	golaunch, rank, err := build(dir)
	if err != nil {
		b.Fatal(err)
	}
	return golaunch, rank
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
		_ = d.cmd.Process.Kill() // the daemon may have ended
		_ = d.cmd.Wait()
	}
}
