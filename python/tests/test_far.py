"""A cluster by its address, with workers that cannot reach the controller's socket."""

import array
import hashlib
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
import unittest

import golaunch.group
from base import LIMIT, Case, patched_environment
from golaunch import VirtualCluster, WorkerFailureError, WorkerGroup
from test_failures import gone

COORDINATOR = os.environ.get("TEST_COORDINATOR")


@unittest.skipIf(COORDINATOR is None, "TEST_COORDINATOR names no cluster")
class Far(Case):
    """TEST_COORDINATOR has two nodes."""

    def far(self, target="workers:Worker", *args, **options):
        cluster = self.cluster([2, 1], address=COORDINATOR, token_file=os.environ["TEST_TOKEN"])
        # A worker without the controller's socket, as on another machine, connects through its
        # node's endpoint.
        options.setdefault("show_output", False)
        return _Far(cluster, target, *args, **options)

    def test_calls(self):
        g = self.far()
        self.assertEqual(g.run_all_workers_single_data("add", 1).result(LIMIT), [1, 2, 3])
        self.assertEqual([w._link.shared for w in g.workers], [False] * 3)
        large = os.urandom(5 << 20)
        self.assertEqual(g.run_all_workers_single_data("give", large).result(LIMIT), [large] * 3)
        args = [pickle.PickleBuffer(bytearray(large))] * 2
        self.assertEqual(g.run_single_worker_single_data("bytes_of", 2, *args).result(LIMIT), [large, large])
        self.assertEqual([list(r) for r in g.run_all_workers_single_data("count", 40)][1], list(range(100, 140)))
        with self.assertRaisesRegex(WorkerFailureError, "boom"):
            g.run_all_workers_single_data("boom").result(LIMIT)

    def test_once_per_node(self):
        """An argument for all workers crosses the network once for each of the two nodes, and each
        worker has its own copy."""
        g = self.far()
        large = array.array("Q", os.urandom(32 << 20))
        for _ in range(2):
            before = _sent(g.cluster._helper.process.pid)
            want = hashlib.sha256(large).hexdigest()
            self.assertEqual(g.run_all_workers_single_data("digest_and_clear", pickle.PickleBuffer(large)).result(LIMIT), [want] * 3)
            sent = _sent(g.cluster._helper.process.pid) - before
            self.assertGreater(sent, 2 * (32 << 20))
            self.assertLess(sent, 2.2 * (32 << 20))
            large[7] ^= 1
        # Each worker gets its own part: nothing else crosses the network.
        each = [pickle.PickleBuffer(os.urandom(5 << 20)) for _ in range(3)]
        before = _sent(g.cluster._helper.process.pid)
        self.assertEqual(
            g.run_all_workers_multiple_data("digest_and_clear", each).result(LIMIT), [hashlib.sha256(e).hexdigest() for e in each])
        self.assertLess(_sent(g.cluster._helper.process.pid) - before, 3.3 * (5 << 20))

    def test_a_worker_that_does_not_read(self):
        """Other workers get their arguments, and a call with too much data waits."""
        g = self.far()
        w = g.workers[0]
        os.kill(w.pid, signal.SIGSTOP)
        self.addCleanup(lambda: os.kill(w.pid, signal.SIGCONT))
        each = [os.urandom(8 << 20) for _ in range(2)]
        queued, futures = [], []

        def call():
            for i in range(32):
                futures.append(w.call("digest_and_clear", pickle.PickleBuffer(each[i % 2])))
                queued.append(w._link.queued)

        thread = threading.Thread(target=call)
        thread.start()
        while w._link.queued <= golaunch.group._QUEUED:
            self.assertEqual(g.run_single_worker_single_data("digest_and_clear", 1, each[0]).result(LIMIT), hashlib.sha256(each[0]).hexdigest())
        os.kill(w.pid, signal.SIGCONT)
        thread.join()
        self.assertEqual([f.result(LIMIT) for f in futures], [hashlib.sha256(each[i % 2]).hexdigest() for i in range(32)])
        self.assertLess(max(queued), golaunch.group._QUEUED + (9 << 20))
        self.assertEqual(w._link.queued, 0)

    def test_a_large_object_to_make_it_with(self):
        large = os.urandom(5 << 20)
        g = self.far("workers:Worker", large)
        with self.assertRaises(WorkerFailureError):
            g.run_all_workers_single_data("kill", 2).result(LIMIT)
        self.assertEqual(g.run_all_workers_single_data("offset_of").result(LIMIT), [large] * 3)

    def test_a_worker_dies(self):
        g = self.far()
        with self.assertRaises(WorkerFailureError) as caught:
            g.run_all_workers_single_data("kill", 2).result(LIMIT)
        self.assertEqual((caught.exception.rank, caught.exception.cause), (2, "killed"))
        self.assertEqual(g.run_all_workers_single_data("add", 1).result(LIMIT), [1, 2, 3])
        self.assertEqual({w.attempt for w in g.workers}, {1})
        f = g.run_all_workers_single_data("sleep", 60)
        f.cancel()
        self.assertEqual(g.run_all_workers_single_data("add", 1).result(LIMIT), [1, 2, 3])
        self.assertTrue(g.shutdown())

    def test_connections_are_reset(self):
        """Each call is answered once, also calls during the interruption, and no worker ends."""
        g = self.far()
        pids = [w.pid for w in g.workers]
        large = os.urandom(3 << 20)
        for i in range(5):
            path = self.path(str(i))
            f = g.run_all_workers_single_data("wait_for", path)
            behind = [g.run_all_workers_single_data("nth", large) for _ in range(3)]
            self.assertGreater(_reset(g), 0)
            between = g.run_all_workers_single_data("give", large)
            with open(path, "w"):
                pass
            self.assertEqual(f.result(LIMIT), [0, 1, 2])
            self.assertEqual([b.result(LIMIT) for b in behind], [[3 * i + n] * 3 for n in (1, 2, 3)])
            self.assertEqual(between.result(LIMIT), [large] * 3)
        many = [g.run_all_workers_single_data("nth") for _ in range(300)]
        _reset(g)
        self.assertEqual([f.result(LIMIT)[0] for f in many], list(range(16, 316)))
        self.assertEqual([w.pid for w in g.workers], pids)
        self.assertEqual({w.attempt for w in g.workers}, {0})
        self.assertTrue(g.shutdown())

    def test_a_stream_whose_connection_is_reset(self):
        g = self.far()
        items = g.run_single_worker_single_data("count", 2, 300).result(LIMIT)
        got = [next(items) for _ in range(20)]
        _reset(g)
        self.assertEqual(got + list(items), list(range(200, 500)))
        f = g.run_all_workers_single_data("sleep", 600)
        _reset(g)
        f.cancel()
        self.assertEqual(g.run_all_workers_single_data("add", 1).result(LIMIT), [1, 2, 3])
        n = 5 << 20
        for byte in range(10):
            one, two = g.run_single_worker_single_data("reuse", 0, byte, n), g.run_single_worker_single_data("reuse", 0, byte + 100, n)
            _reset(g)
            self.assertEqual((bytes(one.result(LIMIT)), bytes(two.result(LIMIT))), (bytes([byte]) * n, bytes([byte + 100]) * n))

    def test_a_worker_dies_while_its_connection_is_reset(self):
        g = self.far()
        f = g.run_all_workers_single_data("sleep", 600)
        _reset(g)
        os.kill(g.workers[1].pid, signal.SIGKILL)
        with self.assertRaises(WorkerFailureError) as caught:
            f.result(LIMIT)
        self.assertEqual((caught.exception.rank, caught.exception.cause), (1, "killed"))
        self.assertEqual(g.run_all_workers_single_data("add", 1).result(LIMIT), [1, 2, 3])

    def test_near(self):
        cluster = self.cluster([2, 1], address=COORDINATOR, token_file=os.environ["TEST_TOKEN"])
        g = self.group(cluster=cluster)
        self.assertEqual(g.run_all_workers_single_data("add", 1).result(LIMIT), [1, 2, 3])
        self.assertEqual([w._link.shared for w in g.workers], [True] * 3)

    def test_no_place(self):
        with self.assertRaisesRegex(Exception, "(?s)no reservation.*"):
            VirtualCluster([2, 1, 1], address=COORDINATOR, token_file=os.environ["TEST_TOKEN"], placement_timeout=0.2)

    def test_a_priority(self):
        """The bundles have the one that was asked for, or else that of the command's variable."""
        def priority_of(**options):
            with VirtualCluster([1], address=COORDINATOR, token_file=os.environ["TEST_TOKEN"], **options) as cluster:
                jobs = subprocess.run([golaunch.find_binary(), "jobs", "--coordinator", COORDINATOR, "--token-file", os.environ["TEST_TOKEN"], "--json"],
                                      stdout=subprocess.PIPE, check=True).stdout
                return next(j["priority"] for j in json.loads(jobs)["jobs"] if j["id"] == cluster.name)

        with patched_environment(GOLAUNCH_PRIORITY="batch"):
            self.assertEqual([priority_of(), priority_of(priority="production")], ["batch", "production"])
        with self.assertRaisesRegex(ValueError, 'priority "soon": production, interactive or batch'):
            priority_of(priority="soon")

    def waiting(self):
        """A program that waits for bundles that are not free, and its helper."""
        p = subprocess.Popen([sys.executable, "-c", WAITING.format(paths=[p for p in sys.path if p]), COORDINATOR, os.environ["TEST_TOKEN"]],
                             stdout=subprocess.PIPE, universal_newlines=True)
        self.addCleanup(p.stdout.close)
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        helper = int(p.stdout.readline())
        self.assertEqual(p.stdout.readline(), "waits\n")
        return p, helper

    def test_a_program_that_is_killed_while_it_waits(self):
        """Nothing of an interrupted program stays in the queue."""
        p, helper = self.waiting()
        p.kill()
        p.wait()
        gone(self, [helper])
        # A later request that fits does not wait behind it.
        self.assertEqual(self.far().run_all_workers_single_data("add", 1).result(LIMIT), [1, 2, 3])

    def test_an_interrupt_while_it_waits(self):
        p, helper = self.waiting()
        began = time.monotonic()
        p.send_signal(signal.SIGINT)
        self.assertEqual(p.stdout.readline(), "interrupted\n")
        self.assertEqual(p.wait(LIMIT), 0)
        gone(self, [helper])
        self.assertLess(time.monotonic() - began, 45)  # processes that cannot end in order are given up after more than a minute

    def test_no_coordinator(self):
        with self.assertRaises(Exception):
            VirtualCluster([1], address="127.0.0.1:1", token_file=os.environ["TEST_TOKEN"])


WAITING = """
import sys
sys.path[:0] = {paths!r}
from golaunch import VirtualCluster

said = False

class Cluster(VirtualCluster):
    def _told(self, told):
        super()._told(told)
        global said
        if told["event"] == "decision" and not said:
            said = True
            print(self._helper.process.pid, "waits", sep="\\n", flush=True)

try:
    Cluster([2, 1, 1], address=sys.argv[1], token_file=sys.argv[2])
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def _sent(pid):
    """The bytes that a process has sent by TCP on its present connections."""
    lines = subprocess.run(["ss", "-tinpHO"], stdout=subprocess.PIPE, check=True, universal_newlines=True).stdout.splitlines()
    return sum(int(n) for line in lines if f"pid={pid}," in line for n in re.findall(r"\bbytes_sent:(\d+)", line))


def _reset(group):
    """Resets the connections of a group to its workers, and returns how many."""
    helper, coordinator = group.cluster._helper.process.pid, COORDINATOR.rpartition(":")[2]
    lines = subprocess.run(["ss", "-tnpHO"], stdout=subprocess.PIPE, check=True, universal_newlines=True).stdout.splitlines()
    ends = [line.split()[3:5] for line in lines if f"pid={helper}," in line]
    ports = [own.rpartition(":")[2] for own, peer in ends if peer.rpartition(":")[2] != coordinator]
    for port in ports:
        subprocess.run(["ss", "-K", "sport", "=", port], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return len(ports)


class _Far(WorkerGroup):
    def _environment(self, env):
        return [e for e in super()._environment(env) if not e.startswith("GOLAUNCH_CONTROLLER=")]


if __name__ == "__main__":
    unittest.main()
