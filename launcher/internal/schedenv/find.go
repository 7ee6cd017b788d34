package schedenv

// Find returns what the scheduler or launcher around this process has given it; nil if there is
// none that golaunch knows. An error says which variable is wrong, or why golaunch cannot run a job
// on the started processes, and what to do.
//
// A place may have a single node. It then needs no Head.
func Find(m Machine) (*Place, error) {
	for _, find := range finders {
		if p, err := find(m); p != nil || err != nil {
			return p, err
		}
	}
	return nil, nil
}

// finders begin with the innermost launcher, since a launcher's variables stay set in everything
// that it starts. mpirun runs in a job of Slurm or in a pod, never around them. Flux runs in an
// allocation of Slurm or LSF. A job of Slurm may run on nodes that are pods themselves. Kubeflow,
// Volcano and JobSet make the Jobs that Kubernetes numbers. jsrun comes before Open MPI because it
// sets the variables of both.
var finders = []func(Machine) (*Place, error){
	jsrun, openMPI, hydra, pals,
	flux,
	slurm, pbs, lsf,
	batch, sageMaker,
	kubeflow, master, volcano, leaderWorkerSet, indexedJob,
}
