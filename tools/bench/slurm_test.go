package main

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/slurmtest"
)

// BenchmarkSlurmStep is the time of a whole command that runs two ranks of true on each of four nodes of Slurm: golaunch's and srun's,
// in turn, each with an allocation of its own and within one that stands. The metrics are medians.
func BenchmarkSlurmStep(b *testing.B) {
	b.Chdir("../..")
	golaunch, _ := build(b.TempDir())
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
			shells[c.shell] = open(b, slurm.Command(strings.Fields(c.shell)...))
		}
	}
	took := make([][]time.Duration, len(commands))
	for b.Loop() {
		for i, c := range commands {
			took[i] = append(took[i], shells[c.shell].run(c.line))
		}
	}
	for i, c := range commands {
		b.ReportMetric(median(took[i]), c.metric)
	}
	b.ReportMetric(median(took[0])/median(took[1]), "ratio-step")
	b.ReportMetric(median(took[2])/median(took[3]), "ratio-salloc")
}

// shell runs commands one after another in an environment of its own.
type shell struct {
	b   *testing.B
	in  io.WriteCloser
	out *bufio.Reader
}

// open starts a shell, which ends with the benchmark.
func open(b *testing.B, cmd *exec.Cmd) *shell {
	b.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			b.Errorf("%v: %v", cmd.Args, err)
		}
	})
	s := &shell{b, in, bufio.NewReader(out)}
	s.run("true")
	return s
}

// run times a command, which must print nothing on its standard output.
func (s *shell) run(line string) time.Duration {
	s.b.Helper()
	begin := time.Now()
	if _, err := fmt.Fprintf(s.in, "%s </dev/null; echo $?\n", line); err != nil {
		s.b.Fatal(err)
	}
	if answer, err := s.out.ReadString('\n'); err != nil || answer != "0\n" {
		s.b.Fatalf("%s: exit code %q (%v)", line, answer, err)
	}
	return time.Since(begin)
}
