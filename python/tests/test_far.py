"""A cluster by its address, with workers that cannot come to the controller's socket."""

import os
import pickle
import unittest

from base import LIMIT, Case
from golaunch import VirtualCluster, WorkerFailureError, WorkerGroup

COORDINATOR = os.environ.get("TEST_COORDINATOR")


@unittest.skipIf(COORDINATOR is None, "TEST_COORDINATOR names no cluster")
class Far(Case):
    """TEST_COORDINATOR has two nodes."""

    def far(self, target="workers:Worker", *args, **options):
        cluster = self.cluster([2, 1], address=COORDINATOR, token_file=os.environ["TEST_TOKEN"])
        # A worker that is told of no socket of the controller's, as on another machine, comes by its node's endpoint.
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

    def test_near(self):
        cluster = self.cluster([2, 1], address=COORDINATOR, token_file=os.environ["TEST_TOKEN"])
        g = self.group(cluster=cluster)
        self.assertEqual(g.run_all_workers_single_data("add", 1).result(LIMIT), [1, 2, 3])
        self.assertEqual([w._link.shared for w in g.workers], [True] * 3)

    def test_no_place(self):
        with self.assertRaisesRegex(Exception, "(?s)no reservation.*"):
            VirtualCluster([2, 1, 1], address=COORDINATOR, token_file=os.environ["TEST_TOKEN"], placement_timeout=0.2)

    def test_no_coordinator(self):
        with self.assertRaises(Exception):
            VirtualCluster([1], address="127.0.0.1:1", token_file=os.environ["TEST_TOKEN"])


class _Far(WorkerGroup):
    def _environment(self, env):
        return [e for e in super()._environment(env) if not e.startswith("GOLAUNCH_CONTROLLER=")]


if __name__ == "__main__":
    unittest.main()
