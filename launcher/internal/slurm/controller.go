// Package slurm talks to Slurm: it asks the controller about a job, runs srun, and writes scripts
// for sbatch.
package slurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/golaunch/golaunch/internal/host/helper"
)

// askLimit bounds a question to the controller.
const askLimit = 10 * time.Second

// show returns scontrol's line of Key=value words about a job or node. A signal that Slurm sends to
// all processes of a step ends scontrol too. show then runs scontrol again.
func show(ctx context.Context, what, name string) (facts, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	var out []byte
	var err error
	for range 3 {
		cmd := exec.CommandContext(ctx, "scontrol", "--details", "--oneliner", "show", what, name)
		cmd.Env = helper.Env()
		out, err = cmd.Output()
		if killed, ok := errors.AsType[*exec.ExitError](err); !ok || killed.Exited() {
			break
		}
	}
	return facts(out), err
}

func showJob(ctx context.Context) (facts, error) {
	return show(ctx, "job", os.Getenv("SLURM_JOB_ID"))
}

// facts has words of the form Key=value. If several words have the same key, the first counts.
type facts string

func (f facts) value(key string) string {
	for word := range strings.FieldsSeq(string(f)) {
		if value, ok := strings.CutPrefix(word, key+"="); ok {
			return value
		}
	}
	return ""
}

// GivesGPUs asks the controller whether the job has GPUs. It must ask, because salloc does not tell
// this to a command that it runs on the user's own machine.
func GivesGPUs(ctx context.Context) (bool, error) {
	f, err := showJob(ctx)
	if err != nil {
		return false, fmt.Errorf("cannot ask Slurm whether the job has GPUs (scontrol show job: %w); give --gpus-per-node or --procs-per-node", err)
	}
	return f.haveGPUs(), nil
}

func (f facts) haveGPUs() bool {
	for word := range strings.FieldsSeq(string(f)) {
		key, value, _ := strings.Cut(word, "=")
		if (strings.HasPrefix(key, "Tres") || key == "TRES" || key == "JOB_GRES") && namesGPU(value) {
			return true
		}
	}
	return false
}

// namesGPU reports whether a list of resources, such as cpu=8,gres/gpu:a100=4, has the word gpu.
func namesGPU(resources string) bool {
	between := func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' }
	return slices.Contains(strings.FieldsFunc(resources, between), "gpu")
}

// GPUsPerTask returns how many GPUs the job holds if it requested them for each task
// (--gpus-per-task, --ntasks-per-gpu). A step of such a job must ask for all these GPUs, or it gets
// only the GPUs of its own tasks. GPUsPerTask returns 0 for other jobs, and when the controller
// does not answer.
func GPUsPerTask(ctx context.Context) int {
	f, _ := showJob(ctx)
	return f.gpusPerTask()
}

// GPUsOfStep returns [GPUsPerTask] in a step with one task on each of the job's nodes, and 0 in
// other steps.
func GPUsOfStep(ctx context.Context, nodes int) int {
	perTask := os.Getenv("SLURM_GPUS_PER_TASK") + os.Getenv("SLURM_TRES_PER_TASK")
	if perTask == "" || os.Getenv("SLURM_STEP_NUM_TASKS") != strconv.Itoa(nodes) {
		return 0
	}
	f, err := showJob(ctx)
	if err != nil || f.value("NumNodes") != strconv.Itoa(nodes) {
		return 0
	}
	return f.gpusPerTask()
}

func (f facts) gpusPerTask() (held int) {
	perGPU := f.value("NtasksPerTRES")
	if !namesGPU(f.value("TresPerTask")) && (perGPU == "" || perGPU[0] < '1' || perGPU[0] > '9') {
		return 0
	}
	for part := range strings.SplitSeq(f.value("JOB_GRES"), ",") { // such as gpu:8 or gpu:a100:8
		words := strings.Split(part, ":")
		if n, err := strconv.Atoi(words[len(words)-1]); err == nil && words[0] == "gpu" {
			held += n
		}
	}
	return held
}

// NodeAddr returns the address that the controller has for a node; empty if the controller has only
// the node's name.
func NodeAddr(ctx context.Context, node string) string {
	f, err := show(ctx, "node", node)
	if addr := f.value("NodeAddr"); err == nil && addr != node {
		return addr
	}
	return ""
}

// End says when, and whether early, Slurm ends the job.
type End struct {
	At time.Time
	// Cancelled is set if a person or a program ended the job early.
	Cancelled bool
}

// warningTime is the longest remaining time at which a signal counts as Slurm's warning of the end
// (sbatch(1), --signal). If the signal had another reason, it does no harm that the ranks save with
// so little time left.
const warningTime = 10 * time.Minute

// near reports whether a signal at this moment is likely to be the warning of the end.
func (e End) near() bool { return time.Until(e.At) < warningTime }

func (e End) String() string { return "Slurm ends the job at " + e.At.Format(time.TimeOnly) }

// jobEnd asks the controller when the job ends, since a user may have changed that after the job
// began. If the controller does not answer, it returns [EndFromEnv].
func jobEnd() (e End, known bool) {
	f, err := showJob(context.Background())
	text := f.value("EndTime")
	if err != nil || text == "" {
		return EndFromEnv()
	}
	at, err := time.ParseInLocation("2006-01-02T15:04:05", text, time.Local)
	return End{at, strings.HasPrefix(f.value("JobState"), "CANCELLED")}, err == nil
}

// EndFromEnv returns the end that Slurm 23.02 and later put into the environment at the start of
// the job.
func EndFromEnv() (e End, known bool) {
	s, err := strconv.ParseInt(os.Getenv("SLURM_JOB_END_TIME"), 10, 64)
	return End{At: time.Unix(s, 0)}, err == nil
}
