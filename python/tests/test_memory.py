import errno
import mmap
import os
import pickle
import random
import signal
import socket
import unittest
from unittest import mock

from base import LIMIT, Case
from golaunch import memory
from golaunch.memory import Pool

KIB = 1 << 10
parent = os.getpid()


def mapped(segment, length):
    return mmap.mmap(segment.fd, length, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)


def raises(number):
    def fail(*_, **__):
        raise OSError(number, os.strerror(number))

    return fail


class Files(unittest.TestCase):
    def setUp(self):
        self.pool = Pool()
        self.before = len(os.listdir("/proc/self/fd"))

    def tearDown(self):
        self.pool.clear()
        self.assertEqual(len(os.listdir("/proc/self/fd")), self.before)

    def one_file(self, text):
        """Whether the next use is a use of the only file."""
        segment = self.pool.share([text], 64)
        try:
            self.assertEqual(os.pread(segment.fd, len(text), 0), text)
            return len(self.pool.files) == 1
        finally:
            del segment

    def test_who_has_it_keeps_it(self):
        """A descriptor, also one on its way, a mapping, and a child that has inherited it."""
        here, there = socket.socketpair(socket.AF_UNIX)
        with here, there:
            self.all_who_may_have_it(here, there)

    def all_who_may_have_it(self, here, there):
        for has in ("descriptor", "mapping", "written", "on its way", "child"):
            with self.subTest(has):
                self.pool.clear()
                self.assertTrue(self.one_file(b"a" * 100000))
                self.assertTrue(self.one_file(b"b" * 100000))  # no process has the first any more
                segment = self.pool.share([b"c" * 100000], 64)
                held = child = None
                if has in ("mapping", "written"):
                    held = mapped(segment, 100000)
                    if has == "written":
                        held[:4] = b"mine"
                elif has == "on its way":
                    socket.send_fds(here, [b"x"], [segment.fd])
                elif has == "child":
                    release, wait = os.pipe()
                    child = os.fork()
                    if child == 0:
                        os.close(wait)
                        os.read(release, 1)
                        os._exit(0)
                    os.close(release)
                else:
                    held = os.dup(segment.fd)
                del segment
                self.assertFalse(self.one_file(b"d" * 100000))
                if has in ("mapping", "written"):
                    self.assertEqual(held[:], (b"mine" if has == "written" else b"cccc") + b"c" * 99996)
                    held.close()
                elif has == "on its way":
                    _, (fd,), _, _ = socket.recv_fds(there, 1, 1)
                    self.assertEqual(os.pread(fd, 100000, 0), b"c" * 100000)
                    os.close(fd)
                elif has == "child":
                    os.close(wait)
                    os.waitpid(child, 0)
                else:
                    self.assertEqual(os.pread(held, 100000, 0), b"c" * 100000)
                    os.close(held)
                self.assertEqual([f.free() for f in self.pool.files], [True, True])

    def test_uses_are_told_apart(self):
        seen = set()
        for i in range(5):
            segment = self.pool.share([b"x" * 100, b"y" * (70 * KIB + i)], 64)
            offset = os.lseek(segment.fd, 0, os.SEEK_CUR)
            self.assertEqual(offset & (1 << 44) - 1, 128 + -(-(70 * KIB + i) // 64) * 64)
            seen.add((os.fstat(segment.fd).st_ino, offset))
            del segment
        self.assertEqual(len(seen), 5)
        self.assertEqual(len(self.pool.files), 1)

    def test_what_others_have_does_not_change(self):
        """Shares, holds and drops values in any order."""
        chance = random.Random(1)
        held = []
        for i in range(600):
            parts = [chance.randbytes(chance.choice([1, 63, 64, 1000, 70 * KIB, 300 * KIB])) for _ in range(chance.randrange(1, 4))]
            segment = self.pool.share(parts, 64)
            want = b"".join(p + bytes(-len(p) % 64) for p in parts)
            held.append((mapped(segment, len(want)), parts))
            del segment
            while len(held) > chance.randrange(1, 30):
                held.pop(chance.randrange(len(held)))[0].close()
            got, parts = chance.choice(held or [(b"", [])])
            at = 0
            for p in parts:
                self.assertEqual(got[at:at + len(p)], p)
                at += -(-len(p) // 64) * 64
            self.assertLessEqual(len(self.pool.files), memory._FILES)
        for m, _ in held:
            m.close()

    def test_bounds(self):
        self.pool._most = 1 << 20
        held = [self.pool.share([b"x" * (300 * KIB)], 64) for _ in range(10)]
        self.assertLessEqual(sum(f.size for f in self.pool.files), 1 << 20)
        large = self.pool.share([b"y" * (2 << 20)], 64)
        self.assertEqual(os.pread(large.fd, 4 << 20, 0), b"y" * (2 << 20))
        self.assertNotIn(os.fstat(large.fd).st_ino, [os.fstat(f.fd).st_ino for f in self.pool.files])
        for segment in held:
            self.assertEqual(os.pread(segment.fd, 300 * KIB, 0), b"x" * (300 * KIB))
        del segment

    def test_how_much_is_kept(self):
        with mock.patch.dict(os.environ, LOCAL_WORLD_SIZE="1000000"):
            self.assertLess(memory._most(), 1 << 20)
        with mock.patch.dict(os.environ, LOCAL_WORLD_SIZE="many"):
            self.assertLessEqual(memory._most(), 3 << 30)

    def test_what_is_of_no_use_is_given_back(self):
        one = self.pool.share([b"x" * 1000], 64)
        self.pool.share([b"y" * (100 * KIB)], 64)
        self.pool.tidy()
        self.assertEqual(len(self.pool.files), 2)
        self.pool._due = 0
        with mock.patch.object(memory, "AGE", 0):
            self.pool.tidy()
            self.assertEqual([f.size for f in self.pool.files], [4096])  # a process may finish with it in a moment
            del one
            self.pool.tidy()
        self.assertEqual(self.pool.files, [])

    def test_uses_run_out(self):
        self.pool.share([b"x" * 1000], 64)
        file = self.pool.files[0]
        file.uses = memory._USES - 2
        offsets = []
        for _ in range(3):
            segment = self.pool.share([b"y" * 1000], 64)
            offsets.append(os.lseek(segment.fd, 0, os.SEEK_CUR) >> 44)
            del segment
        self.assertEqual(offsets, [memory._USES - 1, 1, 2])

    def test_where_nothing_can_be_mapped(self):
        with mock.patch.object(memory.mmap, "mmap", raises(errno.ENOMEM)):
            for text in (b"a" * 1000, b"b" * 1000, b"c" * 1000):
                self.assertTrue(self.one_file(text))

    def test_who_opens_all_that_there_is(self):
        """A tool that reads /proc ends no process, and changes nothing."""
        self.pool.share([b"x" * 1000], 64)
        opener = os.fork()
        if opener == 0:
            while os.getppid() == parent:
                for file in range(3, 12):
                    try:
                        os.close(os.open(f"/proc/{parent}/fd/{file}", os.O_RDONLY | os.O_NONBLOCK))
                    except OSError:
                        pass
            os._exit(0)
        try:
            for i in range(20000):
                segment = self.pool.share([b"%d" % i], 64)
                self.assertEqual(os.pread(segment.fd, 10, 0)[:len(b"%d" % i)], b"%d" % i)
                del segment
        finally:
            os.kill(opener, signal.SIGKILL)
            os.waitpid(opener, 0)

    def test_a_signal_handler_shares_too(self):
        def share(*_):
            handled.append(self.pool.share([b"handler" * 1000], 64))
            if len(handled) > 3:
                del handled[0]
            self.pool.tidy()

        handled = []
        before = signal.signal(signal.SIGALRM, share)
        try:
            for i in range(5000):
                signal.setitimer(signal.ITIMER_REAL, (1 + i % 20) * 1e-5)  # once: otherwise each handler could be interrupted by the next one
                segment = self.pool.share([b"%d" % i], 64)
                self.assertEqual(os.pread(segment.fd, 10, 0)[:len(b"%d" % i)], b"%d" % i)
                del segment
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        for segment in handled:
            self.assertEqual(os.pread(segment.fd, 7000, 0), b"handler" * 1000)
        del segment, handled[:]

    def test_a_child_has_files_of_its_own(self):
        self.pool.share([b"x" * 1000], 64)
        child = os.fork()
        if child == 0:
            os._exit(0 if not self.pool.files and self.one_file(b"y" * 1000) else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(os.pread(self.pool.files[0].fd, 1000, 0), b"x" * 1000)

    def test_a_kernel_without_leases(self):
        for error in (errno.EINVAL, errno.EACCES, errno.ENOSYS):
            with mock.patch.object(memory._File, "free", raises(error)):
                pool = Pool()  # the process notices this at its first file
                for text in (b"a" * 1000, b"b" * 2000):
                    segment = pool.share([text], 64)
                    self.assertEqual(os.pread(segment.fd, 4000, 0)[:len(text)], text)
                    self.assertEqual(os.fstat(segment.fd).st_size, -(-len(text) // 64) * 64)
                    del segment
                self.assertEqual(pool.files, [])
        self.assertTrue(self.one_file(b"c" * 1000))
        with mock.patch.object(memory._File, "free", raises(errno.EACCES)), mock.patch.object(memory, "AGE", 0):
            self.pool.tidy()
        self.assertEqual(self.pool.files, [])
        self.pool.share([b"d" * 1000], 64)
        self.assertEqual(self.pool.files, [])

    def test_no_descriptor_is_free(self):
        with mock.patch.object(memory, "_opened_again", raises(errno.EMFILE)):
            with self.assertRaises(OSError):
                self.pool.share([b"x" * 1000], 64)
        self.assertTrue(self.one_file(b"y" * 1000))


class Calls(Case):
    def test_results_that_are_kept(self):
        """A result keeps its value when the worker returns the next one; and so do the arguments of
        a worker.
        """
        g = self.group(2)
        kept = []
        for i in range(40):
            kept.append(g.run_single_worker_single_data("filled", i % 2, i, 200 * KIB + i).result(LIMIT))
            if i % 5 == 4:
                del kept[-2]
        for k in kept:
            self.assertEqual(bytes(k), bytes([k[0]]) * len(k))
        g.run_all_workers_single_data("keep", pickle.PickleBuffer(b"first" * 20000)).result(LIMIT)
        for i in range(10):
            g.run_all_workers_single_data("give", bytes([i]) * 100000).result(LIMIT)
        self.assertEqual(g.run_all_workers_single_data("kept").result(LIMIT), [b"first" * 20000] * 2)


if __name__ == "__main__":
    unittest.main()
