package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/testkit/slurmtest"
	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// coordinate starts a coordinator on the head node, for agents with two GPUs. A later coordinator
// has the same log.
func (s slurm) coordinate(kinds string) *process {
	s.t.Helper()
	file := filepath.Join(s.dir, "capacity.yaml")
	if err := os.WriteFile(file, []byte(kinds), 0o600); err != nil {
		s.t.Fatal(err)
	}
	cmd := s.Command(golaunch(s.t), "coordinator", "--listen", "10.79.0.2", "--state-dir", filepath.Join(s.dir, "state"), "--capacity", file)
	p := start(s.t, cmd, "GOLAUNCH_AGENT_GPUS=2")
	p.line("golaunch agent --coordinator")
	return p
}

// ask runs a verb for that coordinator's cluster.
func (s slurm) ask(verb string, args ...string) *process {
	s.t.Helper()
	return s.run(append([]string{golaunch(s.t), verb, "--coordinator", "10.79.0.2:29400"}, args...)...)
}

// TestCapacityOnSlurm grows a cluster from 0 to 4 nodes of a real Slurm and back, under 20 jobs. The
// coordinator is killed twice: when it has asked for nodes, and when ranks run and all other jobs
// wait. Each rank of each job ends exactly once. golaunch asks Slurm for four nodes in all, knows
// each of them to the end, and leaves none.
func TestCapacityOnSlurm(t *testing.T) {
	suite.LeftToAll(t, "it takes half a minute")
	s := startSlurm(t, slurmtest.Options{Nodes: 4})
	const kinds = "kinds:\n  node:\n    gpus: 2\n    max: 4\n    idle: 2s\n    slurm: [--exclusive, --output=/dev/null]\n"
	begin := gate(t, filepath.Join(s.dir, "begin"))
	begun := lines(t, filepath.Join(s.dir, "begun"))
	coordinator := s.coordinate(kinds)
	ranks := map[string]int{}
	submit := func(id string, nodes, gpus int) *process {
		t.Helper()
		ranks[id] = nodes * gpus
		return s.ask("run", "--detach", "--job-id", id, "--nodes", fmt.Sprint(nodes), "--gpus-per-node", fmt.Sprint(gpus),
			"--", "sh", "-c", `echo up >begun; read line <begin; echo $0 $RANK >>ended`, id)
	}
	submit("j0", 4, 2).ends(0)
	coordinator.line("4 x node requested: for job j0")
	coordinator.kill()
	coordinator = s.coordinate(kinds)
	var submissions []*process
	for i := range 18 {
		submissions = append(submissions, submit(fmt.Sprint("j", i+1), 1+i%4, 1+i%2))
	}
	for _, p := range submissions {
		p.ends(0)
	}
	begun()
	coordinator.kill()
	coordinator = s.coordinate(kinds)
	submit("last", 4, 2).ends(0) // so that all nodes are needed to the end
	all := 0
	for _, n := range ranks {
		all += n
	}
	begin(all)

	var tags []string
	for seq := range 4 {
		tags = append(tags, coordinator.match(fmt.Sprintf("(node-[a-z0-9]+-%d) is gone", seq+1))[1])
	}
	s.run("sh", "-c", `until [ -z "$(squeue --noheader)" ]; do sleep 0.1; done`).ends(0)
	had := strings.Fields(s.said("squeue", "--noheader", "--states=all", "--format=%j"))
	slices.Sort(had)
	if slices.Sort(tags); !slices.Equal(had, tags) {
		t.Errorf("Slurm has had the jobs %q, and the log the nodes %q", had, tags)
	}
	var want []string
	for id, n := range ranks {
		for rank := range n {
			want = append(want, fmt.Sprint(id, " ", rank))
		}
	}
	text, err := os.ReadFile(filepath.Join(s.dir, "ended"))
	got := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	slices.Sort(got)
	if slices.Sort(want); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, these ranks have ended:\n%q\nnot\n%q", err, got, want)
	}
	var status clusterStatus
	if err := json.Unmarshal([]byte(ended(t, s.ask("status", "--json", "--all"))), &status); err != nil {
		t.Fatal(err)
	}
	for id := range ranks {
		if j := status.job(t, id); j.Result == nil || j.Result.Code != 0 || j.Attempt != 0 {
			t.Errorf("%s: %+v", id, j)
		}
	}
	if len(status.Nodes)+len(status.Requested) > 0 || len(status.Jobs) != len(ranks) {
		t.Errorf("%d jobs; these nodes or requests are left: %+v %+v", len(status.Jobs), status.Nodes, status.Requested)
	}
}

// lines makes a FIFO to which processes write, and returns a function that waits for a line.
func lines(t *testing.T, fifo string) (next func()) {
	t.Helper()
	gate(t, fifo)
	pipe, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pipe.Close() })
	if err := pipe.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	text := bufio.NewReader(pipe)
	return func() {
		t.Helper()
		if _, err := text.ReadString('\n'); err != nil {
			t.Fatalf("no line in %s: %v", fifo, err)
		}
	}
}

// TestRequestsOfSlurm has a job for which Slurm refuses a node of one kind, because there is no such
// partition, and starts a node of the next kind. Late requests are deleted together. A job of the
// same user whose name looks like fields of squeue is not deleted.
func TestRequestsOfSlurm(t *testing.T) {
	s := startSlurm(t, slurmtest.Options{Nodes: 1})
	s.run("sbatch", "--hold", "--job-name=a|b|c", "--wrap=true").ends(0)
	coordinator := s.coordinate(`kinds:
  wrong: {gpus: 2, max: 1, priority: 1, slurm: [--partition=none]}
  node: {gpus: 2, max: 1, idle: 1s, slurm: [--output=/dev/null]}
  held: {min: 3, max: 3, start_timeout: 1s, slurm: [--hold, --output=/dev/null]}
`)
	s.ask("run", "--gpus-per-node", "2", "--", "sh", "-c", "echo rank $RANK on $GOLAUNCH_NODE").ends(0, "rank 1 on n1\n")
	coordinator.line("wrong-[a-z0-9]+-[0-9]+ does not come: sbatch: exit status 1: sbatch: error: .*invalid partition specified: none")
	coordinator.line("node-[a-z0-9]+-[0-9]+ is given back: node n1 was drained and has left")
	coordinator.line("node-[a-z0-9]+-[0-9]+ is gone")
	for seq := range 3 {
		coordinator.line(fmt.Sprintf("held-[a-z0-9]+-%d is gone", seq+1))
	}
	// By now there may be later requests.
	if left := s.said("squeue", "--noheader", "--format=%j"); !strings.Contains(left, "a|b|c\n") || regexp.MustCompile(`(?m)^node|-[123]$`).MatchString(left) {
		t.Errorf("Slurm has these jobs:\n%s", left)
	}
}
