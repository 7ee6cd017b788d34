package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/internal/slurmtest"
)

// slurmExamples is a cluster and, in the directory that its nodes share, what the scripts of examples/slurm use.
func slurmExamples(t *testing.T, o slurmtest.Options, programs map[string]string) slurm {
	t.Helper()
	s := slurm{slurmtest.Start(t, o), t, t.TempDir()}
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(s.dir, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"examples": examples, "bin/python3": python, "bin/golaunch": golaunch(t)} {
		if err := os.Symlink(to, filepath.Join(s.dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range programs {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// here starts a command in that directory.
func (s slurm) here(env []string, argv ...string) *process {
	s.t.Helper()
	cmd := s.Command(argv...)
	cmd.Dir = s.dir
	return start(s.t, cmd, append(env, path(filepath.Join(s.dir, "bin")))...)
}

// submit gives sbatch an example and its arguments, on two nodes of two GPUs, and returns the job's id.
func (s slurm) submit(example string, env, options []string, args ...string) string {
	s.t.Helper()
	argv := append([]string{"sbatch", "--parsable", "--output=%j.out", "--gpus-per-node=2"}, options...)
	p := s.here(env, append(append(argv, "examples/slurm/"+example), args...)...)
	p.ends(0)
	_, id := p.wait()
	return strings.TrimSpace(id)
}

// ended waits for the end of a job, also in a run after this one, and wants facts that scontrol shows.
func (s slurm) ended(id string, facts ...string) {
	s.t.Helper()
	s.run("sh", "-c", "until squeue --noheader --jobs="+id+" --states=all --format=%T | grep -Eqx 'COMPLETED|FAILED|TIMEOUT|CANCELLED'; do sleep 0.05; done").ends(0)
	shown := s.said("scontrol", "show", "job", id)
	for _, fact := range facts {
		if !slices.Contains(strings.Fields(shown), fact) {
			s.t.Errorf("job %s is not %s:\n%s", id, fact, shown)
		}
	}
}

// reporter is a training program that says who it is, and how it was called.
const reporter = `import os, sys
e = os.environ
print("rank", e["RANK"], "of", e["WORLD_SIZE"], "on GPUs", e["CUDA_VISIBLE_DEVICES"], "hugepage", e.get("FI_EFA_USE_HUGE_PAGE"), *sys.argv[1:])
`

// image stands in for the container of pyxis.sh: no option of Pyxis, of the host's programs a few, and what Enroot's hook for PyTorch
// says of the one task on each node (50-slurm-pytorch.sh).
const image = `#!/bin/bash
args=()
for a; do
	case $a in
	--container-mounts=*) echo "$a" ;;
	--container-*) ;;
	*) args+=("$a") ;;
	esac
done
mkdir image
ln -s "$PWD"/bin/{golaunch,python3} image/
exec /usr/bin/srun --export=ALL,PATH=$PWD/image,WORLD_SIZE=2,RANK=0,LOCAL_RANK=0,MASTER_PORT=60000 "${args[@]}"
`

// TestSlurmExamples submits the scripts of examples/slurm. A real srun knows no options of Pyxis.
func TestSlurmExamples(t *testing.T) {
	t.Parallel()
	ddp, err := os.ReadFile("../../examples/torch-ddp/train.py")
	if err != nil {
		t.Fatal(err)
	}
	s := slurmExamples(t, slurmtest.Options{Nodes: 2, GPUs: 2}, map[string]string{
		"train.py": string(ddp), "report.py": reporter, "pretrain_gpt.py": reporter, "bin/srun-pyxis": image,
	})
	plain := s.submit("plain.sh", nil, nil, "--steps", "60", "--checkpoint", "plain.pt")
	step := s.submit("step.sh", nil, nil, "--steps", "60", "--checkpoint", "step.pt", "--die-at", "25", "--die-rank", "3")
	megatron := s.submit("megatron-efa.sh", []string{"MEGATRON=.", "TP=2"}, nil, "--train-iters", "5")
	for _, id := range []string{plain, step, megatron} {
		s.ended(id, "JobState=COMPLETED")
	}
	if undisturbed, disturbed := loss(t, s.output(plain)), loss(t, s.output(step, "attempt 1: resumed at step 20")); undisturbed != disturbed {
		t.Errorf("loss %s after a restart, %s without", disturbed, undisturbed)
	}
	s.output(megatron, "rank 3 of 4 on GPUs 0,1 hugepage 0 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 ",
		" --mock-data ", " --exit-signal-handler ", " --train-iters 5\n")

	for to, from := range map[string]string{"bin/srun": "bin/srun-pyxis", "train.py": "report.py"} {
		if err := os.Rename(filepath.Join(s.dir, from), filepath.Join(s.dir, to)); err != nil {
			t.Fatal(err)
		}
	}
	pyxis := s.submit("pyxis.sh", nil, nil)
	s.ended(pyxis, "JobState=COMPLETED")
	s.output(pyxis, "rank 3 of 4 on GPUs 0,1", "--container-mounts="+filepath.Join(s.dir, "bin", "golaunch")+":/usr/local/bin/golaunch:ro,")
}

// TestMegatronSimulated runs the script of examples/megatron on simulated nodes.
func TestMegatronSimulated(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "pretrain_gpt.py"), []byte(reporter), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("../../examples/megatron/run.sh", "--simulate", "--nodes", "2", "--gpus-per-node", "2", "--", "--train-iters", "5")
	p := start(t, cmd, "MEGATRON="+dir, "PP=2", "DATA=text", "TOKENIZER=my tokenizer")
	p.ends(0, "rank 3 of 4", "--pipeline-model-parallel-size 2", "--data-path text", "--tokenizer-model my tokenizer --train-iters 5\n")
}

// stopper is a training program that writes a checkpoint when it is told to stop. Its first run goes on for ever, or fails.
const stopper = `import os, signal, sys
rank, run = os.environ["RANK"], os.environ.get("SLURM_RESTART_COUNT", "0")
def stop(*_):
    print("checkpoint of rank", rank)
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
print("rank", rank, "in run", run, flush=True)
if sys.argv[1:] == ["fail"]:
    sys.exit(7)
while run == "0":
    signal.pause()
`

// TestSlurmExampleRequeue warns a job of its time limit, which makes it stop and run again, and has another one fail for good.
func TestSlurmExampleRequeue(t *testing.T) {
	t.Parallel()
	s := slurmExamples(t, slurmtest.Options{Nodes: 2, GPUs: 2}, map[string]string{"train.py": stopper})
	warned := s.submit("requeue.sh", nil, []string{"--time=1", "--signal=TERM@55"})
	s.ended(warned, "JobState=COMPLETED", "Restarts=1")
	s.output(warned, "rank 3 in run 0", "checkpoint of rank 0\n", "checkpoint of rank 3\n", "exit code 143: requeue\n", "rank 3 in run 1")

	failed := s.submit("requeue.sh", []string{"GOLAUNCH_MAX_RESTARTS=0"}, nil, "fail")
	s.ended(failed, "JobState=FAILED", "Restarts=0", "ExitCode=7:0")
}

// onSlurm runs a documented command on a cluster of three nodes with eight GPUs each, and returns what it and its batch job print.
func onSlurm(t *testing.T, line string) string {
	s := slurmExamples(t, slurmtest.Options{Nodes: 3, GPUs: 8}, map[string]string{"train.py": trainer})
	out := ended(t, s.here(nil, "sh", "-c", line))
	id := regexp.MustCompile(`(?m)^(?:Submitted batch job )?([0-9]+)$`).FindStringSubmatch(out)
	if id == nil {
		return out
	}
	s.over(id[1])
	text, err := os.ReadFile(filepath.Join(s.dir, "slurm-"+id[1]+".out"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// agentsOnSlurm submits a job of agents, runs the documented job there, and cancels it.
func agentsOnSlurm(t *testing.T, line string) string {
	s := slurmExamples(t, slurmtest.Options{Nodes: 2, GPUs: 8}, map[string]string{"train.py": trainer})
	home := []string{"HOME=" + s.dir}
	ended(t, s.here(home, "sh", "-c", line))
	const out = "slurm-1.out"
	s.run("sh", "-c", "while ! grep -q 'node n2 is here' "+out+"; do sleep 0.05; done").ends(0)
	for range 2 {
		s.here(home, "golaunch", "--coordinator", "n1:29400", "--nodes", "2", "--gpus-per-node", "8", "--", "python3", "train.py").ends(0, "rank 15 of 16")
	}
	s.said("scancel", "1")
	s.over("1")
	text, err := os.ReadFile(filepath.Join(s.dir, out))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
