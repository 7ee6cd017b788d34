package stacks

import (
	"bufio"
	"os/exec"
	"strconv"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/pipetest"
)

// ranks starts Python processes and returns them when all of them wait.
func ranks(tb testing.TB, n int, argv ...string) []Process {
	tb.Helper()
	c := exec.Command(argv[0], append(argv[1:], strconv.Itoa(n))...)
	in, out := pipetest.Start(tb, c)
	tb.Cleanup(func() {
		in.Close()
		if err := c.Wait(); err != nil {
			tb.Error(err)
		}
	})
	var processes []Process
	lines := bufio.NewScanner(out)
	for len(processes) < n && lines.Scan() {
		pid, err := strconv.Atoi(lines.Text())
		if err != nil {
			tb.Fatal(err)
		}
		processes = append(processes, Process{PID: pid, Rank: len(processes)})
	}
	if len(processes) < n {
		tb.Fatalf("%d of %d processes wait", len(processes), n)
	}
	return processes
}

// BenchmarkTake takes, encodes, decodes and merges the stacks of 512 ranks on one node.
func BenchmarkTake(b *testing.B) {
	for _, python := range pythons(b) {
		b.Run(version(python), func(b *testing.B) {
			processes := ranks(b, 512, python, "testdata/many.py")
			for b.Loop() {
				var samples []Sample
				for _, s := range Take(b.Context(), processes, Options{}) {
					text, err := Encode(s)
					if err != nil {
						b.Fatal(err)
					}
					if s, err = Decode(text); err != nil || s.Missing != "" || len(s.Threads) != 3 {
						b.Fatalf("%+v: %v", s, err)
					}
					samples = append(samples, s)
				}
				Merge(samples, MergeOptions{})
			}
		})
	}
}
