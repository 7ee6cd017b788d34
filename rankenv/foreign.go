package rankenv

import "strings"

// foreignVars are the variables by which other launchers identify a process. Under golaunch they
// are wrong: an MPI-aware library would join a world that does not exist, and Lightning or
// DeepSpeed take their rank from the first such variable that they find. Slurm's variables about
// the whole job (SLURM_JOB_ID, SLURM_JOB_NODELIST, ...) are still true and stay. PBS_JOBID, LSB_*,
// SM_* and the like stay too. They do not mislead Lightning, whose detect() needs SLURM_NTASKS,
// JSM_NAMESPACE_* or an MPI world, which a rank does not have. RANK, WORLD_SIZE and NODE_RANK,
// which Kubeflow and Volcano set for a node, are not listed, because the rank's own values replace
// them.
var foreignVars = []struct{ why, names string }{
	{"names a process of MPI's process manager", "PMI_* PMI2_* PMIX_* HYDRA_* HYDI_* MPI_LOCALRANKID MPI_LOCALNRANKS MPIRUN_*"},
	{"names a process of Open MPI's mpirun", "OMPI_* PRTE_*"},
	{"names a process of MVAPICH's mpirun", "MV2_COMM_WORLD_* MVP_COMM_WORLD_* MPISPAWN_*"},
	{"names a process of HPE's PALS", "PALS_*"},
	{"names a process of LSF's jsrun", "JSM_NAMESPACE_*"},
	{"names the task of LSF's blaunch that golaunch is", "LSF_PM_*"},
	{"names the task of pbsdsh that golaunch is", "PBS_TASKNUM PBS_NODENUM PBS_VNODENUM"},
	{"names the Flux task that golaunch is", "FLUX_TASK_* FLUX_JOB_SIZE FLUX_PMI_LIBRARY_PATH"},
	{"names the srun task that golaunch is", "SLURM_PROCID SLURM_LOCALID SLURM_NODEID SLURM_TASK_PID SLURM_GTIDS " +
		"SLURM_NTASKS SLURM_NTASKS_PER_* SLURM_NPROCS SLURM_TASKS_PER_NODE SLURM_DISTRIBUTION"},
	{"names the srun step that golaunch is in", "SLURM_STEP_* SLURM_STEPID SLURM_STEPMGR SLURM_SRUN_COMM_* " +
		"SLURM_LAUNCH_NODE_IPADDR SLURM_MPI_TYPE SLURM_PMIX_* SLURM_PMI_* SLURM_CPU_BIND*"},
	{"speaks to a torchrun on this node", "PET_*"},
	{"is the timer of a torchrun around golaunch", "TORCHELASTIC_TIMER_FILE"},
	{"speaks to golaunch itself", "GOLAUNCH_*"},
}

var strangerWhy, strangerPrefixes = compile()

type prefix struct{ text, why string }

func compile() (exact map[string]string, prefixes []prefix) {
	exact = map[string]string{}
	for _, s := range foreignVars {
		for name := range strings.FieldsSeq(s.names) {
			if text, ok := strings.CutSuffix(name, "*"); ok {
				prefixes = append(prefixes, prefix{text, s.why})
			} else {
				exact[name] = s.why
			}
		}
	}
	return exact, prefixes
}

// foreign returns the reason why an inherited variable would mislead a rank; "" if it would not.
func foreign(name string) string {
	for _, p := range strangerPrefixes {
		if strings.HasPrefix(name, p.text) {
			return p.why
		}
	}
	return strangerWhy[name]
}

// secret reports whether a variable holds golaunch's token, the path of its file, or an agent's
// enlistment, which contains the token.
func secret(name string) bool {
	return strings.HasPrefix(name, "GOLAUNCH_TOKEN") || name == "GOLAUNCH_ENLISTMENT"
}
