"""The names of verl, with verl itself. No Ray is started."""

import os
import re
import subprocess
import sys
import unittest

from base import LIMIT, Case

try:
    import ray
    import torch
    import verl_workers
    from verl import DataProto

    from golaunch import WorkerFailureError
    from golaunch.verl import (
        RayClassWithInitArgs, RayResourcePool, RayWorkerGroup, ResourcePoolManager, create_colocated_worker_cls, create_colocated_worker_cls_fused, get)
except ImportError as error:
    ray, why = None, f"verl cannot be imported: {error}"


@unittest.skipIf(ray is None, globals().get("why"))
class Verl(Case):
    group = None

    def tearDown(self):
        self.assertFalse(ray.is_initialized(), "a Ray was started")

    def pool(self, numbers):
        # Each node imports verl once.
        pool = RayResourcePool(process_on_nodes=numbers, use_gpu=False, preload="verl.single_controller.base")
        self.addCleanup(pool.shutdown)
        return pool

    def actors(self):
        """Two nodes with two workers each, for all tests."""
        cls = type(self)
        if cls.group is None:
            pool = RayResourcePool(process_on_nodes=[2, 2], use_gpu=False, preload="verl.single_controller.base")
            cls.addClassCleanup(pool.shutdown)
            made = RayClassWithInitArgs(ray.remote(verl_workers.Actor), 2, name="a")
            cls.group = RayWorkerGroup(pool, made, worker_env={"MINE": "x"}, show_output=False)
        return cls.group

    def data(self, n):
        return DataProto.from_dict({"x": torch.arange(n)})

    def test_ways_to_dispatch(self):
        g = self.actors()
        self.assertEqual(g.world_size, 4)
        self.assertEqual(g.init_model("p"), [("p", r, 4, "0", "x") for r in range(4)])
        out = g.double(self.data(8))
        self.assertEqual((out.batch["x"].tolist(), out.meta_info), ([2 * i for i in range(8)], {"of": "a"}))
        self.assertEqual(g.own([5, 6, 7, 8]), [(0, 5), (1, 6), (2, 7), (3, 8)])
        self.assertEqual(g.first(), 0)
        self.assertEqual(g.count(self.data(8)), [(r, 2) for r in range(4)])
        self.assertEqual(g.execute_with_func_generator(verl_workers.plus_rank, self.data(4)).batch["x"].tolist(), [0, 2, 4, 6])
        self.assertEqual(g.execute_func_rank_zero(os.path.basename, "a/b"), "b")
        self.assertEqual(g.wait(1), [1, 2, 3, 4])
        self.assertEqual(g.execute_all_sync("unregistered", [1, 2, 3, 4]), [(0, 1), (1, 2), (2, 3), (3, 4)])
        self.assertEqual(get(g.execute_all("unregistered", 9)), [(0, 9), (1, 9), (2, 9), (3, 9)])
        self.assertEqual(g.execute_rank_zero_sync("unregistered", 9), (0, 9))
        self.assertEqual(get([w.unregistered.remote(7) for w in g.workers]), [(r, 7) for r in range(4)])
        with self.assertRaises(AssertionError):
            g.double([1, 2])

    def test_padding(self):
        data = self.data(6)
        data.meta_info["_verl_auto_padding"] = True
        self.assertTrue(data.is_padding_enabled())
        self.assertEqual(self.actors().double(data).batch["x"].tolist(), [0, 2, 4, 6, 8, 10])

    def test_meshes(self):
        out = self.actors().by_mesh(self.data(4))
        self.assertEqual((out.batch["x"].tolist(), out.batch["rank"].tolist()), ([0, 1, 2, 3], [0, 0, 2, 2]))

    def test_what_does_not_block(self):
        g = self.actors()
        later = g.later(self.data(4))
        self.assertEqual(g.double(later).batch["x"].tolist(), [2, 4, 6, 8])
        self.assertEqual((later.get().batch["x"].tolist(), later.done()), ([1, 2, 3, 4], True))
        self.assertEqual(get([g.ranks_later(), g.ranks_later()], LIMIT), [[0, 1, 2, 3]] * 2)

    def test_failures(self):
        g = self.actors()
        with self.assertRaises(WorkerFailureError) as caught:
            g.fail()
        self.assertEqual((caught.exception.method, type(caught.exception.__cause__)), ("fail", KeyError))
        self.assertTrue(all(map(g._is_worker_alive, g.workers)))

    def test_roles_in_one_process(self):
        pool = self.pool([2])
        for create in (create_colocated_worker_cls, create_colocated_worker_cls_fused):
            all_ = RayWorkerGroup(pool, create({
                "actor": RayClassWithInitArgs(verl_workers.Actor, 3), "critic": RayClassWithInitArgs(ray.remote(verl_workers.Critic)),
            }), name_prefix="all", worker_env={"MINE": "y"}, show_output=False)
            roles = all_.spawn({"actor", "critic"})
            self.assertEqual(roles["actor"].init_model("p"), [("p", r, 2, "0", "y") for r in range(2)])
            self.assertEqual(roles["critic"].init_model("p"), [("critic", "p")] * 2)
            self.assertEqual(all_.critic_init_model("q"), [("critic", "q")] * 2)
            self.assertEqual(roles["actor"].double(self.data(4)).batch["x"].tolist(), [0, 3, 6, 9])
            self.assertEqual([p[0] for p in roles["critic"].peers()], [["actor", "critic"]] * 2)
            self.assertFalse(hasattr(roles["critic"], "double"))
            all_.fuse({"critic"})
            self.assertEqual(all_.critic.peers(), roles["critic"].peers())
            all_.shutdown()

    def test_pools(self):
        pools = ResourcePoolManager({"global": [2]}, {"actor": "global"}, use_gpu=False, preload="verl.single_controller.base")
        pools.create_resource_pool()
        self.addCleanup(pools.get_resource_pool("actor").shutdown)
        self.assertEqual(pools.get_n_gpus(), 2)
        pool = pools.get_resource_pool("actor")
        a, b = (RayWorkerGroup(pool, RayClassWithInitArgs(verl_workers.Critic), show_output=False) for _ in range(2))
        with a.active(LIMIT):
            a.peers()
        self.assertNotEqual(a.peers(), b.peers())

    def test_docs(self):
        """The program of docs/from-verl.md runs."""
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "from-verl.md")) as f:
            actor, program = re.findall(r"(?ms)^```python\n(.*?)^```", f.read())
        self.assertIn("[4, 4]", program)
        for name, text in (("my_actor.py", actor), ("main.py", program.replace("[4, 4]", "[1, 1], use_gpu=False"))):
            with open(self.path(name), "w") as f:
                f.write(text)
        out = subprocess.run([sys.executable, "main.py"], cwd=self.dir.name, capture_output=True, text=True, timeout=10 * LIMIT)
        self.assertEqual((out.returncode, out.stdout), (0, "[0, 1]\ntensor(4.)\n"), out.stderr)

    def test_what_is_not_there(self):
        made = RayClassWithInitArgs(verl_workers.Critic)
        made.update_options({"runtime_env": {"env_vars": {"A": "1"}}})
        for do, says in (
            (lambda: RayResourcePool([1], detached=True), "detached=True is not there with golaunch"),
            (lambda: RayResourcePool([1], accelerator_type="H100"), "accelerator_type='H100' is not there"),
            (lambda: RayWorkerGroup(None, made), "a RayResourcePool of golaunch.verl"),
            (lambda: RayWorkerGroup(self.pool([1]), made, worker_names=["a"]), "worker_names=.* is not there"),
            (lambda: made.update_options({"num_cpus": 1}), r"no options \['num_cpus'\] of actors"),
            (lambda: made.set_additional_resource({"x": 1}), "additional_resource"),
            (lambda: RayWorkerGroup(self.pool([1]), RayClassWithInitArgs(type("Local", (), {"__qualname__": "f.<locals>.Local"}))), "a class of a module"),
        ):
            with self.assertRaisesRegex(ValueError, says):
                do()


if __name__ == "__main__":
    unittest.main()
