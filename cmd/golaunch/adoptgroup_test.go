package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// adoptedGroup is a controller whose workers the agents of their nodes start, and a module with the
// workers' calls.
const adoptedGroup = `import os, sys
from golaunch import VirtualCluster, WorkerGroup

class Far(WorkerGroup):
    def _environment(self, env):
        return [e for e in super()._environment(env) if not e.startswith("GOLAUNCH_CONTROLLER=")]

with VirtualCluster([1, 1], address=sys.argv[1], use_gpus=True) as cluster:
    g = Far(cluster, "waiter:Waiter")
    pids = [w.pid for w in g.workers]
    f = g.run_all_workers_single_data("wait")
    behind = g.run_all_workers_single_data("nth")
    g.run_all_workers_single_data("nth").cancel()
    print("called", flush=True)
    print(f.result(), behind.result(), flush=True)
    print("the same" if pids == [w.pid for w in g.workers] else "others", {w.attempt for w in g.workers}, flush=True)
    print(g.run_all_workers_single_data("nth").result(), g.shutdown(), flush=True)
`

const adoptedWaiter = `import os, time

class Waiter:
    called = 0

    def wait(self):
        while not os.path.exists("go"):
            time.sleep(0.01)
        return int(os.environ["RANK"])

    def nth(self):
        self.called += 1
        return self.called
`

// TestAnAgentOfAGroupIsStartedAgain: the group's workers go on, and each call is answered once.
func TestAnAgentOfAGroupIsStartedAgain(t *testing.T) {
	t.Parallel()
	h, _, n10, n9 := upAdopting(t)
	if err := os.WriteFile(filepath.Join(h.dir, "waiter.py"), []byte(adoptedWaiter), 0o600); err != nil {
		t.Fatal(err)
	}
	python, err := filepath.Abs("../../python")
	if err != nil {
		t.Fatal(err)
	}
	cmd := h.nodes[0].Command("python3", "-c", adoptedGroup, h.at)
	cmd.Dir = h.dir
	controller := start(t, cmd, "HOME="+h.home, "GOLAUNCH_COORDINATOR=", "GOLAUNCH_BINARY="+golaunch(t), "PYTHONPATH="+python, "PYTHONDONTWRITEBYTECODE=1")
	controller.line("called")
	n10.kill()
	n9.signal(syscall.SIGHUP)
	if code, out := n9.wait(); code != 129 {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	h.adopting(1, "n10").line("adopts the ranks of an earlier agent")
	h.adopting(2, "n9").line("adopts the ranks of an earlier agent")
	h.touch("go")
	controller.line(`\[0, 1\] \[1, 1\]`)
	controller.line(`the same \{0\}`)
	// The cancellation may be lost with an agent that dies: a worker that gets the cancellation
	// after its turn has run the call.
	controller.line(`\[[23], [23]\] True`)
	if code, out := controller.wait(); code != 0 {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}
