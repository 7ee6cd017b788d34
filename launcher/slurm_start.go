package launcher

import (
	"bytes"
	"context"
	"encoding/json"
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
	"github.com/golaunch/golaunch/internal/host/lazyregexp"
	"github.com/golaunch/golaunch/internal/process/internalverbs"
)

// bySlurm runs a job on the nodes of a Slurm allocation, from its batch script or from under salloc: one srun starts an agent on
// each.
func (h *here) bySlurm(ctx context.Context) (Result, error) {
	if h.job.Resources.GPU && h.job.place.Groups == 0 {
		out, _ := slurmJob(ctx) // without its word srun decides
		h.held = slurmGPUs(out)
	}
	return h.remotely(ctx, func(ctx context.Context, e enlistment) error {
		order, err := json.Marshal(e)
		if err != nil {
			return err
		}
		self, err := h.job.golaunch()
		if err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, "srun", append(h.srunFlags(), self, internalverbs.Node)...)
		cmd.Env, cmd.Stdin = slices.DeleteFunc(helper.Env(), narrows), bytes.NewReader(order)
		if h.job.place.Groups > 0 { // standard input reaches only the first part of a heterogeneous job
			cmd.Env, cmd.Stdin = append(cmd.Env, remoteVar+"="+string(order)), nil
		}
		// The agents end by themselves when the job has; after that srun need not be asked twice.
		cmd.Cancel = func() error {
			time.AfterFunc(endLimit, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
			return nil
		}
		cmd.WaitDelay = 2 * endLimit
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // ^C on the terminal is the coordinator's to hear
		var output *errgroup.Group
		if output, err = h.relay(cmd); err == nil {
			err = cmd.Start()
		}
		if err != nil {
			return fmt.Errorf("%w: %w; it wants Slurm's commands in PATH, or --scheduler none", errUnstarted, err)
		}
		if err := errors.Join(output.Wait(), cmd.Wait()); err != nil {
			return fmt.Errorf("%w: srun ended: %w", errUnstarted, err)
		}
		return nil
	})
}

// srunFlags ask for one task on each node of the allocation, with all of the node's CPUs and of its GPUs that the job has, that goes
// on when others fail.
func (h *here) srunFlags() []string {
	p := h.job.place
	flags := []string{
		"--ntasks-per-node=1", "--cpu-bind=none", "--mpi=none", "--wait=0", "--no-kill", "--unbuffered", "--job-name=golaunch",
		"--quit-on-interrupt", "--kill-on-bad-exit=" + strconv.Itoa(h.mustAllCome()),
	}
	if list, ok := os.LookupEnv("SLURM_EXPORT_ENV"); ok && !strings.HasPrefix(list, "ALL") { // sbatch --export=NONE
		flags = append(flags, "--export="+strings.TrimPrefix(strings.Trim(list, ",")+","+remoteVar, "NONE,"))
	}
	if p.Groups > 0 {
		return append(flags, fmt.Sprintf("--het-group=0-%d", p.Groups-1))
	}
	if h.held > 0 {
		flags = append(flags, "--gpus="+strconv.Itoa(h.held))
	}
	return append(flags, "--nodes="+strconv.Itoa(p.Nodes), "--ntasks="+strconv.Itoa(p.Nodes))
}

// slurmGPUs returns how many GPUs a job holds that requested them for each task (--gpus-per-task,
// --ntasks-per-gpu): a step that does not ask for all of them gets those of its own tasks. It
// returns 0 for any other job.
func slurmGPUs(shown []byte) (held int) {
	gres := jobGRES.Get().FindSubmatch(shown)
	if gres == nil || !byTask.Get().Match(shown) {
		return 0
	}
	for part := range strings.SplitSeq(string(gres[1]), ",") { // gpu:8, gpu:a100:8
		words := strings.Split(part, ":")
		if n, err := strconv.Atoi(words[len(words)-1]); err == nil && words[0] == "gpu" {
			held += n
		}
	}
	return held
}

// holdsMore records how many GPUs the job holds if this task of a step may have been given those of
// one task alone.
func (h *here) holdsMore(ctx context.Context) {
	p := h.job.place
	if !h.job.reached() || !h.job.Resources.GPU || os.Getenv("SLURM_GPUS_PER_TASK")+os.Getenv("SLURM_TRES_PER_TASK") == "" ||
		os.Getenv("SLURM_STEP_NUM_TASKS") != strconv.Itoa(p.Nodes) {
		return
	}
	out, err := slurmJob(ctx)
	if nodes := numNodes.Get().FindSubmatch(out); err == nil && nodes != nil && string(nodes[1]) == strconv.Itoa(p.Nodes) {
		h.held = slurmGPUs(out)
	}
}

// narrows says that a variable, which sbatch or salloc has set for the steps of a job, would leave a task less than its whole node.
func narrows(variable string) bool {
	name, _, _ := strings.Cut(variable, "=")
	return slices.Contains([]string{
		"SLURM_GPUS_PER_TASK", "SLURM_TRES_PER_TASK", "SLURM_NTASKS_PER_GPU", "SLURM_GPU_BIND", "SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK", "SLURM_CPU_BIND",
		"SLURM_NTASKS_PER_NODE", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_DISTRIBUTION",
	}, name)
}

// mustAllCome is 1 when an agent that cannot start makes the job impossible.
func (h *here) mustAllCome() int {
	if h.job.Resources.MinNodes == h.job.place.Nodes {
		return 1
	}
	return 0
}

// slurmGives asks the controller whether the job has GPUs. salloc does not say so to what it runs on the machine of the user.
func slurmGives(ctx context.Context) (bool, error) {
	out, err := slurmJob(ctx)
	if err != nil {
		return false, fmt.Errorf("cannot ask Slurm whether the job has GPUs (scontrol show job: %w); give --gpus-per-node or --procs-per-node", err)
	}
	return gpuGRES.Get().Match(out), nil
}

var gpuGRES = lazyregexp.New(`\bTres\w*=\S*\bgpu\b|\bTRES=\S*gres/gpu\b|\bJOB_GRES=\S*\bgpu\b`)

// slurmAddr is where the controller has a node; empty if it does not say, or only repeats the name.
func slurmAddr(ctx context.Context, node string) string {
	out, err := slurmShow(ctx, "node", node)
	if match := nodeAddr.Get().FindSubmatch(out); err == nil && match != nil && string(match[1]) != node {
		return string(match[1])
	}
	return ""
}

// slurmJob is what the controller says of the job.
func slurmJob(ctx context.Context) ([]byte, error) {
	return slurmShow(ctx, "job", os.Getenv("SLURM_JOB_ID"))
}

// slurmShow is what the controller says. What Slurm sends to all processes of a step ends scontrol too, which is then asked again.
func slurmShow(ctx context.Context, what, name string) (out []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, resolveLimit)
	defer cancel()
	for range 3 {
		cmd := exec.CommandContext(ctx, "scontrol", "--details", "--oneliner", "show", what, name)
		cmd.Env = helper.Env()
		out, err = cmd.Output()
		if killed, ok := errors.AsType[*exec.ExitError](err); !ok || killed.Exited() {
			break
		}
	}
	return out, err
}

var (
	byTask    = lazyregexp.New(`\bTresPerTask=\S*\bgpu\b|\bNtasksPerTRES=[1-9]`)
	jobGRES   = lazyregexp.New(`\bJOB_GRES=(\S+)`)
	numNodes  = lazyregexp.New(`\bNumNodes=([0-9]+)`)
	endTime   = lazyregexp.New(`\bEndTime=(\S+)`)
	nodeAddr  = lazyregexp.New(`\bNodeAddr=(\S+)`)
	cancelled = lazyregexp.New(`\bJobState=CANCELLED`)
)
