package schedenv

// Find says what the scheduler or launcher around this process has given it; nil if there is none
// that it knows. An error says which variable is wrong, or why golaunch cannot work with what was
// started, and what to do.
//
// A world of one node is a place too, and needs no Head.
func Find(m Machine) (*Place, error) {
	for _, find := range finders {
		if p, err := find(m); p != nil || err != nil {
			return p, err
		}
	}
	return nil, nil
}

// finders are asked from the innermost launcher out, since each leaves its variables to all that it
// starts: mpirun is started by a job of Slurm or in a pod, never around them; Flux runs in an
// allocation of Slurm or LSF; a job of Slurm may run on nodes that are pods themselves; and
// Kubeflow, Volcano and JobSet make the Jobs that Kubernetes numbers. jsrun comes before Open MPI
// because it sets the variables of both.
var finders = []func(Machine) (*Place, error){
	jsrun, openMPI, hydra, pals,
	flux,
	slurm, pbs, lsf,
	batch, sageMaker,
	kubeflow, master, volcano, leaderWorkerSet, indexedJob,
}
