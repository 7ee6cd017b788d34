package schedenv

import (
	"io/fs"
	"strconv"
	"strings"

	"github.com/golaunch/golaunch/internal/host/hostlist"
	"github.com/golaunch/golaunch/internal/host/lazyregexp"
)

// slurm reads the variables that Slurm sets for a task of a step (srun(1), OUTPUT ENVIRONMENT
// VARIABLES), or for a process in an allocation (sbatch(1), salloc(1)). A step should have one task
// on each node. A process that is in no step must start one.
func (r *reader) slurm() {
	p := &r.place
	p.Job, p.Name = jobName(r.text("SLURM_JOB_ID")), r.text("SLURMD_NODENAME")
	if r.has("SLURM_ARRAY_JOB_ID") {
		p.Job = jobName(r.text("SLURM_ARRAY_JOB_ID") + "_" + r.text("SLURM_ARRAY_TASK_ID"))
	}
	if r.has("SLURM_RESTART_COUNT") {
		p.Restarts = r.number("SLURM_RESTART_COUNT", 0)
	}
	r.slurmGPUs()
	if r.inStep() {
		r.slurmStep()
	} else {
		r.slurmAllocation()
	}
	if p.Nodes = len(p.Names); p.Nodes > 0 {
		p.Head = p.Names[0]
	}
}

// slurmNodes reads a list of nodes.
func (r *reader) slurmNodes(name string) []string {
	list := r.must(name)
	if list == "" {
		return nil
	}
	names, err := hostlist.Expand(list)
	if err != nil {
		r.fail("%s: %v", name, err)
	}
	return names
}

// slurmGPUs reads the GPUs of this process, with the numbers by which the process sees them
// (CUDA_VISIBLE_DEVICES). If a cgroup hides other GPUs, these numbers begin at 0.
func (r *reader) slurmGPUs() {
	for _, name := range []string{"CUDA_VISIBLE_DEVICES", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS"} {
		if list := r.text(name); list != "" {
			r.place.GPUs = strings.Split(list, ",")
			break
		}
	}
	for _, name := range []string{"SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE", "SLURM_GPUS", "SLURM_GPUS_PER_TASK"} {
		if n := r.text(name); n != "" && n != "0" {
			r.place.PerNode = "gpu"
			return
		}
	}
}

// slurmStep reads the variables of a task that srun started.
func (r *reader) slurmStep() {
	p := &r.place
	p.Job += "." + r.must("SLURM_STEP_ID")
	p.Names, p.Node = r.slurmNodes("SLURM_STEP_NODELIST"), r.number("SLURM_NODEID", 0)
	if tasks := r.must("SLURM_STEP_TASKS_PER_NODE"); !oneEach(tasks) {
		r.several(r.number("SLURM_PROCID", 0), "this step has several tasks on a node (SLURM_STEP_TASKS_PER_NODE is %s), and golaunch starts the ranks itself: "+
			"use srun --ntasks-per-node=1 golaunch ..., or --nodes 1 for a job of each task", tasks)
	}
	p.Topology = r.text("SLURM_TOPOLOGY_ADDR")
}

// slurmAllocation reads the variables of a batch script, or of a process under salloc.
func (r *reader) slurmAllocation() {
	p := &r.place
	p.Each = false
	if r.has("SLURM_HET_SIZE") {
		p.Groups = r.number("SLURM_HET_SIZE", 1)
		for i := 0; i < p.Groups && r.err == nil; i++ {
			p.Names = append(p.Names, r.slurmNodes("SLURM_JOB_NODELIST_HET_GROUP_"+strconv.Itoa(i))...)
		}
	} else {
		p.Names = r.slurmNodes("SLURM_JOB_NODELIST")
	}
	if p.PerNode == "" {
		p.PerNode = r.text("SLURM_NTASKS_PER_NODE")
	}
}

// oneEach reports whether a list of tasks per node, such as "2(x3),1", has one task on each node.
func oneEach(tasks string) bool {
	for part := range strings.SplitSeq(tasks, ",") {
		if n, _, _ := strings.Cut(part, "("); n != "1" {
			return false
		}
	}
	return true
}

// stepd matches the process title of slurmstepd: "slurmstepd: [123.0]" for a numbered step, or with
// [123.batch] or [123.interactive] for the others.
var stepd = lazyregexp.New(`^slurmstepd: \[[0-9]+\.([0-9a-z]+)`)

// inStep reports whether this process is a task of a numbered step. The variables are not enough,
// because a batch job that was submitted from a step inherits the variables of that step. So inStep
// first looks for the nearest slurmstepd among this process's ancestors that it can see.
func (r *reader) inStep() bool {
	pid := "self"
	for range maxAncestors {
		if title, err := fs.ReadFile(r.FS, "proc/"+pid+"/cmdline"); err == nil {
			if match := stepd.Get().FindSubmatch(title); match != nil {
				return match[1][0] >= '0' && match[1][0] <= '9'
			}
		}
		status, err := fs.ReadFile(r.FS, "proc/"+pid+"/status")
		match := parent.Get().FindSubmatch(status)
		if err != nil || match == nil {
			break
		}
		pid = string(match[1])
	}
	return r.has("SLURM_STEP_ID")
}

// maxAncestors bounds how many ancestors inStep looks at.
const maxAncestors = 64

var parent = lazyregexp.New(`(?m)^PPid:\s*([1-9][0-9]*)$`)
