package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/slurmtest"
)

// TestSlurmTasksThatMeet has two tasks on each node of a step. The command line, and not Slurm,
// makes these tasks the nodes of one job.
func TestSlurmTasksThatMeet(t *testing.T) {
	s := startSlurm(t, slurmtest.Options{Nodes: 2})
	srun := []string{"srun", "--nodes=2", "--ntasks-per-node=2", "--time=2", "sh", "-c"}
	tasks := func(command string, options ...string) *process {
		argv := append(append([]string{}, srun...), "export "+secret+"; exec "+golaunch(t)+" "+command)
		return s.run(append(argv, options...)...)
	}
	rank := `'echo rank $RANK of $WORLD_SIZE on node $GROUP_RANK'`
	for meet, options := range map[string]string{
		"static": "--node-rank=$SLURM_PROCID --master-addr=n1 --master-port=29511",
		"c10d":   "--rdzv-backend=c10d --rdzv-endpoint=n1:29512 --rdzv-id=x",
	} {
		t.Run(meet, func(t *testing.T) {
			tasks("torchrun --nnodes=4 "+options+" --no-python sh -c "+rank).ends(0, "rank 0 of 4 on node 0", "rank 1 of 4 on node 1",
				"rank 2 of 4 on node 2", "rank 3 of 4 on node 3")
		})
	}
	tasks("--nodes=4 --rendezvous=n1:29513 -- sh -c "+rank).ends(0, "[r0 n2-2] rank 0 of 4", "[r1 n2-3]", "[r2 n1-0]", "[r3 n1-1]")
	tasks("--nodes=4 --rendezvous=n1:29514 --name=w$SLURM_PROCID -- sh -c "+rank).ends(0, "rank 0 of 4", "w0] ", "w1] ", "w2] ", "w3] rank ")
	// Both tasks of n2 have the same name: one task is refused, and no other task comes.
	tasks("--nodes=4 --rendezvous=n1:29515 --name=w$((SLURM_PROCID<3?SLURM_PROCID:2)) -- true").ends(125,
		"job failed: node w2 was refused, and without it 4 nodes cannot come together: there is a node w2 already")
}

// TestSlurmTasksAlone has tasks on one node that each run a job of their own.
func TestSlurmTasksAlone(t *testing.T) {
	s := startSlurm(t, slurmtest.Options{Nodes: 2})
	for _, command := range []string{"torchrun --standalone --no-python", "torchrun --nnodes=1 --no-python", "torchrun --no-python", "--nodes=1 --"} {
		for _, nodes := range []int{1, 2} {
			p := s.run("srun", fmt.Sprint("--nodes=", nodes), "--ntasks=4", "sh", "-c",
				"exec "+golaunch(t)+" "+command+` sh -c "echo task $SLURM_PROCID has rank \$RANK of \$WORLD_SIZE"`)
			p.ends(0, "task 0 has rank 0 of 1", "task 1 has rank 0 of 1", "task 2 has rank 0 of 1", "task 3 has rank 0 of 1")
		}
	}
	s.run("srun", "--nodes=2", "--ntasks-per-node=1", golaunch(t), "torchrun", "--standalone", "--no-python", "sh", "-c",
		"echo $SLURMD_NODENAME has rank $RANK of $WORLD_SIZE").ends(0, "n1 has rank 0 of 1", "n2 has rank 0 of 1")
	s.run("salloc", "--nodes=2", golaunch(t), "torchrun", "--standalone", "--no-python", "hostname").ends(0, "head")
}

// TestSlurmGPUsByTask: the job's GPUs are requested for each of its tasks. golaunch runs as one
// task on each node, and takes the GPUs of all tasks.
func TestSlurmGPUsByTask(t *testing.T) {
	s := startSlurm(t, slurmtest.Options{Nodes: 2, GPUs: 4})
	job := []string{golaunch(t), "--", "sh", "-c", told}
	const few = "Slurm has given this job"
	for _, options := range [][]string{
		{"--nodes=2", "--ntasks-per-node=4", "--gpus-per-task=1"},
		{"--nodes=2", "--ntasks=8", "--ntasks-per-gpu=1"},
	} {
		p := s.run(append(append([]string{"salloc"}, options...), job...)...)
		p.ends(0, "rank 0 of 8 local 0 on n2 at 10.79.0.9 gpus 0,1,2,3", "rank 7 of 8 local 3 on n1")
		if _, text := p.wait(); strings.Contains(text, few) {
			t.Errorf("it warns:\n%s", text)
		}
	}
	s.run(append([]string{"salloc", "--nodes=2", "--ntasks=6", "--gpus-per-task=1"}, job...)...).ends(0, "rank 5 of 6 local 3 on n1 at 10.79.0.9 gpus 0,1,2,3")
	s.output(s.batch(`$golaunch -- sh -c '`+told+`'; echo ended with $?`, "--nodes=2", "--ntasks-per-node=4", "--gpus-per-task=1"),
		"rank 7 of 8 local 3 on n1", "ended with 0")
	s.output(s.batch(`$golaunch -- sh -c '`+told+`'; echo ended with $?`, "--nodes=1", "--ntasks-per-node=4", "--gpus-per-task=1"),
		"rank 3 of 4 local 3 on n1", "ended with 0")
	for nodes, idle := range map[string]string{"1": "4 GPUs, and golaunch, which is one task on each node, 1 of them", "2": "8 GPUs, and golaunch, which is one task on each node, 2 of them"} {
		s.run(append([]string{"salloc", "--nodes=" + nodes, "--ntasks-per-node=4", "--gpus-per-task=1", "srun", "--ntasks-per-node=1", "--ntasks=" + nodes}, job...)...).
			ends(0, "rank 0 of "+nodes, few+" "+idle)
	}
	s.run("salloc", "--nodes=1", "--ntasks-per-node=4", "--gpus-per-task=1", "srun", golaunch(t), "torchrun", "--standalone", "--no-python", "true").ends(0)
}
