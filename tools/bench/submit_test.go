package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/slurmtest"
)

// BenchmarkSubmit is the time of a whole command that runs one rank of true on a node of a warm cluster: golaunch's, and srun's on
// a Slurm of the same nodes, in turn. The metrics are medians, less what it takes to enter the namespaces of a node.
func BenchmarkSubmit(b *testing.B) {
	b.Chdir("../..")
	dir := b.TempDir()
	golaunch, _ := build(dir)
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte(strings.Repeat("k", 32)), 0o600); err != nil {
		b.Fatal(err)
	}
	slurm := slurmtest.Start(b, slurmtest.Options{})
	at := slurm.Head.Addr.String() + ":29400"
	daemon(b, "listens", slurm.Head.Command(golaunch, "coordinator", "--listen", at, "--state-dir", filepath.Join(dir, "store"), "--token-file", token))
	daemon(b, "in the cluster", slurm.Nodes[0].Command(golaunch, "agent", "--allow-run-as-root", "--coordinator", at, "--name", "n1", "--token-file", token,
		"--log-dir", filepath.Join(dir, "logs")))
	var entering, ours, theirs []time.Duration
	for b.Loop() {
		entering = append(entering, timed(b, slurm.Command("true")))
		ours = append(ours, timed(b, slurm.Command(golaunch, "--coordinator", at, "--token-file", token, "--quiet", "--", "true")))
		theirs = append(theirs, timed(b, slurm.Command("srun", "-n1", "true")))
	}
	golaunchTook, srunTook := median(ours)-median(entering), median(theirs)-median(entering)
	b.ReportMetric(golaunchTook, "ms/golaunch")
	b.ReportMetric(srunTook, "ms/srun")
	b.ReportMetric(golaunchTook/srunTook, "ratio")
}
