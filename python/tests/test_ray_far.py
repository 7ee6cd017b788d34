"""Ray's names on a cluster of two nodes, by the address of its coordinator."""

import os
import unittest

import ray


class Cluster(unittest.TestCase):
    def test_a_cluster(self):
        with open(os.environ["TEST_TOKEN"]) as f:
            os.environ["GOLAUNCH_TOKEN"] = f.read().strip()
        os.environ["RAY_ADDRESS"] = "ray://" + os.environ["TEST_COORDINATOR"]
        self.addCleanup(ray.shutdown)
        ray.init(log_to_driver=False)
        self.assertEqual(len(ray.nodes()), 2)

        @ray.remote
        def node():
            return ray.get_runtime_context().get_node_id()

        @ray.remote(scheduling_strategy="SPREAD")
        def make(n):
            return node.remote(), b"x" * n

        made = ray.get([make.remote(500_000) for _ in range(4)])
        self.assertEqual([len(m) for _, m in made], [500_000] * 4)
        self.assertEqual(set(ray.get([n for n, _ in made])) - {n["NodeID"] for n in ray.nodes()}, set())


if __name__ == "__main__":
    unittest.main()
