package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/nettest"
	"github.com/golaunch/golaunch/internal/testkit/slurmtest"
	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// rayScript starts a cluster as scripts for Ray do: the head, then the other nodes, each in a step
// of its own that does not end, and then the program on the first node.
const rayScript = `nodes=($(scontrol show hostnames "$SLURM_JOB_NODELIST"))
ip=$(srun --nodes=1 --ntasks=1 -w ${nodes[0]} sh -c 'getent hosts $SLURMD_NODENAME' | cut -d' ' -f1)
here() { srun --overlap --nodes=1 --ntasks=1 -w "$1" sh -c 'export TMPDIR=$PWD/$SLURMD_NODENAME && mkdir -p $TMPDIR && exec "$@"' - "${@:2}"; }
here ${nodes[0]} $ray start --head --node-ip-address=$ip --port=6379 --num-cpus 1 --block &
for node in ${nodes[@]:1}; do
    here $node $ray start --address $ip:6379 --num-cpus 1 --resources '{"worker": 1}' --block &
done
export RAY_ADDRESS=$ip:6379
until $ray status | grep -q ' 0.0/2.0 CPU'; do sleep 0.1; done
$python main.py
echo ended with $?
`

const rayProgram = `import ray
ray.init()

@ray.remote(num_cpus=1)
class Rank:
    def where(self):
        return ray.util.get_node_ip_address()

ranks = [Rank.remote() for _ in range(2)]
print("on", sorted(ray.get([r.where.remote() for r in ranks])))

@ray.remote(num_cpus=0, resources={"worker": 1})
def where():
    return ray.util.get_node_ip_address()

print("the worker is", ray.get(where.remote()))
`

// pythonOfRay returns a Python that has cloudpickle.
func pythonOfRay(t *testing.T) string {
	t.Helper()
	for _, python := range []string{os.Getenv("GOLAUNCH_TEST_PYTHON"), "/usr/bin/python3", "python3"} {
		if python != "" && exec.Command(python, "-c", "import cloudpickle").Run() == nil {
			return python
		}
	}
	suite.Missing(t, "no Python has cloudpickle")
	return ""
}

// TestRayUnderSlurm checks that a script for Ray, with a step on each node that does not end, runs
// unchanged.
func TestRayUnderSlurm(t *testing.T) {
	python := pythonOfRay(t)
	tree, err := filepath.Abs("../../python")
	must(t, err)
	s := startSlurm(t, slurmtest.Options{Nodes: 2})
	must(t, os.WriteFile(filepath.Join(s.dir, "main.py"), []byte(rayProgram), 0o600))
	script := "python=" + python + "; ray=\"" + python + " -m ray._command\"\nexport PYTHONPATH=" + tree + " GOLAUNCH_BINARY=$golaunch\n" + rayScript
	s.output(s.batch(script, "--nodes=2"), "on ['10.79.0.10', '10.79.0.9']\nthe worker is 10.79.0.9\nended with 0\n")
}

// cutOffProgram has an actor on the other node, with a call pending.
const cutOffProgram = `import ray
ray.init()

@ray.remote(num_cpus=0, resources={"worker": 1})
class Actor:
    def where(self):
        return ray.util.get_node_ip_address()

    def hold(self):
        import threading
        threading.Event().wait()

actor = Actor.remote()
print("on", ray.get(actor.where.remote()))
held = actor.hold.remote()
print("waits", flush=True)
try:
    ray.get(held)
except ray.exceptions.ActorDiedError as error:
    print("died:", error)
`

// TestRayNodeThatIsCutOff checks that calls of an actor fail when the actor's node falls silent.
func TestRayNodeThatIsCutOff(t *testing.T) {
	t.Parallel()
	python := pythonOfRay(t)
	tree, err := filepath.Abs("../../python")
	must(t, err)
	nodes, dir := nettest.Nodes(t, "10.86.0.2", "10.86.0.3"), t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "main.py"), []byte(cutOffProgram), 0o600))
	env := []string{"HOME=" + dir, "PYTHONPATH=" + tree, "GOLAUNCH_BINARY=" + golaunch(t), "RAY_ADDRESS=10.86.0.2:6379", "ray=" + python + " -m ray._command"}
	node := func(i int, script string) *process { return start(t, nodes[i].Command("sh", "-c", script), env...) }
	node(0, "exec $ray start --head --node-ip-address=10.86.0.2 --port=6379 --num-cpus 1 --block")
	node(1, `exec $ray start --address 10.86.0.2:6379 --num-cpus 1 --resources '{"worker": 1}' --block`)
	driver := node(0, "until $ray status | grep -q ' 0.0/2.0 CPU'; do sleep 0.1; done; exec "+python+" "+filepath.Join(dir, "main.py"))
	driver.line("on 10.86.0.3\nwaits")
	nodes[1].Cut(t)
	driver.ends(0, "died: The actor died unexpectedly", "(10.86.0.3) was lost")
}
