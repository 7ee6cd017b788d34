import contextlib
import os
import sys
import tempfile
import unittest

from golaunch import VirtualCluster, WorkerGroup

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
LIMIT = 60  # seconds that nothing here takes, unless it hangs


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.addCleanup(self.dir.cleanup)

    def path(self, name):
        return os.path.join(self.dir.name, name)

    def cluster(self, sizes, **options):
        cluster = VirtualCluster(sizes, **options)
        self.addCleanup(cluster.close)
        return cluster

    def group(self, sizes=2, target="workers:Worker", *args, cluster=None, **options):
        options.setdefault("show_output", False)
        return WorkerGroup(cluster or self.cluster(sizes), target, *args, **options)


@contextlib.contextmanager
def stderr_into(path):
    """What is written to the descriptor of standard error, by children too, is in a file."""
    sys.stderr.flush()
    saved = os.dup(2)
    with open(path, "wb") as f:
        os.dup2(f.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
