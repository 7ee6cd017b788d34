package slurm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/golaunch/golaunch/internal/host/helper"
	"github.com/golaunch/golaunch/internal/process/internalverbs"
)

// Step is a job step with one task on each node of the allocation.
type Step struct {
	Nodes int
	// Groups is the number of components of a heterogeneous job; 0 for any other.
	Groups int
	// GPUs is how many GPUs to ask for; with 0, srun decides.
	GPUs int
	// KillOnBadExit ends the step when one task fails.
	KillOnBadExit bool
	// Relay shows the output of srun once it has started.
	Relay func(srun *exec.Cmd) (*errgroup.Group, error)
}

// endLimit is how long agents may take to end after the job, in which time they show the last
// output of their ranks.
const endLimit = 90 * time.Second

// Run starts an agent on each node, and waits for the agents to end. golaunch is the path of the
// program, and all agents get the enlistment. ctx must end when the job ends.
func (s Step) Run(ctx context.Context, golaunch string, enlistment []byte) error {
	cmd := exec.CommandContext(ctx, "srun", append(s.flags(), golaunch, internalverbs.Node)...)
	cmd.Env, cmd.Stdin = slices.DeleteFunc(helper.Env(), narrows), bytes.NewReader(enlistment)
	if s.Groups > 0 { // standard input reaches only the first component of a heterogeneous job
		cmd.Env, cmd.Stdin = append(cmd.Env, helper.Enlistment+"="+string(enlistment)), nil
	}
	// When ctx ends, do not kill srun at once: the agents end by themselves after the job, and then
	// srun ends.
	cmd.Cancel = func() error {
		time.AfterFunc(endLimit, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
		return nil
	}
	cmd.WaitDelay = 2 * endLimit
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a ^C on the terminal is for the coordinator
	output, err := s.Relay(cmd)
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return fmt.Errorf("cannot start golaunch on the nodes: %w; it wants Slurm's commands in PATH, or --scheduler none", err)
	}
	if err := errors.Join(output.Wait(), cmd.Wait()); err != nil {
		return fmt.Errorf("cannot start golaunch on the nodes: srun ended: %w", err)
	}
	return nil
}

// flags returns the flags that give each task all CPUs of its node, and all GPUs that the job has
// there.
func (s Step) flags() []string {
	kill := "0"
	if s.KillOnBadExit {
		kill = "1"
	}
	flags := []string{
		"--ntasks-per-node=1", "--cpu-bind=none", "--mpi=none", "--wait=0", "--no-kill", "--unbuffered",
		"--job-name=golaunch", "--quit-on-interrupt", "--kill-on-bad-exit=" + kill,
	}
	if list, ok := os.LookupEnv("SLURM_EXPORT_ENV"); ok && !strings.HasPrefix(list, "ALL") { // as after sbatch --export=NONE
		flags = append(flags, "--export="+strings.TrimPrefix(strings.Trim(list, ",")+","+helper.Enlistment, "NONE,"))
	}
	if s.Groups > 0 {
		return append(flags, fmt.Sprintf("--het-group=0-%d", s.Groups-1))
	}
	if s.GPUs > 0 {
		flags = append(flags, "--gpus="+strconv.Itoa(s.GPUs))
	}
	return append(flags, "--nodes="+strconv.Itoa(s.Nodes), "--ntasks="+strconv.Itoa(s.Nodes))
}

// narrows reports whether a variable would make srun give a task less than its whole node. sbatch
// and salloc set such variables for the steps of a job.
func narrows(variable string) bool {
	name, _, _ := strings.Cut(variable, "=")
	return slices.Contains([]string{
		"SLURM_GPUS_PER_TASK", "SLURM_TRES_PER_TASK", "SLURM_NTASKS_PER_GPU", "SLURM_GPU_BIND", "SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK",
		"SLURM_CPU_BIND", "SLURM_NTASKS_PER_NODE", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_DISTRIBUTION",
	}, name)
}
