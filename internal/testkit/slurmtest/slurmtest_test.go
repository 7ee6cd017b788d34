package slurmtest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/testkit/pipetest"
)

// limit bounds the waits of a test.
const limit = time.Minute

// output returns the output of a command on the head node.
func output(t testing.TB, c *Cluster, argv ...string) string {
	t.Helper()
	cmd := c.Command(argv...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%q: %v: %s", argv, err, stderr.String())
	}
	return strings.TrimSpace(string(out))
}

func TestSrun(t *testing.T) {
	c := Start(t, Options{Nodes: 3, CPUs: 6, GPUs: 4})
	script := `echo $SLURM_PROCID $SLURM_NODEID $SLURM_LOCALID $(hostname) $(hostname -I) $SLURM_JOB_NODELIST $SLURM_STEP_NODELIST \
		$SLURM_NTASKS $SLURM_JOB_NUM_NODES $SLURM_LAUNCH_NODE_IPADDR $CUDA_VISIBLE_DEVICES $(getent hosts n3)`
	got := strings.Split(output(t, c, "srun", "-N2", "-n4", "--ntasks-per-node=2", "--gpus-per-node=2", "sh", "-c", script), "\n")
	slices.Sort(got)
	want := []string{
		"0 0 0 n1 10.79.0.10 n[1-2] n[1-2] 4 2 10.79.0.2 0,1 10.79.0.12 n3",
		"1 0 1 n1 10.79.0.10 n[1-2] n[1-2] 4 2 10.79.0.2 0,1 10.79.0.12 n3",
		"2 1 0 n2 10.79.0.9 n[1-2] n[1-2] 4 2 10.79.0.2 0,1 10.79.0.12 n3",
		"3 1 1 n2 10.79.0.9 n[1-2] n[1-2] 4 2 10.79.0.2 0,1 10.79.0.12 n3",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the tasks say\n%s\nbut want\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := output(t, c, "sinfo", "--noheader", "--format=%D %c %G"); got != "3 6 gpu:4" {
		t.Errorf("sinfo says %q", got)
	}
}

func TestExitCode(t *testing.T) {
	c := Start(t, Options{})
	err := c.Command("srun", "sh", "-c", "exit 7").Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("srun: %v, want exit status 7", err)
	}
}

func TestConfig(t *testing.T) {
	c := Start(t, Options{Config: map[string]string{"KillWait": "17", "InactiveLimit": "19"}})
	for _, want := range []string{"KillWait = 17 sec", "InactiveLimit = 19 sec"} {
		if got := strings.Join(strings.Fields(output(t, c, "scontrol", "show", "config")), " "); !strings.Contains(got, want) {
			t.Errorf("scontrol show config has no %q", want)
		}
	}
}

func TestScancel(t *testing.T) {
	c := Start(t, Options{Nodes: 2})
	cmd := c.Command("srun", "-N2", "sh", "-c", "echo $SLURM_JOB_ID.$SLURM_STEP_ID; exec sleep 1000")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for range 2 {
		if !lines.Scan() || lines.Text() != "1.0" {
			t.Fatalf("a task says %q, want its step's name 1.0", lines.Text())
		}
	}
	output(t, c, "scancel", lines.Text())
	if err := cmd.Wait(); err == nil {
		t.Error("srun succeeded though its step was cancelled")
	}
}

func TestRequeue(t *testing.T) {
	c := Start(t, Options{Nodes: 2})
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(fifo, os.O_RDWR, 0) // with a writer of its own, so that there is no end of file between the runs
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	if err := pipe.SetReadDeadline(time.Now().Add(limit)); err != nil {
		t.Fatal(err)
	}
	job := output(t, c, "sbatch", "--parsable", "--requeue", "-N2", "--output=/dev/null",
		"--wrap=echo run ${SLURM_RESTART_COUNT:-0} of $SLURM_JOB_ID >"+fifo+"; exec sleep 1000")
	runs := bufio.NewReader(pipe)
	for run := range 2 {
		got, err := runs.ReadString('\n')
		if want := fmt.Sprintf("run %d of %s\n", run, job); err != nil || got != want {
			t.Fatalf("the job says %q (%v), want %q", got, err, want)
		}
		if run == 0 {
			output(t, c, "scontrol", "requeue", job)
		}
	}
}

func TestTwoClusters(t *testing.T) {
	a, b := Start(t, Options{Nodes: 2}), Start(t, Options{Nodes: 2})
	meet := func(c *Cluster) (cmd *exec.Cmd, in io.WriteCloser, out *bufio.Reader) {
		cmd = c.Command("srun", "-N2", "sh", "-c", "echo $SLURM_JOB_ID $SLURM_CONF; read line")
		in, pipe := pipetest.Start(t, cmd)
		return cmd, in, bufio.NewReader(pipe)
	}
	cmdA, inA, outA := meet(a)
	cmdB, inB, outB := meet(b)
	for c, out := range map[*Cluster]*bufio.Reader{a: outA, b: outB} { // both run before either may end
		for range 2 {
			if got, err := out.ReadString('\n'); got != "1 "+c.file("slurm.conf")+"\n" {
				t.Errorf("a task says %q (%v), want job 1 of %s", got, err, c.dir)
			}
		}
	}
	for cmd, in := range map[*exec.Cmd]io.WriteCloser{cmdA: inA, cmdB: inB} {
		if _, err := io.WriteString(in, "go\n"); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}

// BenchmarkSrun measures Slurm's own time for a step: an allocation, one task on one node, and the
// end.
func BenchmarkSrun(b *testing.B) {
	c := Start(b, Options{})
	for b.Loop() {
		if out, err := c.Command("srun", "-n1", "true").CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
	}
}
