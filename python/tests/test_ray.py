"""Ray's names: the programs of ray_programs print what Ray 2.60 prints, as recorded by record_ray.py; and failures."""

import contextlib
import glob
import os
import signal
import subprocess
import sys
import time
import unittest

from record_ray import HERE, said

LIMIT = 120  # seconds that nothing here takes, unless it hangs


def run(program, **options):
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def processes(word):
    """The processes that have a word in their environment."""
    found = []
    for path in glob.glob("/proc/[0-9]*/environ"):
        with contextlib.suppress(OSError):
            with open(path, "rb") as f:
                if word.encode() in f.read():
                    found.append(int(path.split("/")[2]))
    return found


class Programs(unittest.TestCase):
    def program(self, name):
        out = subprocess.run([sys.executable, os.path.join(HERE, name + ".py")], capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(out.returncode, 0, out.stderr)
        with open(os.path.join(HERE, name + ".out")) as f:
            self.assertEqual(said(out.stdout), f.read(), out.stderr)

    def test_tasks(self):
        self.program("tasks")

    def test_actors(self):
        self.program("actors")

    def test_places(self):
        self.program("places")

    def test_pools(self):
        self.program("pools")

    def test_nodes(self):
        self.program("nodes")

    def test_arrays(self):
        try:
            import numpy  # noqa: F401
        except ImportError:
            self.skipTest("there is no NumPy")
        self.program("arrays")


class Failures(unittest.TestCase):
    def finish(self, program, **options):
        process = run(program, **options)
        out, err = process.communicate(timeout=LIMIT)
        self.assertEqual(process.returncode, 0, err)
        return out

    def test_a_killed_driver_leaves_nothing(self):
        word = f"RAY_TEST_WORD={os.getpid()}-killed"
        process = run(
            "import ray, sys, time\nray.init(num_cpus=2)\n"
            "@ray.remote\nclass A:\n    def hello(self): return 1\n"
            "a = A.options(lifetime='detached', name='a').remote()\nray.get(a.hello.remote())\n"
            "keep = ray.put(b'x' * 1000000)\nprint('up', flush=True)\ntime.sleep(1000)\n",
            env={**os.environ, "RAY_TEST_WORD": word.partition("=")[2]})
        self.assertEqual(process.stdout.readline(), "up\n")
        self.assertGreater(len(processes(word)), 2)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(LIMIT)
        process.stdout.close()
        process.stderr.close()
        end = time.monotonic() + LIMIT
        while processes(word):
            self.assertLess(time.monotonic(), end, f"these are left: {processes(word)}")
            time.sleep(0.05)

    def test_two_drivers(self):
        """The second uses the first one's cluster: its own actors end with it, and detached ones do not."""
        second = (
            "import ray\nray.init(address='auto', namespace='n')\n"
            "@ray.remote\nclass B:\n    def hello(self): return 'b'\n"
            "print(ray.get(ray.get_actor('a').hello.remote()), ray.util.list_named_actors())\n"
            "b = B.options(name='b').remote(); d = B.options(name='d', lifetime='detached').remote()\n"
            "print(ray.get([b.hello.remote(), d.hello.remote()]), ray.get_runtime_context().get_job_id())\n")
        out = self.finish(
            "import ray, subprocess, sys, time\nray.init(num_cpus=4, namespace='n')\n"
            "@ray.remote\nclass A:\n    def hello(self): return 'a'\n"
            "a = A.options(name='a').remote()\nray.get(a.hello.remote())\n"
            f"print(subprocess.run([sys.executable, '-c', {second!r}], capture_output=True, text=True, check=True).stdout, end='')\n"
            "end = time.monotonic() + 60\n"
            "while 'b' in ray.util.list_named_actors() and time.monotonic() < end: time.sleep(0.05)\n"
            "print(sorted(ray.util.list_named_actors()), ray.get(ray.get_actor('d').hello.remote()))\n")
        self.assertEqual(out, "a ['a']\n['b', 'b'] 02000000\n['a', 'd'] b\n")

    def test_a_lost_node(self):
        """Its actors die, tasks run elsewhere, and objects that a task made there are made again; those that were put are lost."""
        out = self.finish(
            "import ray\nfrom ray.cluster_utils import Cluster\n"
            "cluster = Cluster(initialize_head=True, head_node_args={'num_cpus': 2})\n"
            "node = cluster.add_node(num_cpus=2, resources={'right': 4})\n"
            "ray.init(address=cluster.address, log_to_driver=False)\n"
            "from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as At\n"
            "right = next(n['NodeID'] for n in ray.nodes() if 'right' in n['Resources'])\n"
            "@ray.remote\nclass A:\n    def put(self): return [ray.put(b'p' * 500000)]\n"
            "@ray.remote(scheduling_strategy=At(right, soft=True))\ndef make(): return b'm' * 400000\n"
            "a = A.options(resources={'right': 1}).remote()\nput, = ray.get(a.put.remote())\nmade = make.remote()\nray.wait([made])\n"
            "cluster.remove_node(node)\n"
            "try: ray.get(a.put.remote())\nexcept ray.exceptions.RayActorError as e: print(type(e).__name__)\n"
            "print(len(ray.get(made)))\n"
            "try: ray.get(put)\nexcept ray.exceptions.ObjectLostError as e: print(isinstance(e, ray.exceptions.OwnerDiedError))\n"
            "print([n['Alive'] for n in ray.nodes()].count(True), ray.cluster_resources().get('right'))\n")
        self.assertEqual(out, "ActorDiedError\n400000\nTrue\n1 None\n")

    def test_objects_are_bounded_and_freed(self):
        out = self.finish(
            "import ray, time\nray.init(num_cpus=1, object_store_memory=10_000_000)\n"
            "keep = [ray.put(b'x' * 1_000_000) for _ in range(9)]\n"
            "try: ray.put(b'x' * 2_000_000)\nexcept ray.exceptions.ObjectStoreFullError as e: print('bytes are in use' in str(e))\n"
            "del keep\nend = time.monotonic() + 60\n"
            "while True:\n"
            "    try: print(len(ray.get(ray.put(b'x' * 8_000_000)))); break\n"
            "    except ray.exceptions.ObjectStoreFullError: assert time.monotonic() < end; time.sleep(0.05)\n")
        self.assertEqual(out, "True\n8000000\n")

    def test_names_that_are_not_served(self):
        import ray

        for name in ("data", "tune", "serve", "rllib", "train", "dag"):
            with self.assertRaisesRegex(ImportError, "does not serve"):
                __import__("ray." + name)
        self.assertTrue(ray.__golaunch__)
        with self.assertRaisesRegex(NotImplementedError, "use"):
            ray.timeline()
        with self.assertRaisesRegex(NotImplementedError, "use"):
            ray.init(local_mode=True)
        with self.assertRaisesRegex(NotImplementedError, "py_executable"):
            ray.init(runtime_env={"pip": ["numpy"]})
        self.assertFalse(ray.is_initialized())

    def test_beside_ray(self):
        """An installation beside the real ray is refused in one line."""
        import tempfile

        with tempfile.TemporaryDirectory() as other:
            os.mkdir(os.path.join(other, "ray"))
            open(os.path.join(other, "ray", "_raylet.so"), "w").close()
            process = run("import ray", env={**os.environ, "PYTHONPATH": os.environ.get("PYTHONPATH", "") + ":" + other})
            _, err = process.communicate(timeout=LIMIT)
            self.assertRegex(err.splitlines()[-1], "golaunch-ray .* and ray .* uninstall one")

    def test_the_output_of_workers(self):
        out = self.finish("import ray, time\nray.init(num_cpus=1)\n@ray.remote\ndef f():\n    print('hello')\nray.get(f.remote())\nray.shutdown()\n")
        self.assertRegex(out, r"\(f pid=\d+\)\S* hello\n")


if __name__ == "__main__":
    unittest.main()
