"""The programs of README.md, docs/groups.md and the pages from-*.md run."""

import os
import re
import subprocess
import sys
import unittest

from base import LIMIT, Case

TREE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
TRAINER = """
import os
class Policy:
    def __init__(self, lr):
        self.rank = int(os.environ["RANK"])
    def train_step(self, batch):
        return self.rank / 10 + len(batch)
"""
ENGINE = """
class Engine:
    asleep = False
    def sleep(self):
        self.asleep = True
    def wake_up(self):
        self.asleep = False
    def generate(self):
        assert not self.asleep
        return [1, 2, 3]
"""


def blocks(page):
    with open(os.path.join(TREE, page)) as f:
        return [b for b in re.findall(r"(?ms)^```python\n(.*?)^```", f.read())]


class Programs(Case):
    def run_program(self, text, before=""):
        with open(self.path("trainer.py"), "w") as f:
            f.write(TRAINER)
        with open(self.path("main.py"), "w") as f:
            f.write("batch = [1, 2]\n" + before + text)
        out = subprocess.run([sys.executable, "main.py"], cwd=self.dir.name, capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(out.returncode, 0, out.stderr)
        return out.stdout

    def test_the_executor(self):
        self.assertEqual(self.run_program(blocks("docs/groups.md")[-1]), "328350\n")

    def test_the_first_program(self):
        self.assertEqual(self.run_program(blocks("docs/groups.md")[0]), "2.7\n")

    def test_the_readme(self):
        program, = [b for b in blocks("README.md") if "VirtualCluster" in b]
        self.assertIn('address="n0:29400"', program)
        # The cluster of the README is a cluster on this machine, with declared GPUs.
        self.assertEqual(self.run_program(program.replace('address="n0:29400"', "declare_gpus=True")), "2.7\n")

    def test_the_calls(self):
        """Each line of the page's second program, with a separate group."""
        from golaunch import WorkerGroup

        cluster = self.cluster(2)
        group = WorkerGroup(cluster, "workers:Worker", show_output=False)
        text = blocks("docs/groups.md")[1].replace('"step", batch', '"add", 1')
        awaited = [line for line in text.splitlines() if "await" in line]
        plain = "\n".join(line for line in text.splitlines() if "await" not in line)
        exec(plain, {"group": group})
        import asyncio

        space = {"group": group, "losses": group.run_all_workers_single_data("add", 1)}
        exec("async def main(losses):\n" + "\n".join("    " + line for line in awaited) + "\n    return losses", space)
        self.assertEqual(asyncio.run(space["main"](space["losses"])), [1, 2])

    def test_the_turns(self):
        """On declared GPUs, unknown to the driver."""
        with open(self.path("rollout.py"), "w") as f:
            f.write(ENGINE)
        program = next(b for b in blocks("docs/groups.md") if "active(" in b)
        program = "from golaunch import VirtualCluster, WorkerGroup\nif __name__ == '__main__':\n    " + program.replace("\n", "\n    ")
        said = self.run_program(program.replace("VirtualCluster(8,", "VirtualCluster(2, declare_gpus=True,") + "\n    print(losses)")
        self.assertEqual(said, "[3.0, 3.1]\n")

    def test_the_failure(self):
        from golaunch import WorkerFailureError, WorkerGroup

        cluster = self.cluster(2)
        policy = WorkerGroup(cluster, "workers:Worker", show_output=False)
        text = next(b for b in blocks("docs/groups.md") if "except WorkerFailureError" in b).replace('"train_step", batch', '"kill", 1')
        space = {"policy": policy, "WorkerFailureError": WorkerFailureError}
        exec(text.replace("    error.", "    seen = error; error."), space)
        self.assertEqual((space["seen"].rank, space["seen"].cause), (1, "killed"))
        self.assertEqual(policy.run_all_workers_single_data("add", 1), [1, 2])


if __name__ == "__main__":
    unittest.main()
