package schedenv_test

import (
	"strings"
	"testing"

	"github.com/golaunch/golaunch/launcher/internal/schedenv"
)

// fluxTask has the variables of flux-environment(7).
var fluxTask = given{host: "corona1", env: `FLUX_JOB_ID=ƒuAsjAo
	FLUX_JOB_SIZE=1
	FLUX_JOB_NNODES=1
	FLUX_TASK_RANK=0
	FLUX_TASK_LOCAL_ID=0
	FLUX_URI=local:///run/flux/local
	PMI_RANK=0
	PMI_SIZE=1`}

func TestFlux(t *testing.T) {
	one := schedenv.Place{By: "Flux", Job: "flux-_uAsjAo", Nodes: 1, Each: true}
	third := one
	third.Nodes, third.Node, third.Ask = 4, 2, []string{"flux", "hostlist", "--nth=0", "local"}
	finds(t, map[string]found{
		"one node": {fluxTask, one},
		"third":    {fluxTask.and("FLUX_JOB_SIZE=4", "FLUX_JOB_NNODES=4", "FLUX_TASK_RANK=2"), third},
	})
	refuses(t, map[string]given{
		"start one golaunch per node (flux run --nodes=2 --ntasks=2)": fluxTask.and("FLUX_JOB_SIZE=8", "FLUX_JOB_NNODES=2"),
		"FLUX_JOB_NNODES is not set":                                  fluxTask.and("FLUX_JOB_NNODES="),
	})
}

// pbsJob is a job script with the variables that https://www.open-mpi.org/community/lists/users/
// and pbsdsh(1B) show.
var pbsJob = given{
	host: "n1", env: `PBS_JOBID=1234[7].server.cluster
	PBS_ENVIRONMENT=PBS_BATCH
	PBS_NODEFILE=/var/spool/pbs/aux/1234
	PBS_NODENUM=0
	PBS_TASKNUM=1
	PBS_JOBCOOKIE=9EEF5DF75FA705A241FEF66EDFE01C5B`,
	files: map[string]string{"var/spool/pbs/aux/1234": "n1.cluster\nn1.cluster\nn2.cluster\nn2.cluster\n"},
}

func TestPBS(t *testing.T) {
	script := schedenv.Place{
		By: "PBS", Job: "pbs-1234_7_.server.cluster", Nodes: 2, Names: []string{"n1.cluster", "n2.cluster"},
		Name: "n1.cluster", Head: "n1.cluster",
	}
	first := script
	first.Each = true
	second := first
	second.Node, second.Name = 1, "n2.cluster"
	one := pbsJob.on("container")
	one.files = map[string]string{"var/spool/pbs/aux/1234": "n1\n"}
	none, huge := pbsJob, pbsJob
	none.files = map[string]string{"var/spool/pbs/aux/1234": "\n"}
	huge.files = map[string]string{"var/spool/pbs/aux/1234": strings.Repeat("\n", 16<<20+1)}
	alone := schedenv.Place{By: "PBS", Job: script.Job, Nodes: 1, Names: []string{"n1"}, Name: "n1", Head: "n1"}
	finds(t, map[string]found{
		"one node, by another name":   {one, alone},
		"the job script":              {pbsJob, script},
		"pbsdsh on the script's host": {pbsJob.and("PBS_TASKNUM=2"), first},
		"pbsdsh on another host":      {pbsJob.on("n2").and("PBS_NODENUM=1", "PBS_TASKNUM=3"), second},
	})
	refuses(t, map[string]given{
		"PBS_NODEFILE names no host":               none,
		"has more than 16 MiB":                     huge,
		"PBS_NODEFILE is not set":                  pbsJob.and("PBS_NODEFILE="),
		"read PBS_NODEFILE: open var/lost":         pbsJob.and("PBS_NODEFILE=/var/lost"),
		"PBS_NODEFILE does not name this host, n3": pbsJob.on("n3"),
		"PBS_NODEFILE does not name this host, :":  pbsJob.on(""),
	})
}

// lsfJob has the variables of
// https://www.ibm.com/docs/en/spectrum-lsf/10.1.0?topic=variables-environment-set-job-execution.
var lsfJob = given{
	host: "hostA", env: `LSB_JOBID=5078
	LSB_JOBINDEX=0
	LSB_JOBNAME=train
	LSB_MCPU_HOSTS=hostA 2 hostB 2
	LSB_DJOB_NUMPROC=4
	LSB_DJOB_HOSTFILE=/home/me/.lsbatch/1.5078.hostfile`,
	files: map[string]string{"home/me/.lsbatch/1.5078.hostfile": "hostA\nhostA\nhostB\nhostB\n"},
}

func TestLSF(t *testing.T) {
	script := schedenv.Place{By: "LSF", Job: "lsf-5078", Nodes: 2, Names: []string{"hostA", "hostB"}, Name: "hostA", Head: "hostA"}
	task := script
	task.Job, task.Node, task.Name, task.Each = "lsf-5078-3", 1, "hostB", true
	finds(t, map[string]found{
		"the job's command":      {lsfJob, script},
		"without the host file":  {lsfJob.and("LSB_DJOB_HOSTFILE=/gone"), script},
		"blaunch in a job array": {lsfJob.on("hostB").and("LSF_PM_TASKID=2", "LSB_JOBINDEX=3"), task},
	})
	refuses(t, map[string]given{
		"LSB_MCPU_HOSTS is not set":              lsfJob.and("LSB_DJOB_HOSTFILE=", "LSB_MCPU_HOSTS="),
		"LSB_MCPU_HOSTS does not name this host": lsfJob.on("login1").and("LSB_DJOB_HOSTFILE="),
	})
}

// jsrunTask has the variables of Lightning's LSFEnvironment; jsrun sets Open MPI's variables as
// well.
var jsrunTask = given{
	host: "h36n05", env: `LSB_JOBID=1234
	LSB_DJOB_HOSTFILE=/tmp/hosts
	JSM_NAMESPACE_RANK=1
	JSM_NAMESPACE_SIZE=2
	JSM_NAMESPACE_LOCAL_RANK=0
	JSM_NAMESPACE_LOCAL_SIZE=1
	OMPI_COMM_WORLD_RANK=1
	OMPI_COMM_WORLD_SIZE=2
	OMPI_COMM_WORLD_LOCAL_SIZE=1`,
	files: map[string]string{"tmp/hosts": "batch1\nh36n04\nh36n04\nh36n05\nh36n05\n"},
}

func TestJsrun(t *testing.T) {
	finds(t, map[string]found{"two nodes": {jsrunTask, schedenv.Place{
		By: "jsrun", Job: "lsf-1234", Nodes: 2, Node: 1, Each: true,
		Names: []string{"h36n04", "h36n05"}, Name: "h36n05", Head: "h36n04",
	}}})
	refuses(t, map[string]given{
		"jsrun: nothing says where node 0 is":    jsrunTask.and("JSM_NAMESPACE_SIZE=3"),
		"jsrun --rs_per_host 1 --tasks_per_rs 1": jsrunTask.and("JSM_NAMESPACE_LOCAL_SIZE=6"),
	})
}
