package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/testkit/nettest"
)

// BenchmarkLossOverNodes measures the time from a kill -9 of golaunch on one of 4 nodes to the exec
// of the last of 8 new ranks, with a spare in place of that node. The nodes are network namespaces,
// with TLS between them. The benchmark needs root.
func BenchmarkLossOverNodes(b *testing.B) {
	b.Chdir("../..")
	dir := b.TempDir()
	golaunch, rank := built(b, dir)
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte(strings.Repeat("k", 32)), 0o600); err != nil {
		b.Fatal(err)
	}
	nodes := nettest.Nodes(b, "10.78.0.2", "10.78.0.9", "10.78.0.10", "10.78.0.11", "10.78.0.12")
	var took []time.Duration
	for i := range b.N {
		notes := filepath.Join(dir, fmt.Sprint("notes", i))
		var all []*daemonLines
		for n, node := range nodes {
			cmd := node.Command(golaunch, "--rendezvous", "10.78.0.2:29400", "--name", fmt.Sprint("n", n), "--token-file", token,
				"--nodes", "4", "--procs-per-node", "2", "--backoff", "0s", "--", rank, "loss", notes)
			all = append(all, begin(b, cmd))
			if n == 3 { // the fifth is the spare
				all[0].until(b, "attempt 0 runs", 1)
			}
		}
		all[0].until(b, "is here as a spare", 1)
		f, err := os.OpenFile(notes, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			b.Fatal(err)
		}
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
			b.Fatal(err)
		}
		if err := all[2].cmd.Process.Kill(); err != nil {
			b.Fatal(err)
		}
		fmt.Fprintf(f, "death n2 %d\n", now.Nano())
		f.Close()
		all[0].until(b, "job succeeded", 1)
		t, err := recovery(notes)
		if err != nil {
			b.Fatal(err)
		}
		took = append(took, t)
		for _, p := range all {
			p.end()
		}
	}
	b.ReportMetric(median(took), "ms/loss")
}
