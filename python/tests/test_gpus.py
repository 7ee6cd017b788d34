"""Turns on GPUs whose driver is one of the tests': FAKE_NVML_HELD is its directory with the holders
of each GPU's memory."""

import os
import subprocess
import sys
import threading
import unittest

import golaunch.turns
from base import LIMIT, Case
from golaunch import GolaunchError, GPUMemoryError, WorkerGroup

HELD = os.environ.get("FAKE_NVML_HELD")
GIB = 1 << 30


@unittest.skipIf(HELD is None, "FAKE_NVML_HELD is not set: there is no driver of the tests")
class OfDriver(Case):
    colocate = 3

    def setUp(self):
        super().setUp()
        for uuid in ("GPU-8f000000-0000", "GPU-0f000000-0000"):
            os.makedirs(os.path.join(HELD, uuid), exist_ok=True)
            for pid in os.listdir(os.path.join(HELD, uuid)):  # left by processes of an earlier test
                os.remove(os.path.join(HELD, uuid, pid))
        self.shared = self.cluster(2, use_gpus=True, colocate=self.colocate)
        self.addCleanup(setattr, golaunch.turns, "_FREED", golaunch.turns._FREED)

    def turner(self, name, size=40 * GIB, **options):
        keeps, loads = options.pop("keeps", GIB), options.pop("loads", False)
        return WorkerGroup(self.shared, "workers:Turner", self.path("log"), name, HELD, size, keeps=keeps, loads=loads, name=name, show_output=False, **options)

    def held(self, group):
        sizes = []
        for w in group.workers:
            with open(os.path.join(HELD, w.gpu, str(w.pid))) as f:
                sizes.append(int(f.read()) // GIB)
        return sizes


class GPUs(OfDriver):
    def test_memory_is_freed(self):
        a, b = self.turner("a", loads=True), self.turner("b", loads=True)
        for group, other in ((a, b), (b, a), (a, b)):
            with group.active(LIMIT):
                self.assertEqual((self.held(group), self.held(other)), ([40, 40], [1, 1]))

    def test_who_still_holds_what(self):
        a, b = self.turner("a", keeps=30 * GIB), self.turner("b")
        with a.active(LIMIT):
            pass
        golaunch.turns._FREED = 0.5
        with self.assertRaises(GPUMemoryError) as caught:
            b.active(LIMIT).__enter__()
        pids = {w.gpu: w.pid for w in a.workers}
        self.assertEqual(sorted((h["gpu_uuid"], h["pid"], h["bytes"], h["node"], h["job"], h["by"]) for h in caught.exception.held), sorted(
            (w.gpu, w.pid, 30 * GIB, "n0", a.job, f"rank {w.rank} of a (pid {w.pid})") for w in a.workers))
        self.assertRegex(str(caught.exception), r"30.0 GiB of GPU-[08]f000000-0000 on n0 by rank [01] of a \(pid \d+\)")
        self.assertEqual((self.shared._turns.running, len(pids)), ({}, 2))
        with self.assertRaises(GPUMemoryError):
            b.active(LIMIT).__enter__()  # a is not asked again, but its memory is checked again
        golaunch.turns._FREED = LIMIT
        patient = self.turner("c", others_keep="31GiB")
        with patient.active(LIMIT):
            pass
        a.shutdown()
        for w in a.workers:
            os.remove(os.path.join(HELD, w.gpu, str(w.pid)))
        with b.active(LIMIT):
            self.assertEqual(self.held(b), [40, 40])

    def test_memory_that_is_freed_later(self):
        """A process outside of all groups holds memory until it ends."""
        a = self.turner("a")
        uuid = a.workers[0].gpu
        code = "import os, sys; path = sys.argv[1] + '/' + str(os.getpid()); open(path, 'w').write(str(5 << 30)); print(flush=True); sys.stdin.read(); os.remove(path)"
        stranger = subprocess.Popen([sys.executable, "-c", code, os.path.join(HELD, uuid)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        stranger.stdout.readline()
        golaunch.turns._FREED = 0.5
        with self.assertRaisesRegex(GPUMemoryError, rf"5.0 GiB of {uuid} on n0 by pid {stranger.pid}, which is of no group"):
            a.active(LIMIT).__enter__()
        golaunch.turns._FREED = LIMIT
        asked = self.shared._helper.ask

        def ask(do, **what):  # the first check finds the memory, which becomes free only then
            if do == "freed":
                self.assertEqual(len(asked(do, **dict(what, within=0))["held"]), 1)
                stranger.stdin.close()
            return asked(do, **what)

        self.shared._helper.ask = ask
        with a.active(LIMIT):
            self.assertEqual(stranger.wait(LIMIT), 0)
        stranger.stdout.close()


class Crossing(OfDriver):
    """Some groups use one of two GPUs each, and one group uses both."""

    def crossing(self):
        """Four groups with one GPU each, of which the first and the third share one GPU and the
        others the other; and a group on both."""
        both = self.turner("both")
        groups = [self.turner("g" + str(i), workers_per_node=1) for i in range(4)]
        a, c, b, d = sorted(groups, key=lambda g: g.workers[0].gpu)
        self.assertEqual((a.workers[0].gpu, b.workers[0].gpu), (c.workers[0].gpu, d.workers[0].gpu))
        self.assertNotEqual(a.workers[0].gpu, b.workers[0].gpu)
        return a, b, c, d, both

    def work(self, group):
        with group.active(LIMIT):
            group.run_all_workers_single_data("work").result(LIMIT)

    def test_in_two_turns_at_once(self):
        a, b, c, d, both = self.crossing()
        with a.active(LIMIT):
            waiting = self.apart(self.work, both)
            self.waits(self.shared, 1)
            with b.active(LIMIT):  # the group both cannot have its turn before this thread has left the turn of a
                for other, mine in ((c, a), (d, b)):
                    with self.assertRaisesRegex(GolaunchError, f"{other.name} cannot have its turn within that of {mine.name}"):
                        other.active().__enter__()
                self.apart(self.work, a)()
                self.work(a)
        waiting()
        self.assertEqual((self.shared._turns.running, self.shared._turns.queue), ({}, []))

    def test_threads_that_would_wait_for_each_other(self):
        a, b, c, d, both = self.crossing()
        entered, leave = threading.Event(), threading.Event()

        def other():
            with b.active(LIMIT):
                entered.set()
                self.work(c)  # it is the turn of a there
                self.assertTrue(leave.wait(LIMIT))

        with a.active(LIMIT):
            crossing = self.apart(other)
            self.assertTrue(entered.wait(LIMIT))
            self.waits(self.shared, 1)
            with self.assertRaisesRegex(GolaunchError, f"{d.name} cannot have its turn within that of {a.name}: it is {b.name}'s, where another thread waits for the end of {a.name}'s"):
                d.active(LIMIT).__enter__()
            with b.active(LIMIT):  # the group has its turn, which this thread shares
                pass
            both_waits = self.apart(self.work, both)
            self.waits(self.shared, 2)
            with self.assertRaisesRegex(GolaunchError, f"{d.name} cannot have its turn within that of {a.name}"):
                d.active(LIMIT).__enter__()
        leave.set()
        crossing(), both_waits()
        self.work(d)
        self.assertEqual((self.shared._turns.running, self.shared._turns.queue), ({}, []))


class Apart(OfDriver):
    colocate = 1

    def test_groups_with_no_gpu_in_common(self):
        a, b = self.turner("a", workers_per_node=1), self.turner("b", workers_per_node=1)
        self.assertNotEqual(a.workers[0].gpu, b.workers[0].gpu)
        with a.active(LIMIT), b.active(LIMIT):
            self.assertEqual((self.held(a), self.held(b)), ([40], [40]))


if __name__ == "__main__":
    unittest.main()
