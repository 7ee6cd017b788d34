import os
import pickle
import sys
import threading
import unittest

from base import LIMIT, Case
from golaunch import wire
from golaunch.pickling import dumps, loads

try:
    import numpy
except ImportError:
    numpy = None


class Buffers(Case):
    def test_large_values(self):
        g = self.group(3)
        large = os.urandom(3 << 20)
        f = g.run_all_workers_single_data("give", large)
        self.assertTrue(all(r == large for r in f))
        beside = pickle.PickleBuffer(bytearray(large))
        args, kwargs = g.run_single_worker_single_data("echo", 1, [bytearray(large), b"small"], key=large).result(LIMIT)
        self.assertEqual((args[0], kwargs), ([bytearray(large), b"small"], {"key": large}))
        self.assertEqual(g.run_single_worker_single_data("bytes_of", 2, beside, beside).result(LIMIT), [large, large])

    def test_many_buffers(self):
        g = self.group(1)
        many = [pickle.PickleBuffer(bytearray(os.urandom(70 << 10))) for _ in range(200)]
        self.assertEqual(g.run_single_worker_single_data("bytes_of", 0, *many).result(LIMIT), [bytes(m) for m in many])

    def test_both_ways_at_once(self):
        """Neither end waits for the other to read."""
        g = self.group(2)
        large = [[os.urandom(1000) for _ in range(50)] for _ in range(8)]
        all_ = [g.run_all_workers_single_data("give", part) for part in large * 20]
        for part, f in zip(large * 20, all_):
            self.assertEqual(f.result(LIMIT), [part, part])

    def test_what_is_queued_is_sent_though_nobody_waits(self):
        g = self.group(1)
        go, path = self.path("go"), self.path("clean")
        g.run_single_worker_single_data("wait_for", 0, go)
        for _ in range(100):
            g.run_single_worker_single_data("give", 0, [b"x" * 10000])
        g.run_single_worker_single_data("clean", 0, path)
        open(go, "w").close()
        end = threading.Event()
        for _ in range(LIMIT * 100):
            if os.path.exists(path + ".0"):
                return
            end.wait(0.01)
        self.fail("the last call was not sent")

    def test_no_descriptor_is_left(self):
        g = self.group(2)
        large = bytearray(1 << 20)
        for _ in range(3):  # reused memory is mapped
            g.run_all_workers_single_data("buffer", 1 << 20, pickle.PickleBuffer(large)).result(LIMIT)
        g.run_all_workers_single_data("add", 1).result(LIMIT)  # earlier calls are over then
        before = len(os.listdir("/proc/self/fd"))
        theirs = [len(os.listdir(f"/proc/{w.pid}/fd")) for w in g.workers]
        for _ in range(100):
            g.run_all_workers_single_data("buffer", 1 << 20, pickle.PickleBuffer(large)).result(LIMIT)
        g.run_all_workers_single_data("add", 1).result(LIMIT)
        self.assertEqual(len(os.listdir("/proc/self/fd")), before)
        self.assertEqual([len(os.listdir(f"/proc/{w.pid}/fd")) for w in g.workers], theirs)


@unittest.skipIf(numpy is None, "NumPy is not there")
class Arrays(Case):
    def test_arrays(self):
        g = self.group(2, "workers:Arrays")
        array = numpy.arange(1 << 20, dtype="float32")
        total = float(array.sum())
        self.assertEqual(g.run_all_workers_single_data("total", array), [(total, True)] * 2)
        before = array.copy()
        doubled = g.run_all_workers_single_data("double", array)
        self.assertTrue((array == before).all(), "a worker has written to what is the controller's")
        self.assertTrue(all((d == 2 * before).all() for d in doubled))
        doubled[0][:] = 0
        self.assertTrue((doubled[1] == 2 * before).all(), "two results share memory")
        small = numpy.arange(10)
        self.assertTrue((g.run_single_worker_single_data("double", 0, small).result(LIMIT) == 2 * small).all())
        strided = array[::2]
        self.assertTrue((g.run_single_worker_single_data("give", 0, strided).result(LIMIT) == strided).all())
        parts = g.run_all_workers_multiple_data("give", [array[:1 << 19], array[1 << 19:]])
        self.assertTrue((numpy.concatenate(list(parts)) == array).all())


class Frames(unittest.TestCase):
    """The frames themselves, through a socket that gives them in pieces of any size."""

    def pair(self, limit=1 << 24, shared=True):
        import _socket
        import socket

        a, b = socket.socketpair()
        self.addCleanup(a.close)
        self.addCleanup(b.close)
        inner = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, b.detach())
        self.addCleanup(inner.close)
        return a, wire.Reader(inner, limit, shared)

    def read(self, reader):
        frame = reader.next()
        while frame is None:
            self.assertTrue(reader.fill())
            frame = reader.next()
        return frame

    def test_round(self):
        value = {"a": [bytearray(os.urandom(n)) for n in (0, 1, 100, 100_000)], "b": pickle.PickleBuffer(bytearray(200_000))}
        for shared in (True, False):
            a, reader = self.pair()
            body, buffers = dumps(value)
            parts, segment = wire.encode(wire.CALL, 7, b"name", body, buffers, shared=shared)
            self.assertEqual(segment is not None, shared)
            sender = threading.Thread(target=lambda: [wire.send_all(a, parts, segment) for _ in range(5)])
            sender.start()
            for _ in range(5):
                frame = self.read(reader)
                self.assertEqual((frame.kind, frame.call, frame.name), (wire.CALL, 7, b"name"))
                got = loads(frame.body, frame.buffers)
                self.assertEqual((got["a"], bytes(got["b"])), (value["a"], bytes(value["b"])))
            sender.join(LIMIT)

    def test_in_any_pieces(self):
        a, reader = self.pair()
        whole = b"".join(b"".join(wire.encode(wire.CALL, i, b"n" * i, b"b" * (i * 37), [b"c" * 10] * (i % 3), shared=False)[0]) for i in range(40))
        got = []
        for i in range(0, len(whole), 7):
            a.sendall(whole[i:i + 7])
            reader.fill()
            frame = reader.next()
            while frame is not None:
                got.append((frame.call, len(frame.name), len(frame.body), [bytes(b) for b in frame.buffers]))
                frame = reader.next()
        self.assertEqual(got, [(i, i, i * 37, [b"c" * 10] * (i % 3)) for i in range(40)])

    def test_what_may_not_be(self):
        for head, rest in (
            ((wire.CALL, 0, 0, 0, 1, 1 << 30), b""),  # too long
            ((wire.CALL, 0, 0, 1 << 20, 1, 0), b""),  # a long name
            ((wire.CALL, 0, 1, 0, 1, 0), wire.SIZE.pack(1 << 40)),  # a long buffer
            ((wire.CALL, wire.SEGMENT, 1, 0, 1, 0), wire.SIZE.pack(wire.LARGE | 5)),  # no descriptor
            ((wire.CALL, 0, 1, 0, 1, 0), wire.SIZE.pack(wire.LARGE | 5)),  # no segment
            ((wire.CALL, wire.BODY_APART, 0, 0, 1, 5), b""),
        ):
            a, reader = self.pair(limit=1 << 20)
            a.sendall(wire.HEADER.pack(*head) + rest)
            with self.assertRaises(wire.ProtocolError, msg=str(head)):
                self.read(reader)

    def test_descriptors_from_who_may_not_send_them(self):
        import socket

        a, reader = self.pair(shared=False)
        before = len(os.listdir("/proc/self/fd"))
        fd = os.memfd_create("x")
        try:
            socket.send_fds(a, [wire.HEADER.pack(wire.CALL, 0, 0, 0, 1, 0)], [fd])
        except AttributeError:  # Python 3.8
            pass
        finally:
            os.close(fd)
        with self.assertRaises(wire.ProtocolError):
            self.read(reader)
        self.assertEqual(len(os.listdir("/proc/self/fd")), before)


if __name__ == "__main__":
    unittest.main()
