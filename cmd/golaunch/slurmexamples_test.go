package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/testkit/slurmtest"
	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// slurmExamples is a cluster. The directory that its nodes share has the programs that the scripts
// of examples/slurm use.
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

// here starts a command in the examples' directory.
func (s slurm) here(env []string, argv ...string) *process {
	s.t.Helper()
	cmd := s.Command(argv...)
	cmd.Dir = s.dir
	return start(s.t, cmd, append(env, path(filepath.Join(s.dir, "bin")))...)
}

// submit gives sbatch an example and its arguments, on two nodes of two GPUs, and returns the job's
// id.
func (s slurm) submit(example string, env, options []string, args ...string) string {
	s.t.Helper()
	argv := append([]string{"sbatch", "--parsable", "--output=%j.out", "--gpus-per-node=2"}, options...)
	p := s.here(env, append(append(argv, "examples/slurm/"+example), args...)...)
	p.ends(0)
	_, id := p.wait()
	return strings.TrimSpace(id)
}

// ended waits for the end of a job, even if it is requeued, and checks facts that scontrol shows.
func (s slurm) ended(id string, facts ...string) {
	s.t.Helper()
	s.run("sh", "-c", "until squeue --noheader --jobs="+id+" --states=all --format=%T | grep -Eqx 'COMPLETED|FAILED|TIMEOUT|CANCELLED'; do sleep 0.2; done").ends(0)
	shown := s.said("scontrol", "show", "job", id)
	for _, fact := range facts {
		if !slices.Contains(strings.Fields(shown), fact) {
			s.t.Errorf("job %s is not %s:\n%s", id, fact, shown)
		}
	}
}

// reporter is a training program that prints its rank and its arguments.
const reporter = `import os, sys
e = os.environ
print("rank", e["RANK"], "of", e["WORLD_SIZE"], "on GPUs", e["CUDA_VISIBLE_DEVICES"], "hugepage", e.get("FI_EFA_USE_HUGE_PAGE"), *sys.argv[1:])
`

// image stands in for the container of pyxis.sh: it has no options of Pyxis. It has few of the
// host's programs, and the variables that Enroot's hook for PyTorch (50-slurm-pytorch.sh) sets for
// one task on each node.
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
		"train.py": reporter, "ddp.py": string(ddp), "report.py": reporter, "pretrain_gpt.py": reporter, "bin/srun-pyxis": image,
	})
	plain := s.submit("plain.sh", nil, nil, "--steps", "60")
	megatron := s.submit("megatron-efa.sh", []string{"MEGATRON=.", "TP=2"}, nil, "--train-iters", "5")
	for _, id := range []string{plain, megatron} {
		s.ended(id, "JobState=COMPLETED")
	}
	s.output(plain, "rank 3 of 4 on GPUs 0,1 hugepage None --steps 60\n")
	s.output(megatron, "rank 3 of 4 on GPUs 0,1 hugepage 0 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 ",
		" --mock-data ", " --exit-signal-handler ", " --train-iters 5\n")

	replace := func(name, by string) {
		if err := os.Rename(filepath.Join(s.dir, by), filepath.Join(s.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	replace("train.py", "ddp.py")
	step := s.submit("step.sh", nil, nil, "--steps", "60", "--checkpoint", "step.pt", "--die-at", "25", "--die-rank", "3")
	s.ended(step, "JobState=COMPLETED")
	loss(t, s.output(step, "attempt 1: resumed at step 20"))

	replace("bin/srun", "bin/srun-pyxis")
	replace("train.py", "report.py")
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

// stopper is a training program that writes a checkpoint when it must stop. Its first run never
// ends, or fails.
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

// TestSlurmExampleRequeue: a job that is warned of its time limit stops and runs again, and another
// job fails for good.
func TestSlurmExampleRequeue(t *testing.T) {
	t.Parallel()
	s := slurmExamples(t, slurmtest.Options{Nodes: 2, GPUs: 2}, map[string]string{"train.py": stopper})
	warned := s.submit("requeue.sh", nil, []string{"--time=1", "--signal=TERM@45"})
	s.ended(warned, "JobState=COMPLETED", "Restarts=1")
	s.output(warned, "rank 3 in run 0", "checkpoint of rank 0\n", "checkpoint of rank 3\n", "exit code 143: requeue\n", "rank 3 in run 1")

	failed := s.submit("requeue.sh", []string{"GOLAUNCH_MAX_RESTARTS=0"}, nil, "fail")
	s.ended(failed, "JobState=FAILED", "Restarts=0", "ExitCode=7:0")
}

// onSlurm starts a cluster of three nodes with eight GPUs each. It returns a function that runs a
// documented command there and returns the output of the command and of its batch job.
func onSlurm(t *testing.T) func(t *testing.T, line string) string {
	s := slurmExamples(t, slurmtest.Options{Nodes: 3, GPUs: 8}, map[string]string{"train.py": trainer})
	return func(t *testing.T, line string) string {
		s := s
		s.t = t
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

// TestSlurmNodes runs examples/slurm/node.sh as the Prolog and the Epilog of two nodes. One node
// has a broken GPU: it is drained, and its job runs on the other node. Old logs are removed, and
// new ones stay.
func TestSlurmNodes(t *testing.T) {
	t.Parallel()
	dir, driver := t.TempDir(), fakeDriver(t)(ill)[0]
	text, err := os.ReadFile("../../examples/slurm/node.sh")
	if err != nil {
		t.Fatal(err)
	}
	script := string(text)
	for from, to := range map[string]string{
		"/opt/golaunch/1.0/bin/golaunch": filepath.Join(dir, "golaunch"), "/run/golaunch-doctor.json": filepath.Join(dir, "$SLURMD_NODENAME.json"),
		"/tmp/golaunch-": filepath.Join(dir, "logs-"),
	} {
		if strings.Count(script, from) != 1 {
			t.Fatalf("node.sh does not have %s once", from)
		}
		script = strings.Replace(script, from, to, 1)
	}
	broken := fmt.Sprintf("#!/bin/sh\nif [ $SLURMD_NODENAME = n1 ]; then export %s FAKE_NVML=; fi\nexec %s \"$@\"\n", driver, golaunch(t))
	for name, text := range map[string]string{"node.sh": script, "golaunch": broken} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	logs := filepath.Join(dir, fmt.Sprintf("logs-%d", os.Getuid()))
	old := time.Now().AddDate(0, 0, -8)
	for _, job := range []string{"old", "new", "long"} {
		if err := os.MkdirAll(filepath.Join(logs, job, "attempt-0"), 0o700); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"attempt-0", "."} {
			if err := os.Chtimes(filepath.Join(logs, job, path), old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	// A job that has run for a long time writes to its files, and not to its directory.
	if err := os.WriteFile(filepath.Join(logs, "long", "attempt-0", "rank-0.stdout.log"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, at := range map[string]time.Time{"long/attempt-0": old, "new": time.Now()} {
		if err := os.Chtimes(filepath.Join(logs, path), at, at); err != nil {
			t.Fatal(err)
		}
	}
	s := slurm{slurmtest.Start(t, slurmtest.Options{Nodes: 2, Config: map[string]string{
		"Prolog": filepath.Join(dir, "node.sh"), "Epilog": filepath.Join(dir, "node.sh"), "PrologFlags": "Alloc",
		"SchedulerParameters": "batch_sched_delay=0,sched_interval=1,nohold_on_prolog_fail",
	}}), t, t.TempDir()}
	id := s.batch("$golaunch --procs-per-node 1 -- sh -c 'echo it runs on $GOLAUNCH_NODE'", "--nodes=1", "--requeue", "--open-mode=append")
	s.output(id, "it runs on n2")
	state := s.said("sinfo", "--noheader", "--Node", "--format=%N %T %E")
	if !regexp.MustCompile(`(?m)^n1 +drain\S* +golaunch doctor: .*gpu-ecc`).MatchString(state) || !regexp.MustCompile(`(?m)^n2 +\S+ +none`).MatchString(state) {
		t.Errorf("the nodes are not as they should be:\n%s", state)
	}
	s.run("sh", "-c", "while [ -e "+filepath.Join(logs, "old")+" ]; do sleep 0.05; done").ends(0)
	for _, job := range []string{"new", "long"} {
		if _, err := os.Stat(filepath.Join(logs, job)); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "n2.json")); err != nil {
		t.Error(err)
	}
}

// TestModulefile loads examples/slurm/modulefile with Environment Modules.
func TestModulefile(t *testing.T) {
	const modules = "/usr/lib/x86_64-linux-gnu/modulecmd.tcl"
	if _, err := os.Stat(modules); err != nil {
		suite.Missing(t, "there are no Environment Modules (Debian: apt-get install environment-modules): %v", err)
	}
	text, err := os.ReadFile("../../examples/slurm/modulefile")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	opt := filepath.Join(dir, "opt")
	if err := errors.Join(os.MkdirAll(filepath.Join(opt, "1.0/bin"), 0o700), os.Symlink(golaunch(t), filepath.Join(opt, "1.0/bin/golaunch")),
		os.MkdirAll(filepath.Join(dir, "golaunch"), 0o700),
		os.WriteFile(filepath.Join(dir, "golaunch", "1.0"), []byte(strings.ReplaceAll(string(text), "/opt/golaunch", opt)), 0o600)); err != nil {
		t.Fatal(err)
	}
	const load = `eval "$(` + modules + ` sh load golaunch/1.0)" && command -v golaunch && exec golaunch --procs-per-node 1 -- sh -c 'echo within $GOLAUNCH_PORTS'`
	out := ended(t, start(t, exec.Command("sh", "-c", load), "MODULEPATH="+dir, "HOME="+dir, "GOLAUNCH_COORDINATOR="))
	for _, want := range []string{filepath.Join(opt, "1.0/bin/golaunch") + "\n", "within 30000:30100\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not print %q:\n%s", want, out)
		}
	}
}

// TestSlurmWithinARange: three nodes of a step meet at a port in a range, and all ports on which
// they listen for each other are in the range.
func TestSlurmWithinARange(t *testing.T) {
	s := startSlurm(t, slurmtest.Options{Nodes: 3})
	at := regexp.MustCompile(`rank \d meets at \S+:(\d+) within 18000:18010`)
	hears := regexp.MustCompile(`golaunch hears \S+:(\d+)`)
	const script = `echo rank $RANK meets at $MASTER_ADDR:$MASTER_PORT within $GOLAUNCH_PORTS
ss -Hltnp | awk '/"golaunch"/ && $4 !~ /^(127\.|\[::1\])/ {print "golaunch hears " $4}'`
	for least, argv := range map[int][]string{ // all ranks print the store's port, and one rank listens at it
		4 + 2 + 2: {"srun", "--nodes=3", "--ntasks-per-node=1", golaunch(t), "--port-range", wallRange, "--procs-per-node", "1", "--", "sh", "-c", script},
		4:         {"salloc", "--nodes=3", golaunch(t), "--port-range", wallRange, "--procs-per-node", "1", "--", "sh", "-c", script},
	} {
		code, out := s.run(argv...).wait()
		found := append(at.FindAllStringSubmatch(out, -1), hears.FindAllStringSubmatch(out, -1)...)
		if code != 0 || len(found) < least {
			t.Errorf("exit code %d, want 0 and ports\n%s", code, out)
		}
		for _, m := range found {
			if !inRange(m[1]) {
				t.Errorf("port %s is not in %s\n%s", m[1], wallRange, out)
			}
		}
	}
	code, out := s.run("srun", "--nodes=2", "--ntasks-per-node=1", golaunch(t), "--port-range", "18000:18001", "--", "true").wait()
	if code != 2 || !strings.Contains(out, "port range 18000:18001 has 2 ports, and a node of this job may listen on 3: the coordinator, the door") {
		t.Errorf("exit code %d, want 2\n%s", code, out)
	}
}
