package schedenv

// Find returns the place that a scheduler or another launcher has given to this process; nil if
// golaunch knows none that started it. An error says which variable is wrong, or why golaunch
// cannot run a job on the started processes, and what to do.
//
// A place with a single node needs no Head.
func Find(m Machine) (*Place, error) {
	for _, find := range finders {
		if p, err := find(m); p != nil || err != nil {
			return p, err
		}
	}
	return nil, nil
}

// finders are in the order of nesting, the innermost launcher first. A launcher's variables stay
// set in everything that it starts, so the variables of outer launchers say less about this
// process. mpirun runs in a job of Slurm or in a pod, never around them. Flux runs in an allocation
// of Slurm or LSF. A job of Slurm may run on nodes that are pods themselves. The Indexed Jobs of
// Kubernetes come last, because Kubeflow, Volcano and JobSet create such Jobs. jsrun comes before
// Open MPI because it sets the variables of both.
var finders = []func(Machine) (*Place, error){
	jsrun, openMPI, hydra, pals,
	flux,
	slurm, pbs, lsf,
	batch, sageMaker,
	kubeflow, master, volcano, leaderWorkerSet, indexedJob,
}
