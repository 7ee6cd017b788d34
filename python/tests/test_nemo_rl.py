"""The names of NeMo RL, without NeMo RL: its package on PyPI is empty."""

import asyncio
import os
import unittest

from base import LIMIT, Case
from golaunch import GolaunchError
from golaunch.nemo_rl import NamedSharding, RayVirtualCluster, RayWorkerBuilder, RayWorkerGroup, get


class Annotations:
    """NeMo RL's NamedSharding, as far as anybody looks at it: its layout is an array."""

    def __init__(self, layout, names):
        self.layout, self.names = layout, names


class Names(Case):
    def ray_cluster(self, numbers, **options):
        cluster = RayVirtualCluster(bundle_ct_per_node_list=numbers, use_gpus=False, **options)
        self.addCleanup(cluster.shutdown)
        return cluster

    def ray_group(self, cluster, cls="workers.Worker", *made, builds=None, **options):
        return RayWorkerGroup(cluster, RayWorkerBuilder(cls, *made, **(builds or {})), show_output=False, **options)

    def test_calls(self):
        cluster = self.ray_cluster([2, 0, 2], max_colocated_worker_groups=2, name="train_cluster", num_gpus_per_node=2)
        self.assertEqual((cluster.world_size(), cluster.node_count(), cluster.num_gpus_per_node), (4, 2, 2))
        sharding = Annotations([[0, 1], [2, 3]], ["data_parallel", "tensor_parallel"])
        group = self.ray_group(cluster, "workers.Worker", 10, builds={"scale": 2}, name_prefix="lm_policy", sharding_annotations=sharding, env_vars={"MINE": "x"})
        self.assertEqual(get(group.run_all_workers_single_data("add", x=1)), [12, 14, 16, 18])
        self.assertEqual(get(group.run_all_workers_single_data("add", x=1, run_rank_0_only_axes=["tensor_parallel"])), [12, 16])
        self.assertEqual(get(group.run_all_workers_multiple_data("add", x=[0, 1, 2, 3], common_kwargs={"y": 1})), [12, 16, 20, 24])
        future = group.run_all_workers_sharded_data(
            "add", x=[0, 100], in_sharded_axes=["data_parallel"], replicate_on_axes=["tensor_parallel"], output_is_replicated=["tensor_parallel"])
        self.assertEqual((future.called_workers, future.return_from_workers), ([0, 1, 2, 3], [0, 2]))
        self.assertEqual(group.get_all_worker_results(future), [10, 214])
        self.assertEqual(get(group.run_single_worker_single_data("add", 2, x=0)), 14)
        self.assertEqual(group.get_all_worker_results(group.run_all_workers_single_data("count", n=2)), [0, 1, 100, 101, 200, 201, 300, 301])
        self.assertEqual(get([h.add.remote(1) for h in group.handles], LIMIT), [12, 14, 16, 18])
        self.assertEqual((group.world_size, group.dp_size, group.get_dp_leader_worker_idx(3)), (4, 4, 3))
        self.assertEqual([(m["node_idx"], m["global_rank"], m["name"]) for m in group.worker_metadata], [
            (0, 0, "lm_policy-0-0"), (0, 1, "lm_policy-0-1"), (1, 2, "lm_policy-1-0"), (1, 3, "lm_policy-1-1")])
        self.assertEqual([e["MINE"] for e in group.run_all_workers_single_data("environment")], ["x"] * 4)
        address, port = cluster.get_master_address_and_port()
        self.assertEqual((address, port > 0), (cluster.nodes[0]["address"], True))
        self.assertTrue(group.shutdown(cleanup_method="who"))

    def test_tied_workers(self):
        cluster = self.ray_cluster([2, 2])
        group = self.ray_group(cluster, "workers.Configured", name_prefix="engine", bundle_indices_list=[(0, [0, 1]), (1, [0, 1])])
        self.assertEqual(get(group.run_all_workers_single_data("place")), [
            (0, "0", "(0, [0, 1])", "engine"), (1, "0", "None", "engine"), (2, "1", "(1, [0, 1])", "engine"), (3, "1", "None", "engine")])
        self.assertEqual(get(group.run_all_workers_single_data("add", 0)), [100, 1, 102, 3])
        self.assertEqual(get(group.run_all_workers_single_data("later", 1)), [1, 2, 3, 4])
        self.assertEqual((group.dp_size, group.dp_leader_worker_indices), (2, [0, 2]))
        self.assertEqual([m["bundle_indices"] for m in group.worker_metadata], [(0, [0, 1]), None, (1, [0, 1]), None])
        self.assertRaises(IndexError, group.get_dp_leader_worker_idx, 2)
        group.shutdown()
        coarse = self.ray_group(cluster, bundle_indices_list=[(0, [0]), (0, [1]), (1, [0])], dp_leader_worker_indices=[0, 2])
        self.assertEqual((coarse.dp_size, coarse.world_size), (2, 3))

    def test_a_coroutine_that_is_cancelled(self):
        """It ends the worker's coroutine, which does not continue within the next call."""
        group = self.ray_group(self.ray_cluster([1]), "workers.Lingerer")
        path = self.path("lingers")

        async def calls():
            task = asyncio.ensure_future(_await(group.run_single_worker_single_data("linger", 0, path)))
            await asyncio.sleep(0)  # a task that has not begun would not be one that awaits
            while not os.path.exists(path):
                await asyncio.sleep(0.001)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            return await asyncio.wait_for(_await(group.run_single_worker_single_data("what_was_said", 0)), LIMIT)

        async def _await(future):
            return await future

        self.assertEqual(asyncio.run(calls()), ["ended"])

    def test_what_is_not_there(self):
        for wrong, says in (({"port_range_low": 1}, "keeps it free; leave it out"), ({"segment_size": 2}, "segment_size=2 is not there with golaunch"),
                            ({"placement_group_strategy": "X"}, "STRICT_PACK, PACK or SPREAD")):
            with self.assertRaisesRegex(ValueError, says):
                RayVirtualCluster([1], use_gpus=False, **wrong)
        cluster = self.ray_cluster([2, 2])
        self.assertRaises(GolaunchError, cluster.get_placement_groups)
        self.assertRaises(GolaunchError, RayWorkerBuilder("workers.Worker"), None, 0, 1)
        for tied in ([(0, [0, 1, 2, 3])], [(0, [0, 2])], [(1, [0]), (0, [0])], [(0, [1, 0])], [(2, [0])]):
            with self.assertRaisesRegex(ValueError, "the cluster has the bundles" if tied[0][1] == [0, 1, 2, 3] else "counts ranks node by node"):
                self.ray_group(cluster, bundle_indices_list=tied)
        for wrong, says in (({"dp_leader_worker_indices": [1, 0]}, "ascending"), ({"sharding_annotations": NamedSharding([0, 1], ["d"])}, "the sharding has 2 workers")):
            with self.assertRaisesRegex(ValueError, says):
                self.ray_group(cluster, **wrong)
        with self.assertRaisesRegex(ValueError, "a class of a module"):
            self.ray_group(cluster, "Worker:<locals>")


if __name__ == "__main__":
    unittest.main()
