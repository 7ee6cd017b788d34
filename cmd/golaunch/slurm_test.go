package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/slurmtest"
)

// told has the facts that a rank prints about itself.
const told = "echo rank $RANK of $WORLD_SIZE local $LOCAL_RANK on $GOLAUNCH_NODE at $MASTER_ADDR gpus $CUDA_VISIBLE_DEVICES"

// slurm is a cluster and a directory that its nodes share.
type slurm struct {
	*slurmtest.Cluster
	t   *testing.T
	dir string
}

func startSlurm(t *testing.T, o slurmtest.Options) slurm {
	t.Helper()
	t.Parallel()
	return slurm{slurmtest.Start(t, o), t, t.TempDir()}
}

// run starts a command on the head node.
func (s slurm) run(argv ...string) *process {
	s.t.Helper()
	cmd := s.Command(argv...)
	cmd.Dir = s.dir
	return start(s.t, cmd)
}

// batch submits a script in which golaunch is $golaunch, and returns the job's id.
func (s slurm) batch(script string, options ...string) string {
	s.t.Helper()
	file := filepath.Join(s.dir, "batch.sh")
	directives := ""
	for strings.HasPrefix(script, "#SBATCH") {
		line, rest, _ := strings.Cut(script, "\n")
		directives, script = directives+line+"\n", rest
	}
	if err := os.WriteFile(file, []byte("#!/bin/bash\n"+directives+"golaunch="+golaunch(s.t)+"\n"+script+"\n"), 0o700); err != nil {
		s.t.Fatal(err)
	}
	p := s.run(append(append([]string{"sbatch", "--parsable", "--output=%j.out"}, options...), file)...)
	_, out := p.wait()
	return strings.TrimSpace(out)
}

// over waits until a job is gone from the queue.
func (s slurm) over(id string) {
	s.t.Helper()
	s.run("sh", "-c", "until squeue --noheader --jobs="+id+" --states=all --format=%T | grep -Eq 'COMPLETED|FAILED|CANCELLED|TIMEOUT'; do sleep 0.2; done").ends(0)
}

// output waits for the end of a batch job, whose output must have all the given texts.
func (s slurm) output(id string, texts ...string) string {
	s.t.Helper()
	s.over(id)
	data, err := os.ReadFile(filepath.Join(s.dir, id+".out"))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, text := range texts {
		if !strings.Contains(string(data), text) {
			s.t.Errorf("job %s does not say %q:\n%s", id, text, data)
		}
	}
	return string(data)
}

// TestSlurm runs the same job in each of the ways in which Slurm may start golaunch.
func TestSlurm(t *testing.T) {
	s := startSlurm(t, slurmtest.Options{Nodes: 4, GPUs: 2})
	job := []string{golaunch(t), "--", "sh", "-c", told}
	want := []string{"rank 0 of 4 local 0 on n2 at 10.79.0.9 gpus 0,1", "rank 3 of 4 local 1 on n1 at 10.79.0.9 gpus 0,1"}
	s.run(append([]string{"srun", "--nodelist=n[1-2]", "--ntasks-per-node=1", "--gpus-per-node=2"}, job...)...).ends(0, want...)
	s.run(append([]string{"salloc", "--nodelist=n[1-2]", "--gpus-per-node=2"}, job...)...).ends(0, want...)
	s.output(s.batch(`$golaunch -- sh -c '`+told+`'; echo ended with $?`, "--nodelist=n[1-2]", "--gpus-per-node=2"), append(want, "ended with 0")...)
	s.output(s.batch(`srun --ntasks-per-node=1 $golaunch -- sh -c '`+told+`'; echo ended with $?`, "--nodelist=n[1-2]", "--gpus-per-node=2"),
		append(want, "ended with 0")...)
	s.run("srun", "--nodes=1", "--nodelist=n1", "--gpus-per-node=2", golaunch(t), "--order", "slurm", "--", "sh", "-c", told).ends(0, "rank 1 of 2 local 1 on n1 at 127.0.0.1")
	s.run("salloc", "--nodelist=n[1-2]", "--gpus-per-node=2", golaunch(t), "--order", "slurm", "--", "sh", "-c", told).ends(0,
		"rank 0 of 4 local 0 on n1 at 10.79.0.10", "rank 3 of 4 local 1 on n2 at 10.79.0.10")
	s.run("salloc", "--nodelist=n[1-2]", "--ntasks-per-node=3", golaunch(t), "--", "sh", "-c", told).ends(0, "rank 5 of 6 local 2 on n1")
	s.run("salloc", "--nodelist=n[1-2]", "--gres=gpu:2", golaunch(t), "--", "sh", "-c", told).ends(0, "rank 3 of 4 local 1 on n1 at 10.79.0.9 gpus 0,1")
	s.run("srun", "--nodes=2", "--ntasks-per-node=1", golaunch(t), "--nodes=1", "--", "sh", "-c", told).ends(0, "rank 0 of 1")
	s.run("salloc", "--nodes=2", golaunch(t), "--nodes=1", "--", "sh", "-c", told).ends(0, "rank 0 of 1")
	s.run("salloc", "--nodes=3", "--exclude=n2", golaunch(t), "--spares", "1", "--", "sh", "-c", told).ends(0, "of 2 local 0 on n")
	s.run("srun", "--nodelist=n[1-2]", "--ntasks-per-node=1", "unshare", "--mount", "sh", "-c", `mount --bind /dev/null /etc/hosts && exec "$@"`, "-",
		golaunch(t), "--procs-per-node=1", "--", "sh", "-c", told).ends(0, "this node cannot resolve n1; Slurm has it at 10.79.0.10 (NodeAddr)", "rank 0 of 2", "rank 1 of 2")
	dir := project(t)
	for _, by := range [][]string{{"salloc", "--nodes=2"}, {"srun", "--nodes=2", "--ntasks-per-node=1"}} {
		p := s.run(append(by, golaunch(t), "--procs-per-node=1", "--workspace", dir, "--", "sh", "train.sh")...)
		p.line("0 " + projectSeen)
		p.line("1 " + projectSeen)
		p.ends(0)
	}
	s.run("salloc", "--nodes=2", golaunch(t), "--", "sh", "-c", "echo order in: $(grep -lzs '^GOLAUNCH_ENLISTMENT=' /proc/[0-9]*/environ).").ends(0, "order in: .\n")
}

// TestSlurmEnds checks that the exit code is the root cause's, that no process is left, and that a
// wrong use has the right message.
func TestSlurmEnds(t *testing.T) {
	s := startSlurm(t, slurmtest.Options{Nodes: 2, GPUs: 2})
	s.run("srun", "--nodes=2", "--ntasks-per-node=1", golaunch(t), "--procs-per-node=2", "--max-restarts=0", "--",
		"sh", "-c", "[ $RANK != 3 ] || exit 7; sleep 1000").ends(7, "rank 3 on n1")
	s.run("salloc", "--nodes=2", golaunch(t), "--procs-per-node=2", "--max-restarts=0", "--",
		"sh", "-c", "[ $RANK != 3 ] || exit 7; sleep 1000").ends(7, "rank 3 on n1")
	s.run("srun", "--nodes=2", "--ntasks-per-node=2", golaunch(t), "--", "true").ends(2, "use srun --ntasks-per-node=1 golaunch")
	s.run("salloc", "--nodes=2", golaunch(t), "--nodes=3", "--", "true").ends(2, "it wants 3 nodes, and Slurm gives it 2")
	s.run("srun", "--nodes=2", "--ntasks-per-node=1", "sh", "-c", "GOLAUNCH_TOKEN=this-is-not-the-same-$SLURM_NODEID "+golaunch(t)+" --placement-timeout=3s -- true").ends(125, "token")
	s.run("srun", "--nodes=2", "--ntasks-per-node=1", "sh", "-c",
		"echo AuthInfo=socket=/none > conf; SLURM_CONF=conf "+golaunch(t)+" --placement-timeout=1s -- true").ends(125, "start munged, or set GOLAUNCH_TOKEN")

	id := s.batch(`$golaunch -- sh -c 'trap "echo stopped $RANK; exit 0" TERM; echo up $RANK; touch up$RANK; while :; do sleep 0.05; done'`, "--nodes=2")
	s.run("sh", "-c", "while [ ! -e up0 -o ! -e up1 ]; do sleep 0.05; done").ends(0)
	s.said("scancel", id)
	s.output(id, "stopped 0", "stopped 1", "got SIGTERM") // each node has got the signal: their order is undefined
	if left := s.said("sh", "-c", "squeue --noheader --steps; grep -lsz '^PWD="+s.dir+"$' /proc/[0-9]*/environ; true"); left != "" {
		t.Errorf("after the end there is still\n%s", left)
	}
}

// said returns the output of a command.
func (s slurm) said(argv ...string) string {
	s.t.Helper()
	cmd := s.Command(argv...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("%v: %v\n%s", argv, err, out)
	}
	return string(out)
}

// TestSlurmJobsSideBySide runs two jobs on the same nodes at the same time.
func TestSlurmJobsSideBySide(t *testing.T) {
	s := startSlurm(t, slurmtest.Options{Nodes: 2})
	var all []*process
	for range 3 {
		p := s.run("srun", "--nodes=2", "--ntasks-per-node=1", golaunch(t), "--", "sh", "-c", "echo up $RANK; while [ ! -e end ]; do sleep 0.05; done; "+told)
		all = append(all, p)
	}
	for _, p := range all {
		p.line("up 1")
	}
	if err := os.WriteFile(filepath.Join(s.dir, "end"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		p.ends(0, "rank 0 of 2 local 0 on n2", "rank 1 of 2 local 0 on n1")
	}
}

// TestSlurmSignals: every rank is warned once before the time limit, no matter how golaunch was
// started.
func TestSlurmSignals(t *testing.T) {
	s := startSlurm(t, slurmtest.Options{Nodes: 2})
	const rank = "n=0; trap 'n=$((n+1)); echo warned $RANK' USR1; touch up$1$RANK; " +
		"while [ ! -e up${1}0 -o ! -e up${1}1 -o $n = 0 ]; do sleep 0.05; done; sleep 0.5; echo end $RANK after $n"
	ready := func(name string) {
		t.Helper()
		s.run("sh", "-c", "while [ ! -e up"+name+"0 -o ! -e up"+name+"1 ]; do sleep 0.05; done").ends(0)
	}
	p := s.run("srun", "--nodes=2", "--ntasks-per-node=1", "--time=1:00", golaunch(t), "--", "bash", "-c", rank, "-", "a")
	ready("a")
	s.said("scancel", "--signal=USR1", strings.TrimSpace(s.said("squeue", "--noheader", "--format=%A")))
	p.ends(143, "end 0 after 1", "end 1 after 1", "got SIGUSR1, which goes to the ranks; Slurm ends the job in ") // a program that then exits with 0 has saved
	id := s.batch(`$golaunch -- bash -c '`+strings.ReplaceAll(rank, "'", `"`)+`' - b`, "--nodes=2")
	ready("b")
	s.said("scancel", "--signal=USR1", id)
	s.output(id, "end 0 after 1", "end 1 after 1")
	id = s.batch(`exec $golaunch -- bash -c '`+strings.ReplaceAll(rank, "'", `"`)+`' - c`, "--nodes=2")
	ready("c")
	s.said("scancel", "--batch", "--signal=USR1", id)
	s.output(id, "end 0 after 1", "end 1 after 1")
}

// TestSlurmLosesANode: the job goes on with the spare.
func TestSlurmLosesANode(t *testing.T) {
	s := startSlurm(t, slurmtest.Options{Nodes: 3})
	p := s.run("salloc", "--nodes=3", "--no-kill", golaunch(t), "--spares=1", "--backoff=0s", "--", "sh", "-c",
		"[ $TORCHELASTIC_RESTART_COUNT = 1 ] || echo $GOLAUNCH_NODE > node$RANK; echo up $RANK on $GOLAUNCH_NODE attempt $TORCHELASTIC_RESTART_COUNT; "+
			"[ $TORCHELASTIC_RESTART_COUNT = 1 ] || sleep 1000; "+told)
	p.line("up 0 on n.* attempt 0")
	p.line("up 1 on n.* attempt 0")
	node, err := os.ReadFile(filepath.Join(s.dir, "node1"))
	if err != nil {
		t.Fatal(err)
	}
	s.said("scontrol", "update", "NodeName="+strings.TrimSpace(string(node)), "State=DOWN", "Reason=test")
	p.ends(0, "attempt 1", "of 2 local 0 on n")
}

// TestSlurmSubmit prints a batch script, and submits it.
func TestSlurmSubmit(t *testing.T) {
	s := startSlurm(t, slurmtest.Options{Nodes: 2, GPUs: 2})
	flags := []string{golaunch(t), "--slurm-submit", "--nodes=2", "--gpus-per-node=2", "--sbatch=--output=%j.out", "--", "sh", "-c", told}
	script := s.said(append([]string{flags[0], "--dry-run"}, flags[1:]...)...)
	for _, line := range []string{"#SBATCH --nodes=2\n", "#SBATCH --gpus-per-node=2\n", "#SBATCH --output=%j.out\n", "\nexec "} {
		if !strings.Contains(script, line) {
			t.Errorf("the script has no %q:\n%s", line, script)
		}
	}
	p := s.run(flags...)
	code, id := p.wait()
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, id)
	}
	s.output(strings.TrimSpace(id), "rank 3 of 4 local 1 on n1 at 10.79.0.9 gpus 0,1")
	s.run(golaunch(t), "--slurm-submit", "--sbatch=--partition=none", "--", "true").ends(125, "sbatch refused the job: ", "invalid partition")
	s.run(golaunch(t), "--dry-run", "--", "true").ends(2, "only with --slurm-submit")
}

// TestSlurmHeterogeneous has one rank for each GPU of two kinds of nodes.
func TestSlurmHeterogeneous(t *testing.T) {
	s := startSlurm(t, slurmtest.Options{Nodes: 3, GPUs: 4, Config: map[string]string{
		"SchedulerType": "sched/backfill", "SchedulerParameters": "bf_interval=1,batch_sched_delay=0,sched_interval=1",
	}})
	const parts = "#SBATCH --nodes=1 --gpus-per-node=4\n#SBATCH hetjob\n#SBATCH --nodes=2 --gpus-per-node=2\n"
	const job = "$golaunch --order=slurm -- sh -c '" + told + "'"
	want := []string{"rank 0 of 8 local 0 on n1 at 10.79.0.10 gpus 0,1,2,3", "rank 7 of 8 local 1 on n3 at 10.79.0.10 gpus 0,1"}
	s.output(s.batch(parts+job), want...)
	s.output(s.batch(parts+"srun --het-group=0,1 --ntasks-per-node=1 "+job), want...)
}

// TestSlurmRunsAgain: each task of an array and each run of a requeued job has its own id.
func TestSlurmRunsAgain(t *testing.T) {
	s := startSlurm(t, slurmtest.Options{Nodes: 2})
	const job = "srun --ntasks-per-node=1 $golaunch -- sh -c 'echo $TORCHELASTIC_RUN_ID rank $RANK restart ${SLURM_RESTART_COUNT:-0}; " +
		"touch up-$SLURM_JOB_ID; [ ${SLURM_RESTART_COUNT:-0} = $0 ] || sleep 1000' "
	array := s.batch(job+"0", "--array=4-5", "--nodes=2", "--output=%A_%a.out")
	s.over(array)
	s.output(array+"_5", array+"_5.0 rank 0", array+"_5.0 rank 1")
	id := s.batch(job+"1", "--nodes=2", "--requeue", "--open-mode=append")
	s.run("sh", "-c", "while [ ! -e up-"+id+" ]; do sleep 0.05; done").ends(0)
	s.said("scontrol", "requeue", id)
	s.output(id, id+".0 rank 0 restart 0", id+".0-r1 rank 0 restart 1", id+".0-r1 rank 1 restart 1")
}

// TestSlurmAgents runs agents on the nodes of a batch job, and submits jobs to them.
func TestSlurmAgents(t *testing.T) {
	const token = "GOLAUNCH_TOKEN=a-token-that-all-of-them-share"
	s := startSlurm(t, slurmtest.Options{Nodes: 2, GPUs: 2})
	id := s.batch("export HOME=$PWD "+token+"\n$golaunch coordinator --listen n1 &\n"+
		"exec srun --ntasks-per-node=1 $golaunch agent --coordinator n1", "--nodes=2", "--gpus-per-node=2", "--nodelist=n[1-2]")
	s.run("sh", "-c", "while ! grep -q 'node n2 is here' "+id+".out; do sleep 0.05; done").ends(0)
	for range 2 {
		s.run("env", token, golaunch(t), "--coordinator", "n1", "--nodes=2", "--gpus-per-node=2", "--", "sh", "-c", told).ends(0,
			"rank 0 of 4 local 0 on n2 at 10.79.0.9 gpus 0,1", "rank 3 of 4 local 1 on n1 at 10.79.0.9 gpus 0,1")
	}
	s.said("scancel", id)
	s.output(id, "this node has left: got SIGTERM")
}

// TestSlurmTopology keeps nodes of one switch together.
func TestSlurmTopology(t *testing.T) {
	s := startSlurm(t, slurmtest.Options{
		Nodes: 4, Config: map[string]string{"TopologyPlugin": "topology/tree"},
		Topology: "SwitchName=s1 Nodes=n1,n3\nSwitchName=s10 Nodes=n2,n4\nSwitchName=s0 Switches=s[1,10]\n",
	})
	const where = "echo rank $RANK on $GOLAUNCH_NODE at $MASTER_ADDR"
	want := []string{"rank 0 on n1 at 10.79.0.10", "rank 1 on n3 at", "rank 2 on n2 at", "rank 3 on n4 at"}
	job := []string{golaunch(t), "--interface", "eth0", "--order", "topology", "--", "sh", "-c", where}
	s.run(append([]string{"srun", "--nodes=4", "--ntasks-per-node=1"}, job...)...).ends(0, want...)
	s.run(append([]string{"salloc", "--nodes=4"}, job...)...).ends(0, want...)
	s.run("srun", "--nodes=2", "--ntasks-per-node=1", golaunch(t), "--interface", "eth7", "--", "true").ends(2, `interface "eth7"`, "ip link lists them")
}
