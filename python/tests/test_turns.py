"""Groups that take turns on the same places. test_gpus.py tests the memory of GPUs."""

import os
import sys
import threading
import unittest

from base import LIMIT, Case
from golaunch import GolaunchError, WorkerFailureError, WorkerGroup
from golaunch.errors import GroupDeadError


class Turns(Case):
    def groups(self, *names, size=2, target="workers:Turner", **options):
        self.shared = self.cluster(size, colocate=4)
        return [self.turner(name, target=target, **options) for name in names]

    def turner(self, name, target="workers:Turner", **options):
        return WorkerGroup(self.shared, target, self.path("log"), name, name=name, show_output=False, **options)

    def said(self):
        if not os.path.exists(self.path("log")):
            return []
        with open(self.path("log")) as f:
            return f.read().splitlines()

    def work(self, group, **options):
        with group.active(LIMIT) as g:
            self.assertIs(g, group)
            g.run_all_workers_single_data("work", **options).result(LIMIT)

    def test_left_in_another_thread(self):
        a, b = self.groups("a", "b")
        turn = a.active(LIMIT)
        turn.__enter__()
        self.apart(turn.__exit__, None, None, None)()
        self.work(b)

    def test_a_worker_that_has_ended(self):
        a, b = self.groups("a", "b")
        self.work(a)
        with self.assertRaises(WorkerFailureError):
            a.run_single_worker_single_data("leave", 0, 0).result(LIMIT)
        with self.assertRaisesRegex(WorkerFailureError, "exited with code 0"):
            a.run_single_worker_single_data("work", 0).result(LIMIT)
        self.work(b)

    def test_turns(self):
        a, b = self.groups("a", "b")
        self.work(a)
        self.work(a)
        self.work(b)
        self.work(a)
        self.assertEqual(self.said(), [
            "b offload", "a onload", "a work", "a work", "a offload", "b onload", "b work", "b offload", "a onload", "a work"])

    def test_names(self):
        a, = self.groups("a", target="workers:Sleeper", offload_method="sleep", onload_method="wake_up")
        plain = self.group(cluster=self.shared)
        with plain.active():
            self.assertEqual(plain.run_all_workers_single_data("add", 1), [1, 2])
        with a.active():
            pass
        self.assertEqual(self.said(), ["a sleep", "a wake_up"])
        wrong = self.turner("c", onload_method="absent")
        with self.assertRaisesRegex(WorkerFailureError, "Turner has no method 'absent'"):
            with wrong.active():
                self.fail("it has its turn")
        self.assertEqual(self.shared._turns.running, {})

    def test_one_at_a_time(self):
        groups = self.groups("a", "b", "c")
        inside, most, lock = set(), [], threading.Lock()

        def turns(group):
            for _ in range(4):
                with group.active(LIMIT):
                    with lock:
                        inside.add(group.name)
                        most.append(len(inside))
                    group.run_all_workers_single_data("work").result(LIMIT)
                    with lock:
                        inside.discard(group.name)

        for result in [self.apart(turns, g) for g in groups]:
            result()
        self.assertEqual((len(most), set(most)), (12, {1}))
        has = None  # the holder of the memory, by their orders
        for line in self.said():
            name, word = line.split()
            if word == "onload":
                self.assertIn(has, (None, name))
                has = name
            elif word == "offload" and has == name:
                has = None
            elif word == "work":
                self.assertEqual(has, name)

    def test_threads_share_a_turn(self):
        a, b = self.groups("a", "b")
        with a.active():
            other = self.apart(self.work, b)
            self.waits(self.shared, 1)
            self.apart(self.work, a)()  # although b has waited longer
            self.assertNotIn("b work", self.said())
        other()
        self.assertEqual(self.said()[-4:], ["a work", "a offload", "b onload", "b work"])

    def test_a_turn_that_begins_is_waited_for(self):
        a, = self.groups("a", slow="onload")
        first, second = self.apart(self.work, a), self.apart(self.work, a)
        self.shared._wait(lambda: self.shared._turns.running and len(self.shared._turns.queue) == 1, LIMIT, None)
        open(self.path("log") + ".go", "w").close()
        first(), second()
        self.assertEqual(self.said(), ["a onload", "a work", "a work"])

    def test_nested(self):
        a, b = self.groups("a", "b")
        with a.active():
            with a.active(0.001):
                with self.assertRaisesRegex(GolaunchError, "b cannot have its turn within that of a"):
                    with b.active():
                        self.fail("it has its turn")
            with self.assertRaisesRegex(TimeoutError, r"b did not get its turn within 0.01 s: it is a's"):
                self.apart(lambda: b.active(0.01).__enter__())()
        self.work(b)
        self.assertEqual((self.shared._turns.running, self.shared._turns.queue), ({}, []))

    def holding(self):
        """A file, and a Python that does not begin while the file exists."""
        held, python = self.path("held"), self.path("python")
        with open(python, "w") as f:
            f.write(f"#!/bin/sh\nwhile [ -e {held} ]; do sleep 0.01; done\nexec {sys.executable} \"$@\"\n")
        os.chmod(python, 0o700)
        return held, python

    def test_a_group_that_is_being_started(self):
        """A starting group may load its model when another group's turn begins: the other group
        waits for it, and it gets the order to offload."""
        held, python = self.holding()
        a, = self.groups("a")
        open(held, "w").close()
        started = self.apart(lambda: self.turner("b", python=python))
        self.shared._wait(lambda: len(self.shared.groups) == 2, LIMIT, None)
        with self.assertRaisesRegex(TimeoutError, "b has not answered offload"):
            a.active(0.1).__enter__()
        working = self.apart(self.work, a)
        self.shared._wait(lambda: self.shared._turns.running, LIMIT, None)
        self.assertEqual(self.said(), [])
        os.remove(held)
        working()
        started()
        self.assertEqual(self.said(), ["b offload", "a onload", "a work"])

    def test_a_group_that_ends_in_its_turn(self):
        """Others do not wait for an ended group, although a thread is still in its block."""
        a, b = self.groups("a", "b")
        c = self.turner("c", restart_on_failure=False)
        with c.active(LIMIT):
            waiting = self.apart(self.work, b)
            self.waits(self.shared, 1)
            with self.assertRaises(WorkerFailureError):
                c.run_single_worker_single_data("work", 1, c.workers[1].pid).result(LIMIT)
            self.shared._wait(lambda: c._dead, LIMIT, None)
            waiting()
            self.apart(self.work, a)()
            c.restart_failed_workers(LIMIT)
            self.work(c)  # not the turn of the enclosing block
            self.assertEqual(self.said()[-3:], ["a offload", "c onload", "c work"])
        self.assertEqual((self.shared._turns.running, self.shared._turns.queue), ({}, []))

    def test_a_restart_beside_a_turn(self):
        """The nodes of starting workers are unknown: such a group has no turn together with another
        group."""
        held, python = self.holding()
        a, = self.groups("a")
        b = self.turner("b", restart_on_failure=False, python=python)
        with self.assertRaises(WorkerFailureError):
            b.run_single_worker_single_data("work", 1, b.workers[1].pid).result(LIMIT)
        self.shared._wait(lambda: b._dead, LIMIT, None)
        open(held, "w").close()
        with a.active(LIMIT):
            started = self.apart(b.restart_failed_workers, LIMIT)
            self.shared._wait(lambda: b._dead is None, LIMIT, None)
            with self.assertRaisesRegex(TimeoutError, r"b did not get its turn within 0.1 s: its workers \[0, 1\] are not there"):
                self.apart(lambda: b.active(0.1).__enter__())()
            os.remove(held)
            self.assertEqual(started(), [0, 1])
            waiting = self.apart(self.work, b)
            self.waits(self.shared, 1)
        waiting()
        self.assertEqual(self.said(), ["a onload", "a offload", "b onload", "b work"])

    def test_exceptions(self):
        a, b = self.groups("a", "b")
        with self.assertRaises(KeyError):
            with a.active():
                raise KeyError("mine")
        self.work(b)
        c = self.turner("c", fails="offload")
        self.work(c)
        with self.assertRaisesRegex(WorkerFailureError, "it cannot offload") as caught:
            self.work(a)
        self.assertEqual(caught.exception.method, "offload")
        open(self.path("log") + ".well", "w").close()
        self.work(a)  # the group is asked again
        self.assertEqual(self.said()[-5:], ["c work", "c offload", "c offload", "a onload", "a work"])

    def test_an_onload_that_fails(self):
        a, b = self.groups("a", "b", fails="onload")
        with self.assertRaisesRegex(WorkerFailureError, "it cannot onload"):
            self.work(a)
        open(self.path("log") + ".well", "w").close()
        self.work(b)
        self.assertEqual(self.said(), ["b offload", "a onload", "a offload", "b onload", "b work"])

    def test_an_offload_that_takes_too_long(self):
        a, b = self.groups("a", "b", slow="offload")
        open(self.path("log") + ".go", "w").close()
        self.work(a)
        os.remove(self.path("log") + ".go")
        with self.assertRaises(TimeoutError):
            b.active(0.3).__enter__()
        open(self.path("log") + ".go", "w").close()
        self.work(b)

    def test_a_group_dies_in_its_turn(self):
        a, b = self.groups("a", "b")
        with self.assertRaises(WorkerFailureError):
            with a.active():
                a.run_single_worker_single_data("work", 1, a.workers[1].pid).result(LIMIT)
        self.work(b)  # a has new workers now, which may have loaded the model again
        self.assertEqual(self.said(), ["b offload", "a onload", "a offload", "b onload", "b work"])
        c = self.turner("c", restart_on_failure=False)
        with self.assertRaises(WorkerFailureError):
            with c.active():
                c.run_single_worker_single_data("work", 1, c.workers[1].pid).result(LIMIT)
        self.work(b)
        self.shared._wait(lambda: c._dead, LIMIT, None)
        with self.assertRaises(GroupDeadError):
            self.work(c)
        c.restart_failed_workers(LIMIT)
        self.work(c)
        self.assertEqual(self.said()[-3:], ["b offload", "c onload", "c work"])

    def test_a_restart_in_a_turn(self):
        a, = self.groups("a")
        with a.active():
            with self.assertRaises(WorkerFailureError):
                a.run_single_worker_single_data("work", 1, a.workers[1].pid).result(LIMIT)
            a.restart_failed_workers(LIMIT)
        self.work(a)
        self.assertEqual(self.said(), ["a onload", "a onload", "a work"])

    def test_what_has_ended(self):
        a, b = self.groups("a", "b")
        with a.active():
            waiting = self.apart(self.work, b)
            self.waits(self.shared, 1)
            b.shutdown(force=True)
            self.assertRaises(GroupDeadError, waiting)
            a.shutdown(force=True)
            c, d = self.turner("c"), self.turner("d")
            self.apart(self.work, c)()  # no caller waits for a group that has ended
            with c.active():
                waiting = self.apart(self.work, d)
                self.waits(self.shared, 1)
                self.shared.close()
                self.assertRaises(GolaunchError, waiting)
        self.assertRaises(GolaunchError, a.active().__enter__)
        self.assertEqual((self.shared._turns.running, self.shared._turns.queue), ({}, []))


if __name__ == "__main__":
    unittest.main()
