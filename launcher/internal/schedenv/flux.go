package schedenv

// flux reads the variables that Flux sets for each task (flux-environment(7)). The command
// flux-hostlist(1) lists the hosts; the first host has task 0.
func (r *reader) flux() {
	r.place.Job = jobName("flux", r.must("FLUX_JOB_ID"))
	task, nodes, tasks := r.number("FLUX_TASK_RANK", 0), r.number("FLUX_JOB_NNODES", 1), r.number("FLUX_JOB_SIZE", 1)
	r.place.Node, r.place.Nodes = task, max(nodes, tasks)
	if tasks > nodes {
		r.several(task, "FLUX_JOB_SIZE is %d on %d nodes: start one golaunch per node (flux run --nodes=%[2]d --ntasks=%[2]d), or --nodes 1 for a job of each",
			tasks, nodes)
	} else if nodes > 1 {
		r.place.Ask = []string{"flux", "hostlist", "--nth=0", "local"}
	}
}
