package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/golaunch/golaunch/tools/bench/record"
)

// stores times the start of a job with golaunch's store and with torch's, using the load test of
// package tcpstore: clients connect, count themselves and wait for the last of them.
func (r *run) stores(ctx context.Context, rounds func(round func(n int) error) error) error {
	load := filepath.Join(r.dir, "load")
	if out, err := exec.CommandContext(ctx, "go", "test", "-c", "-o", load, "./rendezvous/tcpstore").CombinedOutput(); err != nil {
		return fmt.Errorf("build the load test: %w: %s", err, out)
	}
	of := map[string]string{record.Golaunch: "golaunch"}
	if r.peers.python != "" {
		of[record.Torch] = "torch-.*-libuv"
		if err := os.Setenv("GOLAUNCH_BENCH_TORCH", r.peers.python); err != nil {
			return err
		}
	}
	return rounds(func(int) error {
		for _, n := range []string{"1000", "10000", "18000"} {
			for _, peer := range []string{record.Golaunch, record.Torch} {
				if of[peer] == "" {
					continue
				}
				argv := []string{load, "-test.run=^$", "-test.benchtime=1x", "-test.bench=^BenchmarkGather$/^" + n + "$/^" + of[peer] + "$"}
				_, err := r.exec(ctx, giveUp, argv)
				took, each, noted := gathered(filepath.Join(r.dir, "out"))
				if err == nil {
					err = noted
				}
				if argv[0] = "tcpstore.test"; err != nil {
					r.failed(ctx, "store-"+n, peer, argv, err)
					continue
				}
				r.sample("store-"+n, peer, argv, took)
				r.sample("store-memory-"+n, peer, argv, each)
			}
		}
		return ctx.Err()
	})
}

// gathered reads the output of the load test: the time in milliseconds, and the memory of each
// connection in bytes.
func gathered(file string) (took, each float64, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) != 6 || f[3] != "ns/op" || f[5] != "B/conn" {
			continue
		}
		if took, err = strconv.ParseFloat(f[2], 64); err == nil {
			each, err = strconv.ParseFloat(f[4], 64)
		}
		return took / 1e6, each, err
	}
	return 0, 0, fmt.Errorf("the load test printed no result: %s", lastWords(file))
}
