import asyncio
import gc
import os
import threading
import time
import unittest
import weakref

from base import LIMIT, Case
from golaunch import CallCancelled, DeadlineExceeded, GolaunchError, NamedSharding, WorkerFailureError
from workers import Point


class Here:
    """A class of the controller's own program."""

    def __init__(self, x):
        self.x = x

    def point(self):
        return Point(self.x)


class Calls(Case):
    def test_the_family(self):
        g = self.group([2, 1], "workers:Worker", 1000, scale=2)
        self.assertEqual(g.run_all_workers_single_data("add", 1), [1002, 1004, 1006])
        self.assertEqual(g.run_all_workers_single_data("add", 1, y=1).result(LIMIT), [1004, 1006, 1008])
        self.assertEqual(list(g.run_all_workers_multiple_data("add", [10, 20, 30], y=[1, 2, 3])), [1022, 1046, 1070])
        self.assertEqual(g.run_all_workers_multiple_data("echo", a=[1, 2, 3], common_kwargs={"b": 4})[2], ((), {"a": 3, "b": 4}))
        self.assertEqual(g.run_single_worker_single_data("add", 2, 5).result(LIMIT), 1014)
        self.assertEqual(g.workers[1].call("add", 5).result(LIMIT), 1012)
        made = g.run_all_workers_single_data("who")
        self.assertEqual([m[0] for m in made], [0, 1, 2])
        self.assertEqual([m[2] for m in made], [1, 1, 1])
        self.assertEqual(len({m[1] for m in made}), 3)
        self.assertEqual([w.pid for w in g.workers], [m[1] for m in made])

    def test_it_is_a_rank_of_a_job(self):
        g = self.group([2, 1], env={"MINE": "yes"})
        envs = g.run_all_workers_single_data("environment")
        self.assertEqual([e["RANK"] for e in envs], ["0", "1", "2"])
        self.assertEqual([e["LOCAL_RANK"] for e in envs], ["0", "1", "0"])
        self.assertEqual([e["GROUP_RANK"] for e in envs], ["0", "0", "1"])
        self.assertEqual([e["GOLAUNCH_NODE"] for e in envs], ["n0", "n0", "n1"])
        self.assertEqual({(e["WORLD_SIZE"], e["MINE"], e["GOLAUNCH_CONTROLLER_KEY"]) for e in envs}, {("3", "yes", None)})
        self.assertEqual(len({e["MASTER_PORT"] for e in envs}), 1)
        self.assertEqual([m["node"] for m in g.worker_metadata], ["n0", "n0", "n1"])

    def test_two_clusters_with_one_log_dir(self):
        logs = self.path("logs")
        groups = [self.group(cluster=self.cluster([1], log_dir=logs)) for _ in range(2)]
        for g in groups:
            self.assertEqual(g.run_all_workers_single_data("give", 1).result(LIMIT), [1])
        self.assertTrue(os.path.isdir(logs + ".2"))

    def test_gpus_and_colocated_groups(self):
        cluster = self.cluster([4, 2], use_gpus=True, declare_gpus=True, colocate=2)
        train = self.group(cluster=cluster, name="train")
        roll = self.group(cluster=cluster, name="roll", workers_per_node=[2, 1])
        check = self.group(cluster=cluster, name="check", workers_per_node=[1], use_gpus=False)
        self.assertEqual([e["CUDA_VISIBLE_DEVICES"] for e in train.run_all_workers_single_data("environment")], ["0,1,2,3"] * 4 + ["0,1"] * 2)
        self.assertEqual(len(roll.run_all_workers_single_data("add", 0)), 3)
        self.assertEqual(len(check.run_all_workers_single_data("add", 0)), 1)
        self.assertEqual([n["gpus"] for n in cluster.nodes], [[0, 1, 2, 3], [0, 1]])

    def test_workers_that_share_gpus(self):
        cluster = self.cluster([3], use_gpus=True, declare_gpus=True, gpus_per_worker=1 / 2)
        self.assertEqual([n["gpus"] for n in cluster.nodes], [[0, 1]])
        found = self.group(cluster=cluster).run_all_workers_single_data("environment")
        self.assertEqual([(e["CUDA_VISIBLE_DEVICES"], e["GOLAUNCH_GPU_SHARE"]) for e in found], [("0", "0.5"), ("0", "0.5"), ("1", "0.5")])
        for part in (0, 0.3, 1.5, 1 / 49, "1/2"):
            with self.assertRaisesRegex(ValueError, "gpus_per_worker=.*from 1/2 to 1/48"):
                self.cluster([2], use_gpus=True, gpus_per_worker=part)
        with self.assertRaisesRegex(ValueError, "with use_gpus=True"):
            self.cluster([2], gpus_per_worker=0.5)

    def test_spread(self):
        g = self.group(cluster=self.cluster([2, 2], strategy="SPREAD"))
        self.assertEqual(g.run_all_workers_single_data("add", 0), [0, 1, 2, 3])

    def test_axes(self):
        g = self.group([8], sharding=NamedSharding([[[0, 1], [2, 3]], [[4, 5], [6, 7]]], ["data", "pipe", "tensor"]))
        self.assertEqual(g.run_all_workers_single_data("add", 0, run_rank_0_only_axes=["tensor"]), [0, 2, 4, 6])
        self.assertEqual(g.run_all_workers_multiple_data("add", [1, 1], run_rank_0_only_axes=["tensor", "pipe"]), [1, 5])
        f = g.run_all_workers_sharded_data(
            "add", [10, 20], in_sharded_axes=["data"], replicate_on_axes=["pipe", "tensor"], output_is_replicated=["tensor", "pipe"])
        self.assertEqual((f.called_workers, f.return_from_workers), (list(range(8)), [0, 4]))
        self.assertEqual(f, [10, 24])
        f = g.run_all_workers_sharded_data("echo", x=[[1, 2], [3, 4]], in_sharded_axes=["data", "tensor"], common_kwargs={"y": 9})
        self.assertEqual(f.called_workers, [0, 1, 4, 5])
        self.assertEqual([r[1] for r in f], [{"x": 1, "y": 9}, {"x": 2, "y": 9}, {"x": 3, "y": 9}, {"x": 4, "y": 9}])
        f = g.run_all_workers_sharded_data("echo", [1, 2], in_sharded_axes=["data"], make_dummy_calls_to_free_axes=True)
        self.assertEqual(f.called_workers, list(range(8)))
        self.assertEqual([r[0][0] for r in f], [1, 2])
        self.assertEqual(g.get_all_worker_results(f), [((1,), {}), ((2,), {})])

    def test_wrong_arguments(self):
        g = self.group(2)
        with self.assertRaisesRegex(ValueError, "argument 0 of add has 3 elements, and 2 workers are called"):
            g.run_all_workers_multiple_data("add", [1, 2, 3])
        with self.assertRaisesRegex(ValueError, "argument 'y' of add has a int"):
            g.run_all_workers_multiple_data("add", [1, 2], y=3)
        with self.assertRaisesRegex(ValueError, "argument 0 of add has 1 elements along 'data_parallel', and that axis 2 workers"):
            g.run_all_workers_sharded_data("add", [1], in_sharded_axes=["data_parallel"])
        with self.assertRaisesRegex(ValueError, "no axis 'tensor'"):
            g.run_all_workers_sharded_data("add", [1], in_sharded_axes=["tensor"])
        with self.assertRaisesRegex(TypeError, "the arguments of add cannot be pickled"):
            g.run_all_workers_single_data("add", lambda: 1)
        with self.assertRaises(IndexError):
            g.run_single_worker_single_data("add", 2, 1)
        self.assertEqual(g.run_all_workers_single_data("add", 1), [1, 2])

    def test_a_sequence(self):
        g = self.group(3)
        f = g.run_all_workers_single_data("add", 1)
        self.assertEqual((len(f), f[-1], f[0:2], 2 in f, max(f), sum(f)), (3, 3, [1, 2], True, 3, 6))
        self.assertTrue(f.done())
        self.assertIn("3 of 3 workers have answered", repr(f))

    def test_as_completed(self):
        g = self.group(3)
        path = self.path("go")
        last, came = self.path("last"), []
        for w, _ in g.run_all_workers_multiple_data("wait_for", [last, "/", "/"]).as_completed(LIMIT):
            came.append(w)
            if len(came) == 2:
                open(last, "w").close()
        self.assertEqual(came[-1], 0)
        waits = g.run_single_worker_single_data("wait_for", 0, path)
        with self.assertRaises(TimeoutError):
            waits.result(0.05)
        self.assertFalse(waits.done())
        open(path, "w").close()
        self.assertEqual(waits.result(LIMIT), 0)

    def test_generators(self):
        g = self.group(2)
        self.assertEqual([list(r) for r in g.run_all_workers_single_data("count", 100)], [list(range(100)), list(range(100, 200))])
        f = g.run_all_workers_single_data("count", 3)
        self.assertEqual(g.get_all_worker_results(f), [[0, 1, 2], [100, 101, 102]])
        f = g.run_all_workers_single_data("count", 0)
        self.assertEqual(g.get_all_worker_results(f), [[], []])
        bad = g.run_single_worker_single_data("bad_generator", 0).result(LIMIT)
        self.assertEqual(next(bad), 1)
        with self.assertRaisesRegex(WorkerFailureError, "after one"):
            next(bad)
        self.assertRaises(StopIteration, next, bad)

    def test_a_generator_waits_for_its_reader(self):
        g = self.group(1)
        path = self.path("at")
        endless = g.run_single_worker_single_data("endless", 0, path).result(LIMIT)
        for i in range(50):
            self.assertEqual(next(endless), i)
        with open(path) as f:
            self.assertLess(int(f.read() or 0), 50 + 16)
        endless.close()
        self.assertEqual(g.run_all_workers_single_data("add", 1).result(LIMIT), [1])
        del endless
        dropped = g.run_single_worker_single_data("endless", 0, path).result(LIMIT)
        del dropped
        gc.collect()
        self.assertEqual(g.run_all_workers_single_data("add", 1).result(LIMIT), [1])

    def test_deadline(self):
        g = self.group(3)
        began = time.monotonic()
        with self.assertRaisesRegex(DeadlineExceeded, "sleep_on was not answered by its deadline by 1 of 3 workers: 1") as caught:
            g.within(2).run_all_workers_single_data("sleep_on", 1, 60).result(LIMIT)
        self.assertLess(time.monotonic() - began, 30)
        self.assertEqual(caught.exception.ranks, [1])
        self.assertIsInstance(caught.exception, TimeoutError)
        self.assertEqual(g.within(LIMIT).run_all_workers_single_data("add", 1), [1, 2, 3])

    def test_a_cancel_that_is_not_heard(self):
        """A cancel is sent again: a signal does not wake a method that begins to wait right after
        Python has looked for signals."""
        g = self.group(1)
        asleep, until = self.path("asleep"), self.path("until")
        f = g.run_single_worker_single_data("sleep_uninterrupted", 0, asleep, until)
        self.made(asleep)
        self.assertTrue(f.cancel())
        open(until, "w").close()
        self.assertEqual(g.run_single_worker_single_data("add", 0, 1).result(LIMIT), 1)

    def test_cancel(self):
        g = self.group(1)
        path = self.path("how")
        runs = g.run_all_workers_single_data("interrupted", path)
        waits = g.run_all_workers_single_data("say", "never")
        after = g.run_all_workers_single_data("add", 1)
        self.made(path)
        self.assertTrue(waits.cancel())
        self.assertTrue(runs.cancel())
        self.assertFalse(runs.cancel())
        for f in (runs, waits):
            self.assertRaises(CallCancelled, f.result, LIMIT)
        self.assertEqual(after.result(LIMIT), [1])
        with open(path) as f:
            self.assertEqual(f.read(), "_Cancelled")

    def test_asyncio(self):
        g = self.group(3)

        async def calls():
            both = await asyncio.gather(g.run_all_workers_single_data("add", 1), g.run_single_worker_single_data("sleep", 0, 0.05))
            self.assertEqual(both, [[1, 2, 3], 0])
            failing = g.run_all_workers_single_data("boom_on", 2)
            with self.assertRaises(WorkerFailureError):
                await failing
            self.assertTrue(failing.cancel())  # otherwise the other workers go on
            with self.assertRaises(DeadlineExceeded):
                await g.within(0.1).run_all_workers_single_data("sleep", 60)
            path = self.path("how")
            task = asyncio.ensure_future(_await(g.run_single_worker_single_data("interrupted", 0, path)))
            await asyncio.sleep(0.1)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            self.assertEqual(await asyncio.wait_for(g.run_all_workers_single_data("add", 5), LIMIT), [5, 6, 7])

        async def _await(future):
            return await future

        asyncio.run(calls())
        asyncio.run(calls())  # another loop

    def test_what_was_awaited_leaves_nothing(self):
        g = self.group(2)

        async def calls():
            loop = asyncio.get_running_loop()
            for _ in range(300):
                await g.within(600).run_all_workers_single_data("add", 1)
            return len(loop._scheduled)

        self.assertLess(asyncio.run(calls()), 100)  # asyncio keeps some cancelled timers for a while
        self.assertLess(len(g.cluster._timers), 200)

    def test_what_was_answered_by_its_deadline_is_not_kept(self):
        g = self.group(1)
        f = g.within(600).run_single_worker_single_data("buffer", 0, 1 << 20)
        f.result(LIMIT)
        kept = weakref.ref(f)
        del f
        gc.collect()
        self.assertIsNone(kept())
        for _ in range(20):
            g.run_single_worker_single_data("sleep", 0, 600).cancel()
        self.assertEqual(g.run_all_workers_single_data("add", 1).result(LIMIT), [1])
        self.assertEqual(len(g.workers[0]._since), 0)

    def test_a_cluster_is_closed_while_calls_are_awaited(self):
        """The event loop watches no descriptor that reuses a number of the cluster's."""
        g = self.group(1)

        async def calls():
            async def call():
                await g.run_single_worker_single_data("sleep", 0, 600)

            loop = asyncio.get_running_loop()
            before = set(loop._selector.get_map())
            task = asyncio.ensure_future(call())
            await asyncio.sleep(0.1)
            self.assertEqual(len(set(loop._selector.get_map()) - before), 1)
            await loop.run_in_executor(None, g.cluster.close)
            with self.assertRaises(GolaunchError):
                await asyncio.wait_for(task, LIMIT)
            self.assertEqual(set(loop._selector.get_map()) - before, set())

        asyncio.run(calls())

    def test_a_callback_that_raises(self):
        """The exception of a callback is logged, and affects no other call."""
        g = self.group(1)
        called = []

        def bad(future):
            called.append(future)
            raise RuntimeError("called back")

        with self.assertLogs("golaunch", "ERROR"):
            f = g.run_all_workers_single_data("sleep", 0.1)
            f.add_done_callback(bad)
            f.add_done_callback(called.append)
            f.result(LIMIT)
        self.assertEqual(called, [f, f])

    def test_a_fork_reads_nothing(self):
        """A generator goes on although a forked child has closed it and ended."""
        g = self.group(1)
        items = g.run_single_worker_single_data("count", 0, 100).result(LIMIT)
        self.assertEqual(next(items), 0)
        pid = os.fork()
        if pid == 0:
            try:
                items.close()
                del items
                g.run_all_workers_single_data("add", 1).result(1)
            except GolaunchError:
                os._exit(0)
            finally:
                os._exit(1)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        self.assertEqual(list(items), list(range(1, 100)))
        self.assertEqual(g.run_all_workers_single_data("add", 1).result(LIMIT), [1])

    def test_callbacks(self):
        g = self.group(2)
        seen = []
        f = g.run_all_workers_single_data("add", 1)
        f.add_done_callback(lambda f: seen.append(f.result()))
        f.result(LIMIT)
        f.add_done_callback(lambda f: seen.append("at once"))
        self.assertEqual(seen, [[1, 2], "at once"])

    def test_threads(self):
        g = self.group(4)
        wrong, slow = [], g.run_single_worker_single_data("sleep", 3, 0.5)

        def calls(x):
            for i in range(200):
                got = [f.result(LIMIT) for f in [g.run_single_worker_single_data("add", w, x * i) for w in range(3)]]
                if got != [x * i, x * i + 1, x * i + 2]:
                    wrong.append(got)

        threads = [threading.Thread(target=calls, args=(x,)) for x in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(LIMIT)
        self.assertEqual((wrong, slow.result(LIMIT)), ([], 3))

    def test_more_calls_than_a_worker_takes(self):
        g = self.group(1)
        all_ = [g.run_single_worker_single_data("give", 0, i) for i in range(3000)]
        self.assertEqual([f.result(LIMIT) for f in all_], list(range(3000)))

    def test_a_class_of_this_program(self):
        g = self.group(2, Here, 7)
        self.assertEqual(g.run_all_workers_single_data("point"), [Point(7), Point(7)])

    def test_shutdown_cleans(self):
        g = self.group(2)
        pids = [w.pid for w in g.workers]
        self.assertTrue(g.shutdown())
        for pid in pids:
            self.assertFalse(os.path.exists(f"/proc/{pid}"))
        self.assertTrue(self.group(cluster=g.cluster).shutdown(force=True))


if __name__ == "__main__":
    unittest.main()
