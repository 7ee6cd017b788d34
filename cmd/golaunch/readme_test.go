package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/sshtest"
	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// documented has each command in README.md and docs/*.md, with the way it runs here and its output.
// Where one machine without GPUs is not enough, there are substitutes: declared GPUs (--simulate),
// or network namespaces for nodes.
var documented = map[string]struct {
	run  func(t *testing.T, line string) string
	want string
}{
	"golaunch --nodes 2 --gpus-per-node 8 -- python main.py": {simulated, "rank 15 of 16"},
	"go mod download && CGO_ENABLED=0 go build -o bin/ ./cmd/golaunch ./examples/hello && bin/golaunch --simulate --nodes 2 --gpus-per-node 8 -- bin/hello": {
		theJobAlone, "hello from rank 15 of 16 (local rank 7 on node 1): the ranks add up to 120",
	},
	"golaunch --procs-per-node 4 -- python3 train.py":                         {asItIs, "rank 3 of 4"},
	"golaunch --preload torch --procs-per-node 4 -- python3 train.py":         {asItIs, "rank 3 of 4"},
	"golaunch --procs-per-node 4 --replica-groups 2 -- python3 train.py":      {asItIs, "rank 1 of 2"},
	"golaunch --procs-per-node 4 --tolerate-lost-ranks 1 -- python3 train.py": {asItIs, "rank 3 of 4"},
	"golaunch --gpus-per-node 2 --gpus-per-rank 0.5 -- python3 train.py":      {simulated, "rank 3 of 4"},
	"golaunch --gpus-per-node auto -- python3 train.py":                       {simulated, "rank 7 of 8"},
	"golaunch --gpus-per-node 4 -- python3 train.py":                          {simulated, "rank 3 of 4"},
	"golaunch --gpu-ids 0,2 -- python3 train.py":                              {onCluster(hung), "rank 1 of 2"},
	"golaunch --gpus-per-node 4 -- sh -c 'exec python3 train.py --local_rank=$LOCAL_RANK'": {
		simulated, "rank 3 of 4 --local_rank=3",
	},
	"golaunch --gpus-per-node 4 --env ACCELERATE_MIXED_PRECISION=bf16 -- python3 train.py": {
		simulated, "rank 3 of 4 ACCELERATE_MIXED_PRECISION=bf16",
	},
	"golaunch --procs-per-node 2 --env ACCELERATE_USE_CPU=true -- python3 train.py":  {asItIs, "rank 1 of 2 ACCELERATE_USE_CPU=true"},
	"golaunch --nodes 2 --rendezvous n1:29400 --gpus-per-node 8 -- python3 train.py": {onNodes, "rank 3 of 4"},
	"golaunch --nodes 2 --rendezvous n1:29400 --gpus-per-node 2 -- python3 train.py": {onNodes, "rank 3 of 4"},
	"golaunch torchrun --standalone --nproc-per-node 4 train.py":                     {asItIs, "rank 3 of 4"},
	"golaunch torchrun --nnodes 2 --nproc-per-node 2 --rdzv-backend c10d --rdzv-id job1 --rdzv-endpoint n1:29400 train.py": {
		onNodes, "rank 3 of 4",
	},
	"golaunch ft_launcher --nproc-per-node 2 --max-restarts 3 --ft-rank-section-timeouts setup:600,step:180,checkpointing:none train.py": {
		asItIs, "rank 1 of 2",
	},
	"golaunch --gpus-per-node 8 --inprocess-restart 2m -- python3 train.py":                               {simulated, "rank 7 of 8"},
	"golaunch --gpus-per-node 8 --rank-monitor setup:600,step:180,checkpointing:none -- python3 train.py": {simulated, "rank 7 of 8"},
	"go run ./examples/go-trainer":                                                     {inTree, "rank 3 of 4, attempt 1: w = 3.000"},
	"go run -C tools/scale . -logical -agents 1000":                                    {ofScale, "messages to agents"},
	"go run -C tools/scale . -agents 100 -from takeover":                               {ofScale, "connections of each agent for that"},
	"golaunch plan --nodes 2 --gpus-per-node 8":                                        {asItIs, "15    7      1          node1"},
	"golaunch plan --explain --rank 3 --nodes 2 --gpus-per-node 8 -- python3 train.py": {asItIs, "RANK=3"},
	"golaunch env --nodes 2 --procs-per-node 1":                                        {asItIs, "WORLD_SIZE=2"},
	"golaunch doctor": {asItIs, "fine "},
	"golaunch doctor --fabric --nodes 2 --rendezvous n1:29400 --gpus-per-node 8":                              {onNodes, "over TCP: nodes 2, tests 3, rounds 2, "},
	"golaunch doctor --fabric --coordinator n0:29400 --nodes 2 --gpus-per-node 8":                             {onCluster(hung), "nodes 2, tests 3, rounds 2, "},
	"golaunch doctor --fabric --simulate --nodes 4":                                                           {asItIs, "over TCP: nodes 4, tests 6, rounds 2, "},
	"golaunch --nodes 2 --rendezvous n1:29400 --port-range 30000:30100 --gpus-per-node 8 -- python3 train.py": {onNodes, "rank 3 of 4"},
	"golaunch doctor --fabric --nodes 2 --rendezvous n1:29400 --port-range 30000:30100 --gpus-per-node 8": {
		onNodes, "over TCP: nodes 2, tests 3, rounds 2, ",
	},
	"golaunch coordinator --port-range 30000:30100": {
		coordinates, "golaunch agent --coordinator 127.0.0.1:30000",
	},
	"golaunch agent --coordinator n0:30000 --port-range 30000:30100": {
		joinsInRange, " is in the cluster of 10.77.0.2:30000",
	},
	"golaunch coordinator":                  {coordinates, "golaunch agent --coordinator 127.0.0.1:29400"},
	"golaunch agent --coordinator n0:29400": {joins, " is in the cluster of "},
	"golaunch --coordinator n0:29400 --nodes 2 --gpus-per-node 8 -- python3 train.py":        {onCluster(hung), "rank 15 of 16"},
	"golaunch --coordinator n0:29400 --priority batch --gpus-per-node 8 -- python3 train.py": {onCluster(hung), "rank 7 of 8"},
	"golaunch coordinator --capacity capacity.yaml":                                          {asksForNodes, "1 x toy requested: toy has 0 of at least 1 nodes"},
	"golaunch up cluster.yaml":                                                        {comesUp, "cluster toys is up; its coordinator is at 10.77.0.2:29400 on this machine"},
	"golaunch coordinator --peers n0,n1,n2":                                           {onPeers, "10.77.0.2:29400 leads the cluster from now on"},
	"golaunch agent --coordinator n0,n1,n2":                                           {onPeers, " is in the cluster of 10.77.0.2,10.77.0.3,10.77.0.4"},
	"golaunch --coordinator n0,n1,n2 --nodes 2 --gpus-per-node 8 -- python3 train.py": {onPeers, "rank 15 of 16"},
	"golaunch run --detach --job-id night -- python3 train.py":                        {onCluster(hung), "night"},
	"golaunch agent --coordinator n0:29400 --adopt":                                   {joins, " is in the cluster of "},
	"golaunch status":                         {onCluster(hung), "running"},
	"golaunch jobs --all":                     {onCluster(twiceUp), "finished"},
	"golaunch cost":                           {onCluster(twiceUp), "(idle)"},
	"golaunch logs JOB -f":                    {onCluster(twiceUp), "[r3 n10] attempt 1"},
	"golaunch logs JOB --ranks 3 --attempt 1": {onCluster(twiceUp), "[r3 n10] attempt 1"},
	"golaunch stop JOB":                       {onCluster(hung), ""},
	"golaunch stop --all":                     {onCluster(hung), ""},
	"golaunch agent --drain":                  {onCluster(twiceUp), ""},
	"golaunch agent --coordinator n0:29400 --preload torch": {joins, " is in the cluster of "},
	"golaunch agent --coordinator n0:29400 --as-submitter":  {joins, " is in the cluster of "},
	"golaunch submit-token":                                 {onCluster(twiceUp), "submit-"},
	"golaunch swap n9":                                      {onCluster(twiceUp), "n9 has left"},
	"golaunch top":                                          {onCluster(hung), "sh -c"},
	"golaunch top JOB":                                      {onCluster(hung), "n10"},
	"golaunch top --once":                                   {onCluster(hung), "JOB"},
	"golaunch dashboard":                                    {serves, "http://127.0.0.1:8265/"},
	"golaunch report JOB -o report.html":                    {onCluster(hung), "the report is in report.html"},
	"golaunch stacks JOB":                                   {onCluster(sleeping), "<module>"},
	"golaunch logs JOB --fold on":                           {onCluster(hung), "[r0-3] up"},
	"sbatch examples/slurm/agents.sh":                       {agentsOnSlurm, "node n2 is here"},
	"golaunch plan --explain --workspace . --gpus-per-node 8 -- python3 train.py": {asItIs, "workspace "},
}

// documentedOn has the commands that run one after the other on a cluster that takes long to start,
// and their output.
var documentedOn = map[string]struct {
	start    func(t *testing.T) func(t *testing.T, line string) string
	commands map[string]string
}{
	"Slurm": {onSlurm, map[string]string{
		"srun --nodes=2 --ntasks-per-node=1 --gpus-per-node=8 golaunch doctor --fabric":                   "nodes 2, tests 3, rounds 2, ",
		"srun --nodes=2 --ntasks-per-node=1 --gpus-per-node=8 golaunch -- python3 train.py":               "rank 15 of 16",
		"salloc --nodes=2 --gpus-per-node=8 golaunch -- python3 train.py":                                 "rank 15 of 16",
		"salloc --nodes=3 --gpus-per-node=8 --no-kill golaunch --spares 1 -- python3 train.py":            "rank 15 of 16",
		"golaunch --slurm-submit --nodes 2 --gpus-per-node 8 --sbatch=--time=1:00:00 -- python3 train.py": "rank 15 of 16",
		"golaunch --slurm-submit --dry-run --nodes 2 --gpus-per-node 8 -- python3 train.py":               "#SBATCH --nodes=2\n",
		"sbatch examples/slurm/plain.sh":   "rank 15 of 16",
		"sbatch examples/slurm/requeue.sh": "rank 15 of 16",
	}},
	"hosts": {overSSH, map[string]string{
		"golaunch doctor --fabric --hosts n1,n2 --gpus-per-node 8":                   "nodes 2, tests 3, rounds 2, ",
		"golaunch --hosts n1,n2 --gpus-per-node 8 --workspace . -- python3 train.py": "rank 15 of 16",
		"golaunch --hosts n1,n2 --gpus-per-node 8 -- python3 train.py":               "rank 15 of 16",
		"golaunch --hostfile hosts --gpus-per-node auto -- python3 train.py":         "rank 5 of 6",
		"golaunch --hosts n[1-4] --spares 1 --procs-per-node 2 -- python3 train.py":  "rank 5 of 6",
	}},
}

func TestDocumentedCommands(t *testing.T) {
	t.Parallel()
	missing := map[string]bool{}
	for _, line := range commands(t) {
		missing[line] = true
	}
	check := func(t *testing.T, line, want string, run func(t *testing.T, line string) string) {
		if out := run(t, line); !strings.Contains(out, want) {
			t.Errorf("it does not print %q:\n%s", want, out)
		}
	}
	known := func(line string) {
		if !missing[line] {
			t.Errorf("no document has the command %q any more", line)
		}
		delete(missing, line)
	}
	for line, c := range documented {
		known(line)
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			check(t, line, c.want, c.run)
		})
	}
	for on, c := range documentedOn {
		for line := range c.commands {
			known(line)
		}
		t.Run(on, func(t *testing.T) {
			t.Parallel()
			run := c.start(t)
			for line, want := range c.commands {
				t.Run(line, func(t *testing.T) { check(t, line, want, run) })
			}
		})
	}
	for line := range missing {
		t.Errorf("nothing runs the documented command %q", line)
	}
}

// commands are the lines of code in the documents that run golaunch, Slurm or Go.
func commands(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, file := range append(files, "../../README.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		fenced := false
		for line := range strings.Lines(string(text)) {
			command := strings.TrimSpace(line)
			if strings.HasPrefix(command, "```") {
				fenced = !fenced
			}
			if (fenced || strings.HasPrefix(line, "    ")) && isCommand(command) {
				all = append(all, command)
			}
		}
	}
	return all
}

func isCommand(line string) bool {
	for _, start := range []string{"golaunch ", "srun ", "salloc ", "sbatch ", "go run ", "go mod "} {
		if strings.HasPrefix(line, start) {
			return true
		}
	}
	return false
}

// trainer is a train.py that needs only Python. It also shows accelerate's variables and the
// arguments of the rank.
const trainer = `import os, sys
settings = sorted(f"{name}={value}" for name, value in os.environ.items() if name.startswith("ACCELERATE_"))
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], *settings, *sys.argv[1:])
`

// workplace returns a directory with the programs that the documents name, and with Python under
// both of its names.
func workplace(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"train.py": trainer, "main.py": trainer, ".rayignore": "/python\n/python3\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"python", "python3"} {
		if err := os.Symlink(python, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func asItIs(t *testing.T, line string) string { return shell(t, workplace(t), line) }

func simulated(t *testing.T, line string) string {
	return asItIs(t, strings.Replace(line, " -- ", " --simulate -- ", 1))
}

// inTree runs a command in a copy of this module.
func inTree(t *testing.T, line string) string {
	dir := t.TempDir()
	if err := os.CopyFS(dir, sourceFiles{os.DirFS("../..")}); err != nil {
		t.Fatal(err)
	}
	// With -trimpath, packages that were compiled in other copies need not be compiled again.
	return shell(t, dir, line, "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -trimpath"))
}

// ofScale runs a command that measures a large cluster.
func ofScale(t *testing.T, line string) string {
	suite.LeftToAll(t, "it builds and runs a benchmark")
	return inTree(t, line)
}

// theJobAlone checks that there is no output except the job's, such as words of Go or of a C
// compiler.
func theJobAlone(t *testing.T, line string) string {
	suite.LeftToAll(t, "it compiles everything without cgo")
	out := inTree(t, line)
	for said := range strings.Lines(out) {
		if !strings.HasPrefix(said, "golaunch: ") && !strings.Contains(said, "hello from rank ") {
			t.Errorf("it also prints %q", said)
		}
	}
	return out
}

// sourceFiles hides files that are not in a fresh copy of the module: hidden folders and build
// output.
type sourceFiles struct{ fs.FS }

func (s sourceFiles) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(s.FS, name)
	var shown []fs.DirEntry
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && e.Name() != "bin" {
			shown = append(shown, e)
		}
	}
	return shown, err
}

// onNodes runs the same command on each of two nodes, with CPU ranks in the place of GPUs and an
// address in the place of a name.
func onNodes(t *testing.T, line string) string {
	nodes, token := cluster(t)
	line = strings.NewReplacer("n1:29400", "10.77.0.2:29400", "--gpus-per-node 8", "--procs-per-node 2 --token-file "+token,
		"--gpus-per-node 2", "--procs-per-node 2 --token-file "+token).Replace(line)
	dir := workplace(t)
	var both []*process
	for i, name := range []string{"n1", "n2"} {
		cmd := nodes[i].Command("sh", "-c", line)
		cmd.Dir = dir
		both = append(both, start(t, cmd, "GOLAUNCH_NAME="+name, "GOLAUNCH_TOKEN_FILE="+token, "TMPDIR="+t.TempDir(), path(dir)))
	}
	return ended(t, both...)
}

// coordinates starts a coordinator on a node without a default route, and stops it.
func coordinates(t *testing.T, line string) string {
	h := newCluster(t)
	p := h.start(0, strings.Fields(line)[1:]...)
	p.line("golaunch agent --coordinator")
	p.signal(syscall.SIGTERM)
	return ended(t, p)
}

// asksForNodes does what coordinates does, with a capacity file whose kind has a minimum.
func asksForNodes(t *testing.T, line string) string {
	h := newCluster(t)
	h.capacity("kinds: {toy: {min: 1, max: 1, exec: [sh, -c, 'echo {}']}}\n")
	p := h.start(0, strings.Fields(line)[1:]...)
	p.line("1 x toy requested")
	p.signal(syscall.SIGTERM)
	return ended(t, p)
}

// comesUp starts a cluster from a file, and ends it.
func comesUp(t *testing.T, line string) string {
	h := newCluster(t)
	text := "name: toys\nlisten: 10.77.0.2\nkinds: {toy: {max: 1, exec: [sh, -c, 'echo {}']}}\n"
	if err := os.WriteFile(filepath.Join(h.dir, "cluster.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out := h.do(strings.Fields(line)[1:]...)
	h.do("down", "cluster.yaml", "--yes")
	return out
}

// joinsInRange does what joins does, with a coordinator on the first port of a range.
func joinsInRange(t *testing.T, line string) string {
	h := newCluster(t)
	c := h.start(0, "coordinator", "--listen", "10.77.0.2", "--port-range", "30000:30100")
	c.line("golaunch agent --coordinator")
	return h.agentOf(line)
}

// joins starts an agent beside a coordinator, and stops it.
func joins(t *testing.T, line string) string {
	h := newCluster(t)
	h.coordinate()
	return h.agentOf(line)
}

// agentOf starts an agent on the second node, and stops it once it has joined.
func (h *heads) agentOf(line string) string {
	h.t.Helper()
	p := h.start(1, strings.Fields(strings.Replace(line, "n0", "10.77.0.2", 1))[1:]...)
	p.line("is in the cluster")
	p.signal(syscall.SIGTERM)
	code, out := p.wait()
	if code != 143 {
		h.t.Errorf("exit code %d", code)
	}
	return out
}

// twiceUp is a rank that fails in attempt 0.
const twiceUp = "echo attempt $TORCHELASTIC_RESTART_COUNT; echo up $RANK; exit $((1-TORCHELASTIC_RESTART_COUNT))"

// sleeping is a rank that runs a Python program.
var sleeping = "exec " + python + ` -c 'import os, time; print("up", os.environ["RANK"], flush=True); time.sleep(1000)'`

// onCluster runs a command on the coordinator's node of a cluster of two nodes with eight declared
// GPUs each, where four ranks of a job JOB run a script.
func onCluster(script string) func(t *testing.T, line string) string {
	return func(t *testing.T, line string) string {
		h, _, _, _ := up(t, 8)
		h.detach("JOB", 4, "--nodes", "2", "--procs-per-node", "2", "--", "sh", "-c", script)
		if script == twiceUp {
			h.do("logs", "-f", "JOB")
		}
		cmd := h.nodes[0].Command("sh", "-c", strings.Replace(line, "n0", "10.77.0.2", 1))
		cmd.Dir = workplace(t)
		return ended(t, start(t, cmd, "HOME="+h.home, "GOLAUNCH_COORDINATOR="+h.at, "GOLAUNCH_NAME=n9", path(cmd.Dir)))
	}
}

// serves starts a command on the coordinator's node of a cluster that runs until it is stopped, and
// stops it.
func serves(t *testing.T, line string) string {
	h, _, _, _ := up(t, 8)
	p := h.start(0, append(strings.Fields(line)[1:], "--coordinator", h.at)...)
	p.line("http://")
	p.signal(syscall.SIGTERM)
	return ended(t, p)
}

// overSSH starts four hosts, and returns a function that runs a command on their head, with slots
// instead of GPUs.
func overSSH(t *testing.T) func(t *testing.T, line string) string {
	h := sshtest.Start(t, 4)
	dir := workplace(t)
	if err := os.WriteFile(filepath.Join(dir, "hosts"), []byte("n1 slots=3\nn2 slots=3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return func(t *testing.T, line string) string {
		line = strings.NewReplacer(" --gpus-per-node auto", "", "--gpus-per-node 8", "--procs-per-node 8", " -- ", " --env PATH -- ").Replace(line)
		cmd := h.Command("sh", "-c", `PATH="$0:$PATH"; `+line, dir)
		cmd.Dir = dir
		return ended(t, start(t, cmd))
	}
}

// shell runs a command line as a user does.
func shell(t *testing.T, dir, line string, env ...string) string {
	cmd := exec.Command("sh", "-c", line)
	cmd.Dir = dir
	return ended(t, start(t, cmd, append(env, path(dir))...))
}

// path finds programs in dir first.
func path(dir string) string { return "PATH=" + dir + string(os.PathListSeparator) + os.Getenv("PATH") }

// ended checks that all processes succeed, and returns their output.
func ended(t *testing.T, all ...*process) string {
	t.Helper()
	var text strings.Builder
	for _, p := range all {
		code, out := p.wait()
		if code != 0 {
			t.Errorf("%v: exit code %d", p.cmd.Args, code)
		}
		text.WriteString(out)
	}
	return text.String()
}
