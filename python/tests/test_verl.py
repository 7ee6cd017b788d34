"""verl itself on the module ray: its own tests, a small PPO, and the program of docs/from-verl.md."""

import importlib
import os
import re
import subprocess
import sys
import unittest
from unittest import mock

from base import LIMIT, Case

os.environ["RAY_preload_python_modules"] = "verl.single_controller.base"  # a worker is a fork, which imports nothing
try:
    import ray
    import verl_workers
    import verl.single_controller.ray  # noqa: F401
except ImportError as error:
    ray, why = None, f"verl cannot be imported: {error}"


@unittest.skipIf(ray is None, globals().get("why"))
class Verl(Case):
    @classmethod
    def setUpClass(cls):
        cls.addClassCleanup(ray.shutdown)
        ray.init(num_cpus=100, num_gpus=8)

    def tearDown(self):
        for group in ray.util.placement_group_table():
            ray.util.remove_placement_group(ray.util.placement_group.PlacementGroup(ray.PlacementGroupID.from_hex(group)))

    def test_its_own_tests(self):
        """The tests that need no GPU, and the other tests that use none: all share a session."""
        for name, functions in (
            ("auto_padding_on_cpu", 1), ("decorator_on_cpu", 3), ("fused_workers_on_cpu", 1), ("get_set_dispatch_collect_cpu", 1), ("ray_local_envs_on_cpu", 2),
            ("ray_utils_on_cpu", 3), ("colocated_workers", 1), ("colocated_workers_fused", 1), ("nested_worker", 1),
        ):
            module = importlib.import_module("tests.single_controller.test_" + name)
            tests = [test for key, test in sorted(vars(module).items()) if key.startswith("test_")]
            self.assertEqual(len(tests), functions, name)
            for test in tests:
                with self.subTest(module=name, test=test.__name__), mock.patch("ray.init"), mock.patch("ray.shutdown"):
                    test(*[None] * test.__code__.co_argcount)
                self.tearDown()

    def test_ppo(self):
        rewards, weights = ray.get(verl_workers.TaskRunner.remote().run.remote(25), timeout=LIMIT)
        self.assertLess(rewards[0], 0.6)
        self.assertGreater(sum(rewards[-5:]) / 5, 0.8)
        self.assertTrue(weights[0].equal(weights[1]))


@unittest.skipIf(ray is None, globals().get("why"))
class Docs(Case):
    def test_program(self):
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "from-verl.md")) as f:
            program, = re.findall(r"(?ms)^```python\n(.*?)^```", f.read())
        with open(self.path("main.py"), "w") as f:
            f.write(program.replace("process_on_nodes=[8]", "process_on_nodes=[2], use_gpu=False").replace("ray.init()", "ray.init(num_cpus=20)"))
        out = subprocess.run([sys.executable, "main.py"], cwd=self.dir.name, capture_output=True, text=True, timeout=2 * LIMIT)
        self.assertEqual((out.returncode, out.stdout), (0, "[0, 1]\ntensor(4.)\n"), out.stderr)


if __name__ == "__main__":
    unittest.main()
