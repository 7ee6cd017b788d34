import logging
import os
import pickle
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest

import golaunch.group
from base import LIMIT, Case, patched, stderr_into
from golaunch import GolaunchError, ResultTooLarge, VirtualCluster, WorkerFailureError, WorkerGroup
from golaunch import wire
from golaunch.errors import GroupDeadError


class Failures(Case):
    def test_no_descriptors(self):
        """Workers are accepted later, and meanwhile nothing polls."""
        c = self.cluster([2])
        warned, more = [], threading.Condition()

        class Handler(logging.Handler):
            def emit(self, record):
                with more:
                    warned.append((time.monotonic(), record.getMessage()))
                    more.notify_all()

        handler = Handler()
        logging.getLogger("golaunch").addHandler(handler)
        self.addCleanup(logging.getLogger("golaunch").removeHandler, handler)
        ready = []
        begin = threading.Thread(target=lambda: ready.append(self.group(cluster=c)), daemon=True)
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        kept = []
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 1, limit[1]))
            with self.assertRaises(OSError):
                while True:
                    kept.append(os.open("/dev/null", os.O_RDONLY))
            begin.start()
            with more:
                self.assertTrue(more.wait_for(lambda: len(warned) == 3, LIMIT), warned)
        finally:
            for fd in kept:
                os.close(fd)
            resource.setrlimit(resource.RLIMIT_NOFILE, limit)
        begin.join(LIMIT)
        self.assertEqual(ready[0].run_all_workers_single_data("add", 1).result(LIMIT), [1, 2])
        self.assertIn("no worker can be let in for the moment: Too many open files", warned[0][1])
        self.assertGreater(warned[2][0] - warned[0][0], 0.8)

    def test_a_worker_dies(self):
        g = self.group([2, 1], use_gpus=False)
        waiting = g.run_all_workers_single_data("kill", 1)
        also = g.run_single_worker_single_data("sleep", 2, 60)
        with self.assertRaises(WorkerFailureError) as caught:
            waiting.result(LIMIT)
        e = caught.exception
        self.assertEqual((e.rank, e.node, e.gpu, e.cause, e.exit_code, e.signal), (1, "n0", None, "killed", 137, 9))
        self.assertIn("rank 1 on n0 died of SIGKILL", str(e))
        self.assertIn("killed: ", e.verdict)
        self.assertIn("my last words", e.last_words)
        # Callers of other workers of the group get an error too, because all are stopped.
        with self.assertRaises(WorkerFailureError) as other:
            also.result(LIMIT)
        self.assertEqual(other.exception.rank, 1)
        self.assertEqual(g.run_all_workers_single_data("add", 1).result(LIMIT), [1, 2, 3])
        self.assertEqual({w.attempt for w in g.workers}, {1})
        self.assertEqual(g.restart_failed_workers(LIMIT), [])

    def test_the_verdict_comes_after_the_next_worker(self):
        """golaunch's own processes are stopped for a while. Without a verdict, the caller gets the
        cause "unknown"."""
        for verdict in ("late", "never"):
            with self.subTest(verdict):
                g = self.group(2, restart="worker")
                pids, told, late = [w.pid for w in g.workers], g._told, threading.Event()

                def hold(what, g=g, told=told, late=late, verdict=verdict):
                    if not what.get("failure") or late.is_set():
                        told(what)
                    elif verdict == "late":
                        g.cluster._after(0.01, lambda: hold(what))

                g._told = hold
                f = g.run_all_workers_single_data("sleep_on", 1, 600)
                stream = g.run_single_worker_single_data("count", 1, 10 ** 9)
                self.assertEqual(g.run_single_worker_single_data("add", 0, 1).result(LIMIT), 1)
                os.kill(pids[1], signal.SIGKILL)
                end = time.monotonic() + LIMIT
                while g.workers[1].pid == pids[1] or g.workers[1].state != "ready":
                    self.assertLess(time.monotonic(), end)
                    with self.assertRaises(TimeoutError):
                        f.result(0.01)
                late.set()
                with self.assertRaises(WorkerFailureError) as caught:
                    f.result(LIMIT)
                self.assertEqual((caught.exception.rank, caught.exception.cause), (1, "killed" if verdict == "late" else "unknown"))
                with self.assertRaises(WorkerFailureError):
                    stream.result(LIMIT)
                self.assertEqual(g.run_all_workers_single_data("add", 1).result(LIMIT), [1, 2])
                self.assertEqual([s["calls"] for s in g.get_worker_status()], [0, 0])

    def test_a_worker_that_comes_late(self):
        """Workers of a failed attempt are not accepted: it is about to be stopped."""
        g = self.group(2)
        late = g.workers[0]
        with g.cluster._lock:
            late.attempt = -1
            g._failed(WorkerFailureError("worker 1 is gone", rank=1), {"rank": 1, "attempt": 0, "node": "n0"})
            self.assertFalse(g._hello(None, {"job": g.job, "rank": 0, "attempt": 0}))

    def test_what_a_call_was_made_with(self):
        """The arguments keep their values, also when the worker comes later."""
        g = self.group(1)
        os.kill(g.workers[0].pid, signal.SIGKILL)
        with self.assertRaises(WorkerFailureError):
            g.run_single_worker_single_data("sleep", 0, 600).result(LIMIT)
        mine = bytearray(b"A" * (1 << 20))
        f = g.run_single_worker_single_data("bytes_of", 0, pickle.PickleBuffer(mine))
        mine[:] = b"B" * len(mine)
        self.assertEqual(f.result(LIMIT), [b"A" * (1 << 20)])

    def test_one_worker_restarts_alone(self):
        g = self.group(3, restart="worker")
        pids = [w.pid for w in g.workers]
        other = g.run_single_worker_single_data("sleep", 0, 0.5)
        with self.assertRaises(WorkerFailureError) as caught:
            g.run_single_worker_single_data("kill", 1, 1).result(LIMIT)
        self.assertEqual(caught.exception.rank, 1)
        self.assertEqual(g.run_all_workers_single_data("add", 0).result(LIMIT), [0, 1, 2])
        self.assertEqual(other.result(LIMIT), 0)
        now = [w.pid for w in g.workers]
        self.assertEqual((now[0], now[2]), (pids[0], pids[2]))
        self.assertNotEqual(now[1], pids[1])

    def test_other_groups_go_on(self):
        cluster = self.cluster(2, colocate=2)
        one, two = self.group(cluster=cluster, name="one"), self.group(cluster=cluster, name="two")
        pids = [w.pid for w in two.workers]
        with self.assertRaises(WorkerFailureError):
            one.run_all_workers_single_data("kill", 0).result(LIMIT)
        self.assertEqual([r[1] for r in two.run_all_workers_single_data("who")], pids)
        self.assertEqual(one.run_all_workers_single_data("add", 0).result(LIMIT), [0, 1])

    def test_the_budget_ends(self):
        g = self.group(2, max_restarts=1)
        with self.assertRaises(GroupDeadError) as caught:
            for _ in range(20):
                try:
                    g.run_all_workers_single_data("kill", 0).result(LIMIT)
                except GroupDeadError:
                    raise
                except WorkerFailureError as error:
                    self.assertIn(error.rank, (0, 1))
        self.assertEqual((caught.exception.rank, caught.exception.cause), (0, "killed"))
        self.assertEqual([s["state"] for s in g.get_worker_status()], ["ended", "ended"])
        self.assertEqual(g.restart_failed_workers(LIMIT), [0, 1])
        self.assertEqual(g.run_all_workers_single_data("add", 1).result(LIMIT), [1, 2])

    def test_the_third_time_is_a_bug(self):
        """A group ends with the verdict of golaunch, which knows the earlier events."""
        g = self.group(1, max_restarts=20)
        with self.assertRaises(GroupDeadError) as caught:
            for _ in range(20):
                try:
                    g.run_all_workers_single_data("kill", 0).result(LIMIT)
                except GroupDeadError:
                    raise
                except WorkerFailureError as error:
                    self.assertIn("(restart: ", error.verdict)
        self.assertEqual(caught.exception.cause, "killed")
        self.assertIn("(stop: it happened 3 times in a row", caught.exception.verdict)

    def test_no_restart(self):
        g = self.group(2, restart_on_failure=False)
        with self.assertRaises(WorkerFailureError):
            g.run_all_workers_single_data("kill", 1).result(LIMIT)
        self.cluster_says(g)
        with self.assertRaises(GroupDeadError):
            g.run_all_workers_single_data("add", 1).result(LIMIT)

    def cluster_says(self, group):
        """Waits until the controller knows that the group is over."""
        group.cluster._wait(lambda: group._dead, LIMIT, None)

    def test_exceptions(self):
        g = self.group(3)
        f = g.run_all_workers_single_data("boom", "why")
        with self.assertRaises(WorkerFailureError) as caught:
            f.result(LIMIT)
        e = caught.exception
        self.assertEqual((e.cause, e.node, e.method), ("exception", "n0", "boom"))
        self.assertIsInstance(e.__cause__, KeyError)
        self.assertIn('raise KeyError(text)', e.remote_traceback)
        self.assertNotIn("golaunch/worker.py", e.remote_traceback)
        self.assertEqual(sorted(f.exceptions(LIMIT)), [0, 1, 2])
        with self.assertRaisesRegex(WorkerFailureError, "Strange: strange") as caught:
            g.run_all_workers_single_data("strange_boom").result(LIMIT)
        self.assertIsNone(caught.exception.__cause__)
        with self.assertRaisesRegex(WorkerFailureError, "has no method 'nothing'"):
            g.run_all_workers_single_data("nothing").result(LIMIT)
        with self.assertRaisesRegex(WorkerFailureError, "pickle"):
            g.run_all_workers_single_data("unpicklable").result(LIMIT)
        with self.assertRaisesRegex(WorkerFailureError, "SystemExit: 3"):
            g.run_single_worker_single_data("leave", 0, 0, 3, hard=False).result(LIMIT)
        self.assertEqual(g.run_all_workers_single_data("add", 1), [1, 2, 3])
        self.assertEqual({w.attempt for w in g.workers}, {0})

    def test_an_echo(self):
        """A call that fails because another worker died adds no second error."""
        g = self.group(2)
        for _ in range(2):
            with self.assertRaises(WorkerFailureError) as caught:
                g.run_all_workers_single_data("kill_and_echo", g.workers[1].pid).result(LIMIT)
            self.assertEqual((caught.exception.rank, caught.exception.cause), (1, "killed"))
            g.restart_failed_workers(LIMIT)

    def test_a_failure_is_told_before_others_answer(self):
        g = self.group(3)
        began = time.monotonic()
        f = g.run_all_workers_single_data("boom_on", 1)
        with self.assertRaises(WorkerFailureError) as caught:
            f.result(LIMIT)
        self.assertEqual(caught.exception.rank, 1)
        self.assertLess(time.monotonic() - began, 30)
        f.cancel()

    def test_a_worker_exits_in_a_call(self):
        g = self.group(2)
        with self.assertRaises(WorkerFailureError) as caught:
            g.run_all_workers_single_data("leave", 1, 7).result(LIMIT)
        self.assertEqual((caught.exception.rank, caught.exception.exit_code), (1, 7))
        g.restart_failed_workers(LIMIT)
        with self.assertRaises(WorkerFailureError) as caught:
            g.run_single_worker_single_data("leave", 1, 1, 0).result(LIMIT)
        self.assertEqual((caught.exception.rank, caught.exception.cause, caught.exception.exit_code), (1, "exited", 0))
        with self.assertRaisesRegex(WorkerFailureError, "exited with code 0 in a call: it is not started again"):
            g.run_single_worker_single_data("add", 1, 1).result(LIMIT)
        self.assertEqual(g.run_single_worker_single_data("add", 0, 1).result(LIMIT), 1)
        g.restart_failed_workers(LIMIT)
        self.assertEqual(g.run_all_workers_single_data("add", 1).result(LIMIT), [1, 2])

    def test_a_class_that_cannot_be_made(self):
        cluster = self.cluster([2, 1])
        with self.assertRaisesRegex(WorkerFailureError, "it cannot be made") as caught:
            WorkerGroup(cluster, "workers:Unmakeable", 2, show_output=False)
        self.assertEqual((caught.exception.rank, caught.exception.node), (2, "n1"))
        with self.assertRaisesRegex(WorkerFailureError, r"(?s)absent:Class cannot be imported on node n[01].*sys.path there is \['"):
            WorkerGroup(cluster, "absent:Class", show_output=False)
        with self.assertRaisesRegex(WorkerFailureError, "workers:Absent cannot be imported"):
            WorkerGroup(cluster, "workers:Absent", show_output=False)
        with self.assertRaisesRegex(ValueError, "module:Class"):
            WorkerGroup(cluster, "workers", show_output=False)
        self.assertEqual(cluster.groups, [])
        self.assertEqual(self.group(cluster=cluster).run_all_workers_single_data("add", 1), [1, 2, 3])

    def test_a_class_that_cannot_be_made_again(self):
        g = self.group(1, "workers:MadeOnce", self.path("once"), max_restarts=1)
        with self.assertRaises(WorkerFailureError):
            g.run_all_workers_single_data("die").result(LIMIT)
        with self.assertRaisesRegex(GroupDeadError, "(?s)MadeOnce|not again|exited with code"):
            g.run_all_workers_single_data("die").result(LIMIT)

    def test_a_result_that_is_too_large(self):
        g = self.group(2, max_result_bytes="1MB")
        with self.assertRaisesRegex(ResultTooLarge, "the result has 2000.* bytes, and max_result_bytes of the group is 1000000"):
            g.run_all_workers_single_data("large", 2000000).result(LIMIT)
        self.assertEqual([len(r) for r in g.run_all_workers_single_data("large", 900000)], [900000, 900000])

    def test_a_memory_limit(self):
        g = self.group(1, memory_limit="512MiB")
        with self.assertRaisesRegex(WorkerFailureError, "MemoryError"):
            g.run_all_workers_single_data("allocate", 1 << 30).result(LIMIT)
        self.assertEqual(g.run_all_workers_single_data("allocate", 1 << 20), [1 << 20])

    def test_a_worker_that_prints_and_forks(self):
        path = self.path("shown")
        with stderr_into(path):
            g = self.group(2, show_output=True)
            g.run_all_workers_single_data("say", "hello of one").result(LIMIT)
            children = g.run_all_workers_single_data("fork").result(LIMIT)
            f = g.run_all_workers_single_data("sleep", 60)
            os.kill(g.workers[0].pid, signal.SIGKILL)  # the child still has the inherited descriptors
            with self.assertRaises(WorkerFailureError) as caught:
                f.result(LIMIT)
            self.assertEqual((caught.exception.rank, caught.exception.cause), (0, "killed"))
            g.restart_failed_workers(LIMIT)
            gone(self, children)  # also of the other worker
            g.cluster.close()
        with open(path) as f:
            self.assertIn("[r1 n0] hello of one", f.read())

    def test_a_worker_hangs(self):
        g = self.group(2)
        f = g.run_all_workers_single_data("sleep_on", 1, 60)
        self.assertEqual(next(iter(f.as_completed(LIMIT))), (0, 0))
        with self.assertRaises(TimeoutError):
            f.result(0.3)
        status = g.get_worker_status()
        self.assertEqual([s["method"] for s in status], [None, "sleep_on"])
        self.assertEqual(g.detect_stuck_workers(after=1000), [])
        stuck = g.detect_stuck_workers(after=0.2)
        self.assertEqual([s["rank"] for s in stuck], [1])
        self.assertIn("sleep_on", stuck[0]["stacks"])
        usage = g.get_resource_usage()
        self.assertEqual(sorted(usage), [0, 1])
        self.assertGreater(usage[0]["memory_bytes"], 1 << 20)
        f.cancel()
        self.assertEqual(g.run_all_workers_single_data("add", 1).result(LIMIT), [1, 2])

    def test_a_group_that_has_ended(self):
        cluster = self.cluster(2)
        g = self.group(cluster=cluster)
        f = g.run_all_workers_single_data("sleep", 60)
        g.shutdown(force=True)
        self.assertRaises(GroupDeadError, f.result, LIMIT)
        with self.assertRaisesRegex(GroupDeadError, "was shut down"):
            g.run_all_workers_single_data("add", 1).result(LIMIT)
        h = self.group(cluster=cluster)
        f = h.run_all_workers_single_data("sleep", 60)
        cluster.close()
        self.assertRaises(GolaunchError, f.result, LIMIT)
        self.assertRaises(GolaunchError, WorkerGroup, cluster, "workers:Worker")

    def test_a_worker_that_is_not_understood(self):
        """The controller closes its connection for good, and golaunch starts it again."""
        g = self.group(2)
        w, pid = g.workers[0], g.workers[0].pid
        f = g.run_single_worker_single_data("sleep", 0, 0.1)
        with g.cluster._lock:
            w._broken(w._link, wire.ProtocolError("nonsense"))
        with self.assertRaisesRegex(WorkerFailureError, "sent a malformed frame: nonsense"):
            f.result(LIMIT)
        g.cluster._wait(lambda: g._failures.get((1, 0)), LIMIT, None)
        self.assertIn("the controller does not resume this worker: its connection had ended", g._failures[1, 0].last_words)
        self.assertEqual(g.run_all_workers_single_data("add", 1).result(LIMIT), [1, 2])
        self.assertNotEqual(w.pid, pid)

    def test_the_helper_stands_still(self):
        """The end of a group still has a limit."""
        g = self.group(1)
        helper = g.cluster._helper.process.pid
        os.kill(helper, signal.SIGSTOP)
        try:
            f = g.run_all_workers_single_data("sleep", 600)
            with self.assertLogs("golaunch", "WARNING") as logged, patched(golaunch.group, "_ANSWER", 0.5):
                self.assertFalse(g.shutdown(timeout=0.5))
            self.assertIn("may run on until golaunch misses its controller", logged.output[0])
            self.assertRaises(GroupDeadError, f.result, LIMIT)
        finally:
            os.kill(helper, signal.SIGCONT)

    def test_the_helper_dies(self):
        g = self.group(2)
        f = g.run_all_workers_single_data("sleep", 60)
        pids = [w.pid for w in g.workers]
        g.cluster._helper.process.kill()
        with self.assertRaisesRegex(WorkerFailureError, "ended"):
            f.result(LIMIT)
        gone(self, pids)
        g.cluster.close()
        self.assertFalse(os.path.exists(g.cluster._dir))


class Strangers(Case):
    """Nothing from a connection is unpickled before it has shown the key, and then it counts only
    as its own worker."""

    def hello(self, cluster, **facts):
        import json

        s = socket.socket(socket.AF_UNIX)
        self.addCleanup(s.close)
        s.settimeout(LIMIT)
        s.connect(cluster.socket_path)
        wire.send_all(s, *wire.encode(wire.HELLO, 0, body=json.dumps(facts).encode(), codec=wire.JSON, shared=False))
        return s

    def test_strangers(self):
        g = self.group(2)
        key, job = g.cluster._key, g.job
        trap = self.path("trap")

        class Trap:
            def __reduce__(self):
                return os.mkdir, (trap,)

        from golaunch.pickling import dumps

        body, _ = dumps(Trap())
        facts = {"job": job, "rank": 0, "attempt": 5, "node": "n0", "local_rank": 0, "pid": 1}
        for wrong in ({"key": "x" * 64, **facts}, {"key": key, **dict(facts, job="other")}, {"key": key, **dict(facts, rank=7)},
                      {"key": key, **dict(facts, attempt=-5)}, {}):
            s = self.hello(g.cluster, **wrong)
            s.sendall(b"".join(wire.encode(wire.RESULT, 1, body=body)[0]))
            self.closed(g, s)
        def greeting(text):
            return b"".join(wire.encode(wire.HELLO, 0, body=text, codec=wire.JSON, shared=False)[0])

        open_before = len(os.listdir("/proc/self/fd"))
        odd = [greeting(text.encode()) for text in (
            '{"key": "\u00e9"}', '{"key": 7, "job": []}', "[" * 60000, '{"a":' * 10000, "7", '"' + key, f'{{"key": "{key}", "job": ["{job}"]}}',
            f'{{"key": "{key}", "job": "{job}", "rank": 0, "attempt": 5}}')]
        for text in [b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 100, wire.HEADER.pack(wire.HELLO, 0, 0, 0, 0, 1 << 40)] + odd:
            s = socket.socket(socket.AF_UNIX)
            s.settimeout(LIMIT)
            s.connect(g.cluster.socket_path)
            s.sendall(text)
            self.closed(g, s)
            s.close()
        self.assertEqual(len(os.listdir("/proc/self/fd")), open_before)
        self.assertFalse(os.path.exists(trap))
        self.assertEqual(g.run_all_workers_single_data("add", 1), [1, 2])
        self.assertEqual(os.stat(g.cluster._dir).st_mode & 0o777, 0o700)
        self.assertEqual(os.stat(g.cluster.socket_path).st_mode & 0o777, 0o600)

    def closed(self, group, s):
        """Reads the end of a connection, while the cluster has its turns."""
        s.settimeout(0.02)
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            group.cluster._turn()
            try:
                data = s.recv(1)
            except socket.timeout:
                continue
            except ConnectionResetError:
                return
            self.assertEqual(data, b"")
            return
        self.fail("the connection is not closed")

    def test_another_user(self):
        if os.geteuid() != 0:
            self.skipTest("only root can be another user")
        g = self.group(1)
        os.chmod(g.cluster._dir, 0o711)
        os.chmod(g.cluster.socket_path, 0o666)
        code = (
            "import os, socket, sys\nos.chdir(sys.argv[1])\nos.setgid(65534); os.setuid(65534)\ns = socket.socket(socket.AF_UNIX)\ns.settimeout(60)\ns.connect('controller')\n"
            "print('in', flush=True)\nprint(repr(s.recv(1)))")
        p = subprocess.Popen([sys.executable, "-c", code, g.cluster._dir], stdout=subprocess.PIPE, text=True)
        self.assertEqual(p.stdout.readline(), "in\n")
        end = time.monotonic() + LIMIT
        while p.poll() is None and time.monotonic() < end:
            g.cluster._turn()
            time.sleep(0.01)
        self.assertEqual(p.communicate()[0], "b''\n")


CONTROLLER = """
import os, sys, time
sys.path[:0] = {paths!r}
from golaunch import VirtualCluster, WorkerGroup
cluster = VirtualCluster([2, 1], lease=3.0)
g = WorkerGroup(cluster, "workers:Worker", show_output=False)
g.run_all_workers_single_data("fork").result()
print(" ".join(str(w.pid) for w in g.workers), cluster._helper.process.pid, flush=True)
print(cluster._dir, flush=True)
f = g.run_all_workers_single_data("sleep", 60)
try:
    f.result(float(sys.argv[1]))
except TimeoutError:
    pass
f.cancel()
print(g.run_all_workers_single_data("add", 1).result(60), flush=True)
"""


class Controllers(Case):
    def start(self, seconds):
        paths = [p for p in sys.path if p]
        return subprocess.Popen([sys.executable, "-c", CONTROLLER.format(paths=paths), str(seconds)], stdout=subprocess.PIPE, text=True)

    def test_a_controller_that_is_killed(self):
        p = self.start(60)
        pids = [int(w) for w in p.stdout.readline().split()]
        path = p.stdout.readline().strip()
        self.assertTrue(os.path.exists(path))
        p.kill()
        p.wait()
        p.stdout.close()
        gone(self, pids)
        self.assertFalse(os.path.exists(path))

    def test_a_controller_that_is_killed_with_its_helper(self):
        p = self.start(60)
        pids = [int(w) for w in p.stdout.readline().split()]
        os.kill(pids[-1], signal.SIGKILL)
        p.kill()
        p.wait()
        p.stdout.close()
        gone(self, pids)

    def test_a_controller_that_is_stopped_for_three_leases(self):
        p = self.start(0.2)
        p.stdout.readline()
        p.stdout.readline()
        p.send_signal(signal.SIGSTOP)
        time.sleep(9.2)  # the time of the leases, for which the test waits
        p.send_signal(signal.SIGCONT)
        self.assertEqual(p.communicate(timeout=LIMIT)[0], "[1, 2, 3]\n")


class TooLong(Case):
    def test_a_question_that_is_too_long_fails_alone(self):
        cluster = self.cluster(2)
        before = self.group(1, cluster=cluster)
        with self.assertRaisesRegex(ValueError, "512 KiB"):
            self.group(1, cluster=cluster, env={"LONG": "x" * (5 << 20)})
        self.assertEqual(before.run_all_workers_single_data("give", 1).result(LIMIT), [1, 1])
        self.assertEqual(self.group(1, cluster=cluster).run_all_workers_single_data("give", 2).result(LIMIT), [2, 2])


class OtherPython(Case):
    def test_another_python(self):
        other, env = os.environ.get("OTHER_PYTHON"), {}
        if not other:  # the same version, which claims to be another
            with open(self.path("sitecustomize.py"), "w") as f:
                f.write("import sys\nsys.version_info = (3, 99, 1, 'final', 0)\n")
            other, env = sys.executable, {"PYTHONPATH": self.dir.name}
        with self.assertRaisesRegex(WorkerFailureError, r"the controller runs Python 3\.\d+, and node n0 has 3\.\d+\.\d+"):
            self.group(1, python=other, env=env)


def gone(case, pids):
    """Waits for the end of processes that are not children of this one."""
    end = time.monotonic() + LIMIT
    for pid in pids:
        try:
            fd = os.pidfd_open(pid)
        except (ProcessLookupError, AttributeError):
            while os.path.exists(f"/proc/{pid}") and not hasattr(os, "pidfd_open") and time.monotonic() < end:
                time.sleep(0.01)
            continue
        import select

        poll = select.poll()
        poll.register(fd, select.POLLIN)
        left = poll.poll(max(0, end - time.monotonic()) * 1000)
        os.close(fd)
        case.assertTrue(left, f"process {pid} is left")


if __name__ == "__main__":
    unittest.main()
