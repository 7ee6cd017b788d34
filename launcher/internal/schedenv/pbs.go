package schedenv

// pbs reads the variables that PBS Professional, OpenPBS and Torque set (qsub(1B), pbsdsh(1B)). A
// job script is task 1 on the first host. Processes that pbsdsh starts have later numbers, or run
// on other hosts. Task numbers count slots, not hosts, so pbs finds the position of this host by
// its name.
func (r *reader) pbs() {
	r.place.Job = jobName("pbs", r.must("PBS_JOBID"))
	r.place.Each = r.has("PBS_NODENUM") && (r.text("PBS_NODENUM") != "0" || r.text("PBS_TASKNUM") != "1")
	hosts, err := r.hosts(r.must("PBS_NODEFILE"))
	if err != nil {
		r.fail("read PBS_NODEFILE: %v: run golaunch on the job's first host, or give --rendezvous HOST:PORT", err)
	}
	r.among(hosts, "PBS_NODEFILE")
}
