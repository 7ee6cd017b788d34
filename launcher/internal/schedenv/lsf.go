package schedenv

import (
	"slices"
	"strings"
)

// lsf reads the variables that LSF sets for a job
// (https://www.ibm.com/docs/en/spectrum-lsf/10.1.0?topic=variables-environment-set-job-execution).
// LSF runs the job's command on the first host only. Processes that blaunch starts have a task ID.
func (r *reader) lsf() {
	r.place.Job = r.lsfJob()
	r.place.Each = r.text("LSF_PM_TASKID") != ""
	r.among(r.lsfHosts())
}

// jsrun reads the variables of jsrun, the job step manager of CORAL systems. The job's first host
// is the launch node, which no step uses (Lightning's LSFEnvironment skips it as well).
func (r *reader) jsrun() {
	r.place.Job = r.lsfJob()
	r.ranks("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_SIZE", "jsrun --rs_per_host 1 --tasks_per_rs 1")
	if hosts, _ := r.lsfHosts(); len(hosts) > 0 {
		r.inOrder(hosts[1:])
	}
}

// lsfJob returns the job's ID, with the index if the job is part of a job array. LSF sets the index
// 0 for other jobs.
func (r *reader) lsfJob() string {
	index := r.text("LSB_JOBINDEX")
	if index == "0" {
		index = ""
	}
	return jobName("lsf", r.must("LSB_JOBID"), index)
}

// lsfHosts returns the hosts and the variable from which it has them. LSB_MCPU_HOSTS is "host1
// slots1 host2 slots2 ...". The file that the other variable names has a line for each slot.
func (r *reader) lsfHosts() ([]string, string) {
	if hosts, err := r.hosts(r.text("LSB_DJOB_HOSTFILE")); err == nil && len(hosts) > 0 {
		return hosts, "LSB_DJOB_HOSTFILE"
	}
	var hosts []string
	for pair := range slices.Chunk(strings.Fields(r.must("LSB_MCPU_HOSTS")), 2) {
		hosts = append(hosts, pair[0])
	}
	return once(hosts), "LSB_MCPU_HOSTS"
}
