"""Workers that train with torch, and the example that trains with torch."""

import os
import subprocess
import sys
import unittest
from importlib.util import find_spec

from base import LIMIT, Case

EXAMPLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "grpo-toy", "main.py")


@unittest.skipIf(find_spec("torch") is None, "torch is not there")
class Torch(Case):
    def test_gloo(self):
        """An all-reduce among the workers of two nodes; the second group is forked from a process
        with the imports of the first."""
        cluster = self.cluster([2, 2])
        for _ in range(2):
            g = self.group(target="workers:Gloo", cluster=cluster, preload="torch,torch.distributed")
            self.assertEqual(g.run_all_workers_single_data("reduce", 1).result(LIMIT), [10.0] * 4)
            self.assertTrue(g.shutdown())

    def test_grpo_toy(self):
        # SIGABRT makes it print the stacks of its threads.
        out = subprocess.run(["timeout", "-k", "10", "-s", "ABRT", "300", sys.executable, "-X", "faulthandler", EXAMPLE, self.dir.name], capture_output=True, text=True)
        self.assertEqual(out.returncode, 0, out.stdout + out.stderr)
        self.assertIn("failed (killed)", out.stdout)
        last = out.stdout.splitlines()[-1]
        self.assertTrue(last.startswith("step 30: the wanted token has a probability of "), out.stdout)
        self.assertGreater(float(last.split()[-1]), 0.9)


if __name__ == "__main__":
    unittest.main()
