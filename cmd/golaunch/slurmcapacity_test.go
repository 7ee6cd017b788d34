package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/slurmtest"
	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// TestCapacityOnSlurm grows a cluster from 0 to 4 nodes of a real Slurm and back, under several
// jobs, while the coordinator is killed: once when it has asked for nodes, and once when the first
// of these nodes has joined. No job notices, and Slurm has no job left.
func TestCapacityOnSlurm(t *testing.T) {
	suite.LeftToAll(t, "it takes half a minute")
	s := startSlurm(t, slurmtest.Options{Nodes: 4})
	file := filepath.Join(s.dir, "capacity.yaml")
	text := "kinds:\n  node:\n    gpus: 2\n    max: 4\n    idle: 2s\n    slurm: [--exclusive, --output=/dev/null]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(s.dir, "state")
	coordinate := func() *process {
		cmd := s.Command(golaunch(t), "coordinator", "--listen", "10.79.0.2", "--state-dir", state, "--capacity", file)
		return start(t, cmd, "GOLAUNCH_AGENT_GPUS=2")
	}
	coordinator := coordinate()
	coordinator.line("golaunch agent --coordinator")
	var jobs []*process
	for i, nodes := range []int{2, 4, 1, 3} {
		jobs = append(jobs, s.run(golaunch(t), "--coordinator", "10.79.0.2:29400", "--job-id", fmt.Sprint("j", i), "--nodes", fmt.Sprint(nodes),
			"--gpus-per-node", "2", "--", "sh", "-c", "echo rank $RANK of $WORLD_SIZE; sleep 2"))
	}
	coordinator.line("node requested: for job j")
	coordinator.kill()
	coordinator = coordinate()
	coordinator.line("node n[1-4] is here")
	coordinator.kill()
	coordinator = coordinate()
	for i, nodes := range []int{2, 4, 1, 3} {
		last := 2*nodes - 1
		jobs[i].ends(0, fmt.Sprintf("rank %d of %d", last, last+1))
	}
	for seq := range 4 {
		coordinator.line(fmt.Sprintf("node-[a-z0-9]+-%d is gone", seq+1))
	}
	s.run("sh", "-c", `until [ -z "$(squeue --noheader)" ]; do sleep 0.1; done`).ends(0)
	if _, out := s.run(golaunch(t), "status", "--coordinator", "10.79.0.2:29400").wait(); strings.Contains(out, "waiting for") || strings.Contains(out, "n1") {
		t.Errorf("nodes or requests are left:\n%s", out)
	}
	if text, _ := coordinator.out.read(); strings.Contains(text, "-5 is") {
		t.Errorf("more than 4 nodes were asked for:\n%s", text)
	}
}

// TestRequestsOfSlurmAreGivenUp: late requests are deleted together. A job of the same user whose
// name looks like fields of squeue is not deleted.
func TestRequestsOfSlurmAreGivenUp(t *testing.T) {
	s := startSlurm(t, slurmtest.Options{Nodes: 1})
	s.run("sbatch", "--hold", "--job-name=a|b|c", "--wrap=true").ends(0)
	file := filepath.Join(s.dir, "capacity.yaml")
	text := "kinds:\n  node: {min: 3, max: 3, start_timeout: 1s, slurm: [--hold, --output=/dev/null]}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	coordinator := s.run(golaunch(t), "coordinator", "--listen", "10.79.0.2", "--state-dir", filepath.Join(s.dir, "state"), "--capacity", file)
	for seq := range 3 {
		coordinator.line(fmt.Sprintf("node-[a-z0-9]+-%d is gone", seq+1))
	}
	// By now there may be later requests, -4 to -6.
	if _, left := s.run("squeue", "--noheader", "--format=%j").wait(); !strings.Contains(left, "a|b|c\n") || regexp.MustCompile(`(?m)-[123]$`).MatchString(left) {
		t.Errorf("Slurm has these jobs:\n%s", left)
	}
}
