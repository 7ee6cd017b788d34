package slurm

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Step is a job step with one task on each node of the allocation.
type Step struct {
	Nodes int
	// Groups is the number of components of a heterogeneous job; 0 for any other.
	Groups int
	// GPUs is how many GPUs to ask for; 0 leaves it to srun.
	GPUs int
	// KillOnBadExit ends the step when one task fails.
	KillOnBadExit bool
	// Variable must reach the tasks even if the job exports no environment.
	Variable string
}

// Flags give each task all CPUs of its node and all GPUs that the job has there.
func (s Step) Flags() []string {
	kill := "0"
	if s.KillOnBadExit {
		kill = "1"
	}
	flags := []string{
		"--ntasks-per-node=1", "--cpu-bind=none", "--mpi=none", "--wait=0", "--no-kill", "--unbuffered",
		"--job-name=golaunch", "--quit-on-interrupt", "--kill-on-bad-exit=" + kill,
	}
	if list, ok := os.LookupEnv("SLURM_EXPORT_ENV"); ok && !strings.HasPrefix(list, "ALL") { // sbatch --export=NONE
		flags = append(flags, "--export="+strings.TrimPrefix(strings.Trim(list, ",")+","+s.Variable, "NONE,"))
	}
	if s.Groups > 0 {
		return append(flags, fmt.Sprintf("--het-group=0-%d", s.Groups-1))
	}
	if s.GPUs > 0 {
		flags = append(flags, "--gpus="+strconv.Itoa(s.GPUs))
	}
	return append(flags, "--nodes="+strconv.Itoa(s.Nodes), "--ntasks="+strconv.Itoa(s.Nodes))
}

// Narrows reports whether a variable, which sbatch or salloc sets for the steps of a job, would
// leave a task less than its whole node.
func Narrows(variable string) bool {
	name, _, _ := strings.Cut(variable, "=")
	return slices.Contains([]string{
		"SLURM_GPUS_PER_TASK", "SLURM_TRES_PER_TASK", "SLURM_NTASKS_PER_GPU", "SLURM_GPU_BIND", "SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK",
		"SLURM_CPU_BIND", "SLURM_NTASKS_PER_NODE", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_DISTRIBUTION",
	}, name)
}
