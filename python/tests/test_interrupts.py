"""Signals whose handlers raise an exception, such as the handler of ^C."""

import os
import signal
import threading
import unittest

from base import LIMIT, Case


class Interrupt(Exception):
    pass


class Interrupts(Case):
    def often(self, seconds):
        """Starts a timer whose handler raises wherever it interrupts golaunch, but not in this
        file, where nothing would catch it. Returns a function that stops the timer."""
        def raises(_, frame):
            if frame.f_code.co_filename != __file__:
                self.came += 1
                raise Interrupt

        self.came, before = 0, signal.signal(signal.SIGALRM, raises)
        signal.setitimer(signal.ITIMER_REAL, seconds, seconds)

        def end():
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

        self.addCleanup(end)
        return end

    def test_results(self):
        """At whatever place the interrupt comes, each call is answered, and so are later calls."""
        g = self.group(2)
        for apart in (False, True):
            with self.subTest(apart=apart):
                if apart:  # another thread reads, and this one waits for that
                    other = g.run_single_worker_single_data("wait_for", 0, self.path("go"))
                    ended = self.apart(other.result)
                futures = []
                end = self.often(0.003)
                while self.came < 60:
                    try:
                        f = g.run_single_worker_single_data("echo", 1, bytes(100000))
                        futures.append(f)
                        f.result(LIMIT)
                    except Interrupt:
                        pass
                end()
                for f in futures:
                    self.assertEqual(f.result(LIMIT), ((bytes(100000),), {}))
                if apart:
                    with open(self.path("go"), "w"):
                        pass
                    self.assertEqual(ended(), 0)
                self.assertEqual(g.run_all_workers_single_data("add", 1).result(LIMIT), [1, 2])
        self.assertTrue(g.shutdown())
        self.apart(g.cluster.close)()

    def test_streams(self):
        """No item is lost, and none comes twice."""
        g = self.group(1)
        items, got, count = g.run_single_worker_single_data("count", 0, 10 ** 9).result(LIMIT), [], 0
        end = self.often(0.005)
        while self.came < 40:
            try:
                got.append(next(items))
            except Interrupt:
                pass
        end()
        got.append(next(items))
        items.close()
        # A handler may have raised between the last step of next and the append.
        missing = [n for n in range(got[-1]) if n not in set(got)]
        self.assertLess(len(missing), 5)
        self.assertEqual(got, sorted(set(got)))
        self.assertEqual(g.run_all_workers_single_data("add", 1).result(LIMIT), [1])

    def test_a_wait_ends_at_once(self):
        g = self.group(1)
        for apart in (False, True):
            f = g.run_single_worker_single_data("sleep", 0, 600)
            if apart:
                ended = self.apart(lambda: [f.exception(LIMIT)])
            threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            with self.assertRaises(KeyboardInterrupt):
                f.result(LIMIT)
            f.cancel()
            if apart:
                ended()

    def test_handlers_are_what_they_were(self):
        g = self.group(1)
        called, many = [], threading.Event()

        def handler(number, frame):
            called.append((number, frame is not None))

        for number in (signal.SIGUSR1, signal.SIGUSR2):
            self.addCleanup(signal.signal, number, signal.signal(number, handler))
        f = g.run_single_worker_single_data("sleep", 0, 0.3)
        threading.Timer(0.1, lambda: [os.kill(os.getpid(), n) for n in (signal.SIGUSR1, signal.SIGUSR2)]).start()
        self.assertEqual(f.result(LIMIT), 0)
        self.assertEqual(sorted(called), [(signal.SIGUSR1, True), (signal.SIGUSR2, True)])
        self.assertIs(signal.getsignal(signal.SIGUSR1), handler)
        self.assertIs(signal.getsignal(signal.SIGINT), signal.default_int_handler)


if __name__ == "__main__":
    unittest.main()
