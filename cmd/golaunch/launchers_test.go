package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/nettest"
	"github.com/golaunch/golaunch/internal/testkit/sshtest"
)

// TestUnderFlux has the environment of flux-environment(7), and a stand-in for flux-hostlist(1).
func TestUnderFlux(t *testing.T) {
	t.Parallel()
	nodes := nettest.Nodes(t, "10.82.0.10", "10.82.0.9")
	dir := t.TempDir()
	const flux = "#!/bin/sh\n[ \"$*\" = 'hostlist --nth=0 local' ] && echo 10.82.0.10\n"
	if err := os.WriteFile(filepath.Join(dir, "flux"), []byte(flux), 0o700); err != nil {
		t.Fatal(err)
	}
	run := func(rank string, path string) *process {
		return start(t, nodes[strings.Index("01", rank)].Command(golaunch(t), "--name", "n"+rank, "--", "sh", "-c", told), secret,
			"FLUX_JOB_ID=fuAsjAo", "FLUX_JOB_SIZE=2", "FLUX_JOB_NNODES=2", "FLUX_TASK_LOCAL_ID=0", "FLUX_TASK_RANK="+rank, "PATH="+path)
	}
	with := dir + ":" + os.Getenv("PATH")
	first, second := run("0", with), run("1", with)
	first.ends(0, "rank 1 of 2 local 0 on n0 at 10.82.0.9")
	second.ends(0, "rank 0 of 2 local 0 on n1 at 10.82.0.9")
	run("1", os.Getenv("PATH")).ends(2, "Flux does not say where node 0 is (flux hostlist --nth=0 local: ", "give --rendezvous HOST:PORT")
}

// TestUnderPBS runs golaunch in a job's script, which begins on the first node of the job.
func TestUnderPBS(t *testing.T) {
	t.Parallel()
	h := sshtest.Start(t, 2)
	file := filepath.Join(t.TempDir(), "nodes")
	if err := os.WriteFile(file, []byte("n1\nn1\nn2\nn2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, h.Command("unshare", "--uts", "sh", "-c", `hostname n1; exec "$@"`, "-", golaunch(t), "--procs-per-node", "2", "--", "sh", "-c", told),
		"PBS_JOBID=12.server", "PBS_ENVIRONMENT=PBS_BATCH", "PBS_NODENUM=0", "PBS_TASKNUM=1", "PBS_NODEFILE="+file).ends(0,
		"of 4 local 0 on n1", "of 4 local 1 on n2")
}
