package schedenv_test

import (
	"testing"

	"github.com/golaunch/golaunch/launcher/internal/schedenv"
)

// srunTask is the second of two tasks, with the variables of Slurm 22.05. batchJob is the script of
// a job, and hetJob the script of a heterogeneous job.
var (
	srunTask = given{host: "n2", env: `SLURM_JOB_ID=7
		SLURMD_NODENAME=n2
		CUDA_VISIBLE_DEVICES=0,1
		SLURM_GPUS_ON_NODE=2
		SLURM_JOB_NODELIST=n[1-2]
		SLURM_LAUNCH_NODE_IPADDR=10.0.0.1
		SLURM_LOCALID=0
		SLURM_NODEID=1
		SLURM_NTASKS=2
		SLURM_PROCID=1
		SLURM_STEP_GPUS=0,1
		SLURM_STEP_ID=0
		SLURM_STEP_NODELIST=n[1-2]
		SLURM_STEP_TASKS_PER_NODE=1(x2)
		SLURM_TOPOLOGY_ADDR=s0.s1.n2
		SLURM_TOPOLOGY_ADDR_PATTERN=switch.switch.node`}
	batchJob = given{host: "n1", env: `SLURM_JOB_ID=7
		SLURMD_NODENAME=n1
		SLURM_JOB_NODELIST=n[1-2]
		SLURM_NODEID=0
		SLURM_NTASKS_PER_NODE=3
		SLURM_PROCID=0
		SLURM_TASKS_PER_NODE=3(x2)`}
	hetJob = given{host: "n1", env: `SLURM_JOB_ID=7
		SLURMD_NODENAME=n1
		SLURM_GPUS_ON_NODE=4
		SLURM_HET_SIZE=2
		SLURM_JOB_GPUS=0,1,2,3
		SLURM_JOB_NODELIST=n1
		SLURM_JOB_NODELIST_HET_GROUP_0=n1
		SLURM_JOB_NODELIST_HET_GROUP_1=n[3-4]`}
)

func TestSlurm(t *testing.T) {
	task := schedenv.Place{
		By: "Slurm", Job: "7.0", Nodes: 2, Node: 1, Names: []string{"n1", "n2"}, Name: "n2", Head: "n1", GPUs: []string{"0", "1"},
		PerNode: "gpu", Each: true, Topology: "s0.s1.n2",
	}
	array, again := task, task
	array.Job, again.Restarts = "5_3.0", 2
	script := schedenv.Place{By: "Slurm", Job: "7", Nodes: 2, Names: []string{"n1", "n2"}, Name: "n1", Head: "n1", PerNode: "3"}
	login := script
	login.Name = ""
	het := script
	het.Nodes, het.Names, het.Groups = 3, []string{"n1", "n3", "n4"}, 2
	het.GPUs, het.PerNode = []string{"0", "1", "2", "3"}, "gpu"
	inherits := batchJob.and("SLURM_STEP_ID=0", "SLURM_STEP_NODELIST=m1", "SLURM_STEP_TASKS_PER_NODE=8")
	inherits.files = map[string]string{
		"proc/self/cmdline": "golaunch\x00--\x00true\x00", "proc/self/status": "Name:\tgolaunch\nPPid:\t42\n",
		"proc/42/cmdline": "/bin/bash\x00batch.sh\x00", "proc/42/status": "PPid:\t41\n",
		"proc/41/cmdline": "slurmstepd: [7.batch]\x00", "proc/41/status": "PPid:\t1\n",
	}
	step := srunTask
	step.files = map[string]string{"proc/self/status": "PPid:\t9\n", "proc/9/cmdline": "slurmstepd: [7.0]\x00"}
	circle := srunTask
	circle.files = map[string]string{"proc/self/status": "PPid:\t9\n", "proc/9/status": "PPid:\t9\n"}
	finds(t, map[string]found{
		"a task":               {srunTask, task},
		"a task below a stepd": {step, task},
		"an odd /proc":         {circle, task},
		"of an array":          {srunTask.and("SLURM_ARRAY_JOB_ID=5", "SLURM_ARRAY_TASK_ID=3"), array},
		"started again":        {srunTask.and("SLURM_RESTART_COUNT=2"), again},
		"a script":             {batchJob, script},
		"submitted by a step":  {inherits, script},
		"salloc":               {batchJob.on("login").and("SLURMD_NODENAME="), login},
		"heterogeneous":        {hetJob, het},
	})
	refuses(t, map[string]given{
		"use srun --ntasks-per-node=1 golaunch":            srunTask.and("SLURM_STEP_TASKS_PER_NODE=2(x2)"),
		"SLURM_STEP_TASKS_PER_NODE is 1,2":                 srunTask.and("SLURM_STEP_TASKS_PER_NODE=1,2"),
		"SLURM_STEP_NODELIST is not set":                   srunTask.and("SLURM_STEP_NODELIST="),
		"SLURM_JOB_NODELIST: ":                             batchJob.and("SLURM_JOB_NODELIST=n[1-999999999]"),
		"SLURM_NODEID is \"x\"":                            srunTask.and("SLURM_NODEID=x"),
		"Slurm: this would be node 2 of only 2":            srunTask.and("SLURM_NODEID=2"),
		"SLURM_HET_SIZE is \"-1\"":                         hetJob.and("SLURM_HET_SIZE=-1"),
		"SLURM_JOB_NODELIST_HET_GROUP_2 is not set":        hetJob.and("SLURM_HET_SIZE=3"),
		"SLURM_RESTART_COUNT is \"many\"":                  srunTask.and("SLURM_RESTART_COUNT=many"),
		"SLURM_JOB_NODELIST is not set: pass it on to gol": batchJob.and("SLURM_JOB_NODELIST="),
	})
}
