"""golaunch.Executor has the behaviour of executors of concurrent.futures."""

import concurrent.futures
import os
import signal
import subprocess
import threading
import time
import unittest

from base import LIMIT, Case, patched_environment

from golaunch import Executor, WorkerFailureError
from golaunch.binary import find_binary

_STATE = {"initialized": None}


def _initialize(value):
    _STATE["initialized"] = value


def _initialized():
    return _STATE["initialized"]


def _fails():
    raise RuntimeError("no worker for this")


def _divide(x, y):
    return x // y


def _until(path, then=None):
    while not os.path.exists(path):
        time.sleep(0.001)
    return then


def _meet(directory, count):
    """Ends when the given number of calls run at the same time."""
    open(os.path.join(directory, str(os.getpid())), "w").close()
    while len(os.listdir(directory)) < count:
        time.sleep(0.001)
    return os.environ["GOLAUNCH_NODE"]


def _meet_until(directory, path):
    open(os.path.join(directory, os.environ["GOLAUNCH_NODE"]), "w").close()
    return _until(path, os.environ["GOLAUNCH_NODE"])


def _die_once(path):
    if not os.path.exists(path):
        open(path, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"


def _die():
    os.kill(os.getpid(), signal.SIGKILL)


def _generator():
    yield 1


class Test(Case):
    def executor(self, *args, **options):
        options.setdefault("show_output", False)
        executor = Executor(*args, **options)
        self.addCleanup(executor.shutdown, cancel_futures=True)
        return executor

    def test_calls(self):
        e = self.executor(max_workers=2)
        self.assertEqual(e.submit(pow, 2, 8).result(LIMIT), 256)
        self.assertEqual(e.submit(_divide, x=7, y=2).result(LIMIT), 3)
        self.assertEqual(e.submit(dict, fn=1, self=2).result(LIMIT), {"fn": 1, "self": 2})
        self.assertEqual(list(e.map(pow, range(200), [2] * 200, timeout=LIMIT)), [i * i for i in range(200)])
        self.assertEqual(list(e.map(pow, range(200), [2] * 200, timeout=LIMIT, chunksize=7)), [i * i for i in range(200)])
        results = e.map(_divide, [5, 5, 5], [1, 0, 1], timeout=LIMIT)
        self.assertEqual(next(results), 5)
        with self.assertRaises(ZeroDivisionError):
            next(results)
        self.assertEqual({f.result() for f in concurrent.futures.as_completed([e.submit(abs, -i) for i in range(20)], LIMIT)}, set(range(20)))

    def test_an_exception_has_the_workers_traceback(self):
        error = self.executor(max_workers=1).submit(_divide, 1, 0).exception(LIMIT)
        self.assertIs(type(error), ZeroDivisionError)
        self.assertIn("return x // y", str(error.__cause__))

    def test_what_cannot_be_pickled(self):
        e = self.executor(max_workers=1)
        self.assertRaisesRegex(TypeError, "cannot be pickled", e.submit(pow, threading.Lock(), 2).result, LIMIT)
        self.assertRaisesRegex(Exception, "pickle", e.submit(threading.Lock).result, LIMIT)
        self.assertRaisesRegex(TypeError, "returned a generator", e.submit(_generator).result, LIMIT)
        self.assertEqual(e.submit(pow, 2, 3).result(LIMIT), 8)

    def test_an_initializer_runs_in_each_worker(self):
        e = self.executor(max_workers=2, initializer=_initialize, initargs=("ready",))
        self.assertEqual([f.result(LIMIT) for f in [e.submit(_initialized) for _ in range(4)]], ["ready"] * 4)
        self.assertRaisesRegex(concurrent.futures.BrokenExecutor, "no worker for this", self.executor, max_workers=1, initializer=_fails)
        self.assertRaises(TypeError, Executor, initializer=1)
        self.assertRaises(ValueError, Executor, max_workers=0)

    def test_cancellation(self):
        e = self.executor(max_workers=1)
        running, queued, last = e.submit(_until, self.path("go"), 1), e.submit(pow, 2, 2), e.submit(pow, 2, 3)
        self.assertTrue(running.running())
        self.assertFalse(running.cancel())
        self.assertTrue(queued.cancel())
        open(self.path("go"), "w").close()
        self.assertEqual((running.result(LIMIT), last.result(LIMIT)), (1, 8))
        self.assertRaises(concurrent.futures.CancelledError, queued.result, 0)

    def test_shutdown(self):
        with self.executor(max_workers=1) as e:
            futures = [e.submit(pow, 2, i) for i in range(10)]
        self.assertEqual([f.result(0) for f in futures], [2 ** i for i in range(10)])
        self.assertRaises(RuntimeError, e.submit, pow, 2, 2)
        e = self.executor(max_workers=1)
        running, queued = e.submit(_until, self.path("go"), 1), e.submit(pow, 2, 2)
        e.shutdown(wait=False, cancel_futures=True)
        self.assertTrue(queued.cancelled())
        open(self.path("go"), "w").close()
        self.assertEqual(running.result(LIMIT), 1)
        e.shutdown()

    def test_calls_are_spread_over_nodes(self):
        os.mkdir(self.path("here"))
        e = self.executor(self.cluster([2, 2]))
        futures = [e.submit(_meet, self.path("here"), 2) for _ in range(2)]
        self.assertEqual(len({f.result(LIMIT) for f in futures}), 2)

    def test_a_call_whose_worker_dies_runs_again(self):
        e = self.executor(max_workers=2)
        self.assertEqual(e.submit(_die_once, self.path("died")).result(LIMIT), "survived")
        error = self.executor(max_workers=2, max_retries=1).submit(_die).exception(LIMIT)
        self.assertIsInstance(error, WorkerFailureError)
        self.assertEqual(error.signal, signal.SIGKILL)
        self.assertTrue(error.node)

    def test_a_call_whose_node_dies_runs_again(self):
        """The call runs again on another node, and so do later calls."""
        env = {**os.environ, "GOLAUNCH_ALLOW_RUN_AS_ROOT": "true", "GOLAUNCH_TOKEN": "a token of this test alone, long enough"}

        def started(*args, says):
            process = subprocess.Popen([find_binary(), *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
            self.addCleanup(process.stdout.close)
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)
            for line in process.stdout:
                if says in line:
                    return process, line
            self.fail(f"{args} has ended")

        _, line = started("coordinator", "--listen", "127.0.0.1:0", "--lease", "5s", "--state-dir", self.path("state"), says="golaunch agent --coordinator")
        address = line.split()[-1]
        agents = [started("agent", "--coordinator", address, "--name", f"x{i}", "--address", f"127.0.0.{i + 1}", "--log-dir", self.path("logs"),
                          says=" is in the cluster of ")[0] for i in range(2)]
        with patched_environment(GOLAUNCH_TOKEN=env["GOLAUNCH_TOKEN"]):
            e = self.executor(self.cluster([1, 1], address=address))
        os.mkdir(self.path("here"))
        futures = [e.submit(_meet_until, self.path("here"), self.path("go")) for _ in range(2)]
        for name in ("x0", "x1"):
            self.made(os.path.join(self.path("here"), name))
        agents[1].kill()
        agents[1].wait()
        self.assertEqual(e.submit(_until, self.path("go"), 1).cancel(), True)
        open(self.path("go"), "w").close()
        self.assertEqual([f.result(LIMIT) for f in futures], ["x0", "x0"])
        self.assertEqual(list(e.map(pow, range(5), [2] * 5, timeout=LIMIT)), [0, 1, 4, 9, 16])

    def test_all_workers_end(self):
        e = self.executor(max_workers=1, max_restarts=0)
        first, second = e.submit(_die), e.submit(pow, 2, 2)
        for future in first, second:
            self.assertIsInstance(future.exception(LIMIT), (concurrent.futures.BrokenExecutor, WorkerFailureError))
        self.assertRaises(concurrent.futures.BrokenExecutor, e.submit, pow, 2, 2)


if __name__ == "__main__":
    unittest.main()
