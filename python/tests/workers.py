"""Classes of the workers in the tests."""

import os
import pickle
import select
import signal
import sys
import time


class Worker:
    made = 0

    def __init__(self, offset=0, *, scale=1):
        Worker.made += 1
        self.rank, self.offset, self.scale = int(os.environ["RANK"]), offset, scale

    def add(self, x, y=0):
        return (self.rank + x + y) * self.scale + self.offset

    def echo(self, *args, **kwargs):
        return args, kwargs

    def give(self, value):
        return value

    def filled(self, byte, n):
        return pickle.PickleBuffer(bytes([byte]) * n)

    def keep(self, value):
        self.value = value

    def kept(self):
        return bytes(self.value)

    def bytes_of(self, *buffers):
        return [bytes(b) for b in buffers]

    def digest_and_clear(self, buffer):
        """Returns the sum of a buffer and clears it, which others must not notice."""
        import hashlib

        digest = hashlib.sha256(buffer).hexdigest()
        if not memoryview(buffer).readonly:
            buffer[:8] = bytes(8)
        return digest

    def offset_of(self):
        return self.offset

    def buffer(self, n, given=b""):
        return pickle.PickleBuffer(bytearray(n + len(given)))

    def who(self):
        return self.rank, os.getpid(), Worker.made

    def environment(self):
        return {k: os.environ.get(k) for k in (
            "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID",
            "GOLAUNCH_NODE", "GOLAUNCH_CONTROLLER_KEY", "MINE", "CUDA_VISIBLE_DEVICES", "GOLAUNCH_GPU_SHARE")}

    def count(self, n):
        for i in range(n):
            yield self.rank * 100 + i

    def endless(self, path):
        i = 0
        while True:
            with open(path, "w") as f:
                f.write(str(i))
            yield i
            i += 1

    def bad_generator(self):
        yield 1
        raise ValueError("after one")

    def sleep(self, seconds):
        time.sleep(seconds)
        return self.rank

    def sleep_on(self, rank, seconds):
        if self.rank == rank:
            time.sleep(seconds)
        return self.rank

    def sleep_uninterrupted(self, path, until):
        """The first request to end is lost."""
        before = signal.signal(signal.SIGURG, signal.SIG_IGN)
        open(path, "w").close()
        while not os.path.exists(until):
            time.sleep(0.001)
        signal.signal(signal.SIGURG, before)
        time.sleep(600)

    def nth(self, value=None):
        """The number of calls."""
        self.called = getattr(self, "called", 0) + 1
        return self.called

    def reuse(self, byte, n):
        """A buffer that the next call writes to."""
        if not hasattr(self, "buffer_of"):
            self.buffer_of = bytearray(n)
        self.buffer_of[:] = bytes([byte]) * n
        return pickle.PickleBuffer(self.buffer_of)

    def wait_for(self, path):
        while not os.path.exists(path):
            time.sleep(0.001)
        return self.rank

    def boom(self, text="boom"):
        raise KeyError(text)

    def boom_on(self, rank):
        if self.rank == rank:
            raise KeyError(rank)
        time.sleep(60)

    def strange_boom(self):
        raise Strange(1, 2)

    def kill(self, rank, number=signal.SIGKILL):
        if self.rank == rank:
            print("my last words", file=sys.stderr, flush=True)
            os.kill(os.getpid(), number)
        time.sleep(60)

    def kill_and_echo(self, pid):
        """One worker dies, and the other fails because of that."""
        if os.getpid() == pid:
            os.kill(pid, signal.SIGKILL)
        try:
            select.select([os.pidfd_open(pid)], [], [])
        except ProcessLookupError:
            pass
        raise RuntimeError("connection closed by peer")

    def leave(self, rank, code, hard=True):
        if self.rank == rank:
            os._exit(code) if hard else sys.exit(code)
        return self.rank

    def unpicklable(self):
        return lambda: 1

    def large(self, n):
        return b"x" * n

    def say(self, text):
        print(text, flush=True)
        print(text, file=sys.stderr, flush=True)
        os.system("echo child of " + text)

    def fork(self):
        """A child that survives, with its inherited descriptors."""
        pid = os.fork()
        if pid == 0:
            time.sleep(60)
            os._exit(0)
        return pid

    def allocate(self, n):
        return len(bytearray(n))

    def interrupted(self, path):
        try:
            open(path, "w").close()
            while True:
                time.sleep(60)
        except BaseException as error:
            with open(path, "w") as f:
                f.write(type(error).__name__)
            raise

    def clean(self, path):
        with open(f"{path}.{self.rank}", "w"):
            pass


class Lingerer:
    """It reports the progress of its coroutine, which waits for an event."""

    def __init__(self):
        self.said = []

    async def linger(self, path):
        import asyncio

        try:
            self.wanted = asyncio.Event()
            with open(path, "w"):
                pass
            await self.wanted.wait()
            self.said.append("went on")
        finally:
            self.said.append("ended")

    async def what_was_said(self):
        import asyncio

        self.wanted.set()
        for _ in range(10):
            await asyncio.sleep(0)
        return self.said


class Strange(Exception):
    """It can be pickled, but not unpickled."""

    def __init__(self, a, b):
        super().__init__("strange")


class Unmakeable:
    def __init__(self, rank):
        if int(os.environ["RANK"]) == rank:
            raise RuntimeError("it cannot be made")


class MadeOnce:
    """It cannot be unpickled once a file exists."""

    def __init__(self, path):
        self.path = path
        if os.path.exists(path):
            raise RuntimeError("not again")

    def die(self):
        with open(self.path, "w"):
            pass
        os._exit(3)


class Turner:
    """It writes its orders to a file. A simulated driver, whose directory is held, reports how much
    memory of a GPU it has."""

    def __init__(self, log, name, held="", size=0, keeps=0, fails="", slow="", loads=False):
        self.log, self.name, self.held, self.size, self.keeps, self.fails, self.slow = log, name, held, size, keeps, fails, slow
        self.rank = int(os.environ["RANK"])
        if loads:
            self.take(size)

    def take(self, size):
        if self.held:
            path = os.path.join(self.held, os.environ["GOLAUNCH_GPU_UUID"], str(os.getpid()))
            with open(path + ".new", "w") as f:
                f.write(str(size))
            os.rename(path + ".new", path)

    def say(self, word):
        if self.rank == 0:
            with open(self.log, "a") as f:
                f.write(f"{self.name} {word}\n")
        if self.fails == word and self.rank == 0 and not os.path.exists(self.log + ".well"):
            raise RuntimeError(f"it cannot {word}")
        while self.slow == word and not os.path.exists(self.log + ".go"):
            time.sleep(0.001)

    def onload(self):
        self.say("onload")
        self.take(self.size)

    def offload(self):
        self.say("offload")
        self.take(self.keeps)

    def work(self, pid=0):
        self.say("work")
        if pid == os.getpid():
            os.kill(pid, signal.SIGKILL)
            time.sleep(60)

    def leave(self, code):
        os._exit(code)


class Sleeper(Turner):
    """The same with vLLM's names."""

    def sleep(self):
        self.say("sleep")

    def wake_up(self):
        self.say("wake_up")


class Point:
    def __init__(self, x):
        self.x = x

    def __eq__(self, other):
        return isinstance(other, Point) and other.x == self.x




class Arrays:
    """The same with NumPy."""

    def total(self, array):
        return float(array.sum()), array.flags.writeable

    def double(self, array):
        array *= 2
        return array

    def give(self, value):
        return value

    def make(self, n):
        import numpy

        return numpy.arange(n, dtype="float64")


class Gloo:
    def __init__(self):
        import torch.distributed as dist

        dist.init_process_group("gloo")

    def reduce(self, x):
        import torch
        import torch.distributed as dist

        t = torch.tensor([float(x + dist.get_rank())])
        dist.all_reduce(t)
        return t.item()
