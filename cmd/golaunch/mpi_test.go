package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/nettest"
	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// TestUnderMPIRun: a real mpirun starts golaunch, once on each of two nodes.
func TestUnderMPIRun(t *testing.T) {
	t.Parallel()
	mpirun, err := exec.LookPath("mpirun")
	if err != nil {
		suite.Missing(t, "%v: apt-get install openmpi-bin", err)
	}
	nodes := nettest.Nodes(t, "10.81.0.9", "10.81.0.10")
	dir := t.TempDir()
	rsh := filepath.Join(dir, "rsh")
	script := "#!/bin/sh\nhost=$1\nshift\n" +
		`case $host in 10.81.0.9) n=n9 net=` + nodes[0].Name + `;; *) n=n10 net=` + nodes[1].Name + `;; esac` + "\n" +
		`exec nsenter --net=/run/netns/$net unshare --uts sh -c 'hostname '$n'; exec sh -c "$*"' - "$@"` + "\n"
	if err := os.WriteFile(rsh, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	run := func(argv ...string) *process {
		cmd := nodes[0].Command(append([]string{
			"unshare", "--uts", "sh", "-c", `hostname n9; exec "$@"`, "-", mpirun, "--allow-run-as-root", "--mca", "plm_rsh_agent", rsh,
			"--host", "10.81.0.9:2,10.81.0.10:2",
		}, argv...)...)
		return start(t, cmd, secret)
	}
	run("--map-by", "ppr:1:node", golaunch(t), "--procs-per-node", "2", "--", "sh", "-c", told+"; [ -z $OMPI_COMM_WORLD_RANK ]").ends(0,
		"rank 0 of 4 local 0 on n9 at 10.81.0.9", "rank 3 of 4 local 1 on n10 at 10.81.0.9")
	run("--map-by", "ppr:1:node", golaunch(t), "--max-restarts=0", "--", "sh", "-c", "exit $((RANK * 7))").ends(7, "rank 1 on n10 exited with code 7")
	run("--map-by", "ppr:2:node", golaunch(t), "--", "true").ends(2, "--map-by ppr:1:node")
	run("--map-by", "ppr:2:node", golaunch(t), "torchrun", "--standalone", "--no-python", "sh", "-c", "echo a job of rank $RANK of $WORLD_SIZE").ends(0,
		"a job of rank 0 of 1")
}
