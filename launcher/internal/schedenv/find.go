package schedenv

import "slices"

// Find returns the place that a scheduler or another launcher has given to this process; nil if
// golaunch knows none that started it. An error says which variable is wrong, or why golaunch
// cannot run a job on the started processes, and what to do.
//
// A place with a single node needs no Head.
func Find(m Machine) (*Place, error) {
	for _, f := range finders {
		if slices.ContainsFunc(f.set, func(name string) bool { return !m.has(name) }) || f.unset != "" && m.has(f.unset) {
			continue
		}
		r := &reader{Machine: m, place: Place{By: f.by, Each: true}}
		f.read(r)
		return r.done()
	}
	return nil, nil
}

// finders are in the order of nesting, the innermost launcher first. A launcher's variables stay
// set in everything that it starts, so the variables of outer launchers say less about this
// process. mpirun runs in a job of Slurm or in a pod, never around them. Flux runs in an allocation
// of Slurm or LSF. A job of Slurm may run on nodes that are pods themselves. The Indexed Jobs of
// Kubernetes come last, because Kubeflow, Volcano and JobSet create such Jobs. jsrun comes before
// Open MPI because it sets the variables of both.
//
// A finder reads a place if all variables in set are set, and unset is not. It may change Each,
// which is true at first: the launcher started this command on every node.
var finders = []struct {
	by    string
	read  func(*reader)
	set   []string
	unset string
}{
	{by: "jsrun", read: (*reader).jsrun, set: []string{"JSM_NAMESPACE_RANK"}},
	{by: "Open MPI", read: (*reader).openMPI, set: []string{"OMPI_COMM_WORLD_RANK"}},
	{by: "MPI's hydra", read: (*reader).hydra, set: []string{"PMI_RANK", "MPI_LOCALNRANKS"}},
	{by: "HPE's PALS", read: (*reader).pals, set: []string{"PALS_RANKID"}},
	{by: "Flux", read: (*reader).flux, set: []string{"FLUX_JOB_ID", "FLUX_TASK_RANK"}},
	{by: "Slurm", read: (*reader).slurm, set: []string{"SLURM_JOB_ID"}},
	{by: "PBS", read: (*reader).pbs, set: []string{"PBS_JOBID"}},
	{by: "LSF", read: (*reader).lsf, set: []string{"LSB_JOBID"}},
	{by: "AWS Batch", read: (*reader).batch, set: []string{"AWS_BATCH_JOB_NODE_INDEX"}},
	{by: "SageMaker", read: (*reader).sageMaker, set: []string{"TRAINING_JOB_ARN"}},
	{by: "SageMaker", read: (*reader).sageMaker, set: []string{"SM_RESOURCE_CONFIG"}},
	{by: "Kubeflow", read: (*reader).kubeflow, set: []string{"PET_NNODES"}},
	{
		by: "Kubernetes (MASTER_ADDR)", read: (*reader).master,
		set: []string{"KUBERNETES_SERVICE_HOST", "MASTER_ADDR", "RANK", "WORLD_SIZE"}, unset: "LOCAL_RANK",
	},
	{by: "Volcano", read: (*reader).volcano, set: []string{"VC_TASK_INDEX"}},
	{by: "Volcano", read: (*reader).volcano, set: []string{"VK_TASK_INDEX"}},
	{by: "Kubernetes (LeaderWorkerSet)", read: (*reader).leaderWorkerSet, set: []string{"LWS_LEADER_ADDRESS"}},
	{by: "Kubernetes (Indexed Job)", read: (*reader).indexedJob, set: []string{"JOB_COMPLETION_INDEX"}},
}
