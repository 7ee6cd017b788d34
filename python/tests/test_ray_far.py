"""Ray's names on a cluster of two nodes, by the address of its coordinator."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import ray
from base import patched_environment
from ray import _cluster
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

LIMIT = 300  # seconds that nothing here takes, unless it hangs: busy machines are slow


def run(program):
    return subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


class Cluster(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with open(os.environ["TEST_TOKEN"]) as f:
            os.environ["GOLAUNCH_TOKEN"] = f.read().strip()
        os.environ["RAY_ADDRESS"] = "ray://" + os.environ["TEST_COORDINATOR"]

    def program(self, text):
        process = run(text)

        def end():
            process.kill()
            process.communicate()

        self.addCleanup(end)
        return process

    def wait_for(self, what, said):
        end = time.monotonic() + LIMIT
        while not what():
            self.assertLess(time.monotonic(), end, said)
            time.sleep(0.05)

    def over(self):
        self.wait_for(lambda: not _cluster.hosts_here(), "the session goes on without a driver")

    def test_a_cluster(self):
        self.addCleanup(ray.shutdown)
        with patched_environment(RAY_preload_python_modules="colorsys"):
            ray.init(log_to_driver=False)
        self.assertEqual(len(ray.nodes()), 2)

        @ray.remote
        def node():
            assert "colorsys" in sys.modules
            return ray.get_runtime_context().get_node_id()

        @ray.remote(scheduling_strategy="SPREAD")
        def make(n):
            return node.remote(), b"x" * n

        made = ray.get([make.remote(500_000) for _ in range(4)])
        self.assertEqual([len(m) for _, m in made], [500_000] * 4)
        self.assertEqual(set(ray.get([n for n, _ in made])) - {n["NodeID"] for n in ray.nodes()}, set())
        del made
        ray.shutdown()
        self.over()

    def test_a_directory_travels(self):
        """Once to each node, where the processes of tasks share it."""
        self.addCleanup(ray.shutdown)
        with tempfile.TemporaryDirectory() as top:
            with open(os.path.join(top, "large"), "w") as f:
                f.write("x" * 3_000_000)
            ray.init(log_to_driver=False, runtime_env={"working_dir": top})

        @ray.remote
        class Look:
            def look(self):
                return ray.get_runtime_context().get_node_id(), os.getcwd(), os.path.getsize("large")

        nodes = [n["NodeID"] for n in ray.nodes()]
        looks = [Look.options(scheduling_strategy=NodeAffinitySchedulingStrategy(n, soft=False)).remote() for n in nodes + nodes]
        seen = ray.get([x.look.remote() for x in looks])
        self.assertEqual([n for n, _, _ in seen], nodes + nodes)
        self.assertEqual({size for _, _, size in seen}, {3_000_000})
        self.assertEqual(len({d for _, d, _ in seen}), 1)  # the two nodes share this machine's temporary directory
        del looks
        ray.shutdown()
        self.over()

    def test_a_session_outlives_its_drivers(self):
        """Of a driver that is killed nothing remains but its detached actors, which other drivers find by their names."""
        actors = (
            "import os, ray, sys, time\nray.init(namespace='n', log_to_driver=False)\n"
            "@ray.remote\nclass A:\n"
            "    def __init__(self, n): self.n = n\n"
            "    def add(self): self.n += 1; return self.n\n"
            "    def begin(self): self.child = A.remote(40); return ray.get(self.child.add.remote())\n"
            "    def child_adds(self): return ray.get(self.child.add.remote())\n"
            "    def run(self): return ray.get(ray.remote(lambda: 3).remote())\n")
        first = self.program(
            actors + "mine = A.options(name='mine').remote(1)\nd = A.options(name='d', lifetime='detached').remote(10)\n"
            "print(ray.get([mine.add.remote(), d.add.remote(), d.begin.remote()]), flush=True)\ntime.sleep(1000)\n")
        self.assertEqual(first.stdout.readline(), "[2, 11, 41]\n")
        second = self.program(
            actors + "print(sorted(ray.util.list_named_actors()), ray.get(ray.get_actor('mine').add.remote()), len(ray.nodes()), flush=True)\n"
            "sys.stdin.readline()\nmine = ray.get_actor('mine')\nend = time.monotonic() + 60\n"
            "try:\n    while time.monotonic() < end: ray.get(mine.add.remote()); time.sleep(0.05)\n"
            "except ray.exceptions.RayActorError as e: print('owner has died' in str(e))\n"
            "d = ray.get_actor('d')\nprint(ray.get([d.add.remote(), d.child_adds.remote(), d.run.remote()]))\n")
        self.assertEqual(second.stdout.readline(), "['d', 'mine'] 3 2\n")
        os.kill(first.pid, signal.SIGKILL)
        out, _ = second.communicate("go\n", timeout=LIMIT)
        self.assertEqual(out, "True\n[12, 42, 3]\n")
        third = self.program(actors + "d = ray.get_actor('d')\nprint(ray.get([d.add.remote(), d.child_adds.remote()]))\nray.kill(d)\n")
        out, _ = third.communicate(timeout=LIMIT)
        self.assertEqual(out, "[13, 43]\n")
        self.over()

    def test_a_host_comes_back(self):
        """One that ends is another node of the session a moment later."""
        self.addCleanup(ray.shutdown)
        ray.init(log_to_driver=False)
        core = ray._session.core()
        ended = next(n["NodeID"] for n in ray.nodes() if n["NodeID"] != core.node_id)
        core.ask(core.head, "kill_node", ended)
        self.wait_for(lambda: len({n["NodeID"] for n in ray.nodes() if n["Alive"]} - {ended}) == 2, "the host does not come back")
        new = next(n["NodeID"] for n in ray.nodes() if n["Alive"] and n["NodeID"] != core.node_id)

        @ray.remote(scheduling_strategy=NodeAffinitySchedulingStrategy(new, soft=False))
        def node():
            return ray.get_runtime_context().get_node_id()

        self.assertEqual(ray.get(node.remote()), new)
        ray.shutdown()
        self.over()

    def test_two_drivers_begin_at_once(self):
        """They use one session; whoever only asks is no driver."""
        self.assertIsNone(_cluster.ask("auto", "nodes"))
        text = (
            "import ray, sys\nray.init(namespace='n', log_to_driver=False)\nc = ray.get_runtime_context()\nprint(c.get_session_name(), flush=True)\n"
            "sys.stdin.readline()\n")
        both = [self.program(text) for _ in range(2)]
        self.assertEqual(len({p.stdout.readline() for p in both}), 1)
        self.assertEqual(len(_cluster.ask("auto", "nodes")), 2)
        for process in both:
            with contextlib.suppress(BrokenPipeError):
                process.communicate("\n", timeout=LIMIT)
        self.over()


if __name__ == "__main__":
    unittest.main()
