package where

import (
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"

	"github.com/golaunch/golaunch/internal/hostlist"
)

// slurm reads what Slurm tells a task of a step (srun(1), OUTPUT ENVIRONMENT VARIABLES) or who holds an allocation (sbatch(1),
// salloc(1)). A step has one task on each node; without one this process has to start it.
func slurm(m Machine) (*Place, error) {
	id, ok := m.Env("SLURM_JOB_ID")
	if !ok {
		return nil, nil
	}
	v := slurmVars{m: m, p: &Place{By: "Slurm", Job: id, Sources: []string{"SLURM_JOB_ID"}}}
	if array, ok := v.text("SLURM_ARRAY_JOB_ID"); ok {
		task, _ := v.text("SLURM_ARRAY_TASK_ID")
		v.p.Job = array + "_" + task
	}
	if restarts, ok := v.text("SLURM_RESTART_COUNT"); ok {
		v.number("SLURM_RESTART_COUNT", restarts, &v.p.Restarts)
	}
	v.p.Name, _ = v.text("SLURMD_NODENAME")
	v.gpus()
	if v.inStep() {
		v.step()
	} else {
		v.allocation()
	}
	if v.err != nil {
		return nil, v.err
	}
	v.p.Nodes, v.p.Head = len(v.p.Names), v.p.Names[0]
	return v.p, nil
}

// slurmVars reads variables into a place. The first error counts.
type slurmVars struct {
	m   Machine
	p   *Place
	err error
}

func (v *slurmVars) text(name string) (string, bool) {
	value, ok := v.m.Env(name)
	if ok {
		v.p.Sources = append(v.p.Sources, name)
	}
	return value, ok
}

func (v *slurmVars) fail(format string, args ...any) {
	if v.err == nil {
		v.err = fmt.Errorf(format, args...)
	}
}

func (v *slurmVars) number(name, text string, to *int) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		v.fail("Slurm's %s is %q, which is no number; --scheduler none ignores Slurm", name, text)
	}
	*to = n
}

// nodes reads a list of nodes.
func (v *slurmVars) nodes(name string) []string {
	list, ok := v.text(name)
	if !ok {
		v.fail("Slurm's %s is not set: run golaunch within sbatch, salloc or srun, or ignore Slurm with --scheduler none", name)
		return nil
	}
	names, err := hostlist.Expand(list)
	if err != nil {
		v.fail("Slurm's %s: %w", name, err)
	}
	return names
}

// gpus are counted by Slurm as the process sees them: from 0 where a cgroup hides the others (CUDA_VISIBLE_DEVICES), which are also
// the only ones that can be told apart.
func (v *slurmVars) gpus() {
	for _, name := range []string{"CUDA_VISIBLE_DEVICES", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS"} {
		list, ok := v.m.Env(name)
		if !ok || list == "" {
			continue
		}
		v.p.Sources = append(v.p.Sources, name)
		v.p.GPUs = strings.Split(list, ",")
		break
	}
	for _, name := range []string{"SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE", "SLURM_GPUS", "SLURM_GPUS_PER_TASK"} {
		if n, ok := v.m.Env(name); ok && n != "" && n != "0" {
			v.p.PerNode = "gpu"
			v.p.Sources = append(v.p.Sources, name)
			return
		}
	}
}

// step is for a task of srun.
func (v *slurmVars) step() {
	step, _ := v.text("SLURM_STEP_ID")
	v.p.Each, v.p.Job = true, v.p.Job+"."+step
	v.p.Names = v.nodes("SLURM_STEP_NODELIST")
	tasks, _ := v.text("SLURM_STEP_TASKS_PER_NODE")
	if !oneEach(tasks) {
		v.fail("this Slurm step has several tasks on a node (SLURM_STEP_TASKS_PER_NODE is %s), and golaunch starts the ranks itself: "+
			"use srun --ntasks-per-node=1 golaunch ...", tasks)
	}
	node, _ := v.text("SLURM_NODEID")
	v.number("SLURM_NODEID", node, &v.p.Node)
	if v.err == nil && v.p.Node >= len(v.p.Names) {
		v.fail("Slurm's SLURM_NODEID is %d in a step of %d nodes; --scheduler none ignores Slurm", v.p.Node, len(v.p.Names))
	}
	v.p.Topology, _ = v.text("SLURM_TOPOLOGY_ADDR")
}

// allocation is for a batch script, and for what runs under salloc.
func (v *slurmVars) allocation() {
	v.p.Names = v.nodes("SLURM_JOB_NODELIST")
	if size, ok := v.text("SLURM_HET_SIZE"); ok {
		n := 0
		v.number("SLURM_HET_SIZE", size, &n)
		v.p.Names = nil
		for i := 0; i < n && v.err == nil; i++ {
			v.p.Names = append(v.p.Names, v.nodes("SLURM_JOB_NODELIST_HET_GROUP_"+strconv.Itoa(i))...)
		}
		v.p.Groups = n
	}
	if len(v.p.Names) == 0 {
		v.fail("this Slurm job has no nodes; --scheduler none ignores Slurm")
	}
	if n, ok := v.m.Env("SLURM_NTASKS_PER_NODE"); ok && v.p.PerNode == "" {
		v.p.PerNode = n
		v.p.Sources = append(v.p.Sources, "SLURM_NTASKS_PER_NODE")
	}
}

// oneEach says that a list of tasks per node, such as "2(x3),1", has one task on each.
func oneEach(tasks string) bool {
	for part := range strings.SplitSeq(tasks, ",") {
		if n, _, _ := strings.Cut(part, "("); n != "1" {
			return false
		}
	}
	return true
}

// stepd is how slurmstepd names itself, as one can see: [123.0] a step, [123.batch], [123.interactive].
var stepd = regexp.MustCompile(`^slurmstepd: \[[0-9]+\.([0-9a-z]+)`)

// inStep says whether this process is a task of a numbered step. A batch job that was submitted from within a step inherits that
// step's variables, so the nearest slurmstepd above this process is asked first, where it can be seen.
func (v *slurmVars) inStep() bool {
	pid := "self"
	for range maxAncestors {
		if title, err := fs.ReadFile(v.m.FS, "proc/"+pid+"/cmdline"); err == nil {
			if match := stepd.FindSubmatch(title); match != nil {
				return match[1][0] >= '0' && match[1][0] <= '9'
			}
		}
		status, err := fs.ReadFile(v.m.FS, "proc/"+pid+"/status")
		match := parent.FindSubmatch(status)
		if err != nil || match == nil {
			break
		}
		pid = string(match[1])
	}
	_, ok := v.m.Env("SLURM_STEP_ID")
	return ok
}

// maxAncestors bounds the way up.
const maxAncestors = 64

var parent = regexp.MustCompile(`(?m)^PPid:\s*([1-9][0-9]*)$`)
