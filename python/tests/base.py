import contextlib
import os
import sys
import tempfile
import threading
import time
import unittest

from golaunch import VirtualCluster, WorkerGroup

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
LIMIT = 300  # seconds that nothing here takes, unless it hangs: busy machines are slow


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

    def apart(self, do, *args):
        """Calls a function in a thread. The returned result raises the thread's exception."""
        done = []

        def run():
            try:
                done.append(do(*args))
            except BaseException as error:
                done.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()

        def result():
            thread.join(LIMIT)
            self.assertTrue(done, "it hangs")
            if isinstance(done[0], BaseException):
                raise done[0]
            return done[0]

        return result

    def made(self, path):
        """Waits until a file exists."""
        end = time.monotonic() + LIMIT
        while not os.path.exists(path):
            self.assertLess(time.monotonic(), end, path + " is not made")
            time.sleep(0.001)

    def waits(self, cluster, n):
        """Waits until n threads wait for a turn."""
        cluster._wait(lambda: len(cluster._turns.queue) == n, LIMIT, None)


@contextlib.contextmanager
def patched(module, name, value):
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


@contextlib.contextmanager
def patched_environment(**variables):
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def stderr_into(path):
    """Redirects the descriptor of standard error, also for children, to a file."""
    sys.stderr.flush()
    saved = os.dup(2)
    with open(path, "wb") as f:
        os.dup2(f.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
