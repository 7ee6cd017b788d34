package main

import (
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// warm compares ranks of torch that are forked with ranks that import: golaunch with --preload and without, and torchrun, in turn.
func warm(golaunch, python, dir string, runs int) {
	if err := exec.Command(python, "-c", "import torch").Run(); err != nil {
		fmt.Printf("\n%s has no torch: ranks that are forked are not measured (-python, GOLAUNCH_TEST_PYTHON)\n", python)
		return
	}
	ours := func(preload string) func(int, ...string) []string {
		return func(n int, command ...string) []string {
			return append([]string{golaunch, "--quiet", "--backoff", "0s", "--preload", preload, "--procs-per-node", strconv.Itoa(n), "--", python}, command...)
		}
	}
	peers := []peer{
		{"preload", ours("torch,torch.distributed")},
		{"golaunch", ours("none")},
		{"torchrun", func(n int, command ...string) []string {
			return append([]string{
				python, "-m", "torch.distributed.run", "--standalone", "--max-restarts", "1", "--monitor-interval", "0.1", "--nproc-per-node", strconv.Itoa(n),
			}, command...)
		}},
	}
	script, err := filepath.Abs("tools/bench/testdata/warm.py")
	if err != nil {
		log.Fatal(err)
	}
	for _, n := range []int{4, 8} {
		start, again, memory := make([][]time.Duration, len(peers)), make([][]time.Duration, len(peers)), make([][]time.Duration, len(peers))
		for r := range runs {
			for i, p := range peers {
				notes := filepath.Join(dir, fmt.Sprintf("warm-%d-%d-%d", n, r, i))
				begin := time.Now()
				if err := command(p.argv(n, script, "memory", notes)); err != nil {
					log.Printf("%s: %v", p.name, err)
				} else {
					start[i] = append(start[i], time.Unix(0, noted(notes, "0", "collective")).Sub(begin))
					memory[i] = append(memory[i], time.Duration(noted(notes, "0", "memory"))) // in kB
				}
				if err := command(p.argv(n, script, "restart", notes+"r")); err != nil {
					log.Printf("%s: %v", p.name, err)
					continue
				}
				again[i] = append(again[i], time.Duration(noted(notes+"r", "1", "collective")-noted(notes+"r", "0", "death")))
			}
		}
		table(fmt.Sprintf("start to the first collective of %d ranks of torch", n), peers, start)
		table(fmt.Sprintf("death of one of %d ranks of torch to the first collective of the next attempt", n), peers, again)
		for i, p := range peers {
			if len(memory[i]) > 0 {
				fmt.Printf("%-10s proportional memory of %d ranks: %d MB\n", p.name, n, memory[i][0]/1000)
			}
		}
	}
}

// noted is the last value of a note of an attempt.
func noted(notes, attempt, what string) (last int64) {
	data, err := os.ReadFile(notes)
	if err != nil {
		log.Print(err)
	}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == attempt && f[1] == what {
			value, err := strconv.ParseInt(f[2], 10, 64)
			if err != nil {
				log.Print(err)
			}
			last = max(last, value)
		}
	}
	return last
}
