package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/testkit/slurmtest"
)

// BenchmarkSlurmStep measures the time of a whole command that runs two ranks of true on each of
// four nodes of Slurm. golaunch and srun take turns, each with a new allocation and within an
// existing allocation. The metrics are medians.
func BenchmarkSlurmStep(b *testing.B) {
	b.Chdir("../..")
	golaunch, _ := built(b, b.TempDir())
	slurm := slurmtest.Start(b, slurmtest.Options{Nodes: 4})
	dir := filepath.Dir(golaunch)
	ours := fmt.Sprintf("env GOLAUNCH_COORDINATOR=none TMPDIR=%s %s --quiet --procs-per-node 2 -- /bin/true", dir, golaunch)
	commands := []struct{ metric, line, shell string }{
		{"ms/step-golaunch", "srun -N4 --ntasks-per-node=1 " + ours, "sh"},
		{"ms/step-srun", "srun -N4 --ntasks-per-node=2 /bin/true", "sh"},
		{"ms/salloc-golaunch", ours, "salloc -N4 --ntasks-per-node=2 sh"},
		{"ms/salloc-srun", "srun --ntasks-per-node=2 /bin/true", "salloc -N4 --ntasks-per-node=2 sh"},
	}
	shells := map[string]*shell{}
	for _, c := range commands {
		if shells[c.shell] == nil {
			sh, err := open(b, slurm.Command(strings.Fields(c.shell)...), b.TempDir())
			if err != nil {
				b.Fatal(err)
			}
			shells[c.shell] = sh
		}
	}
	took := make([][]time.Duration, len(commands))
	for b.Loop() {
		for i, c := range commands {
			t, err := shells[c.shell].run(b.Context(), giveUp, c.line)
			if err != nil {
				b.Fatalf("%s: %v", c.line, err)
			}
			took[i] = append(took[i], t)
		}
	}
	for i, c := range commands {
		b.ReportMetric(median(took[i]), c.metric)
	}
	b.ReportMetric(median(took[0])/median(took[1]), "ratio-step")
	b.ReportMetric(median(took[2])/median(took[3]), "ratio-salloc")
}
