"""A controller's connection to a worker, which never waits."""

import select
from collections import deque

from . import wire

_READ, _BOTH = select.EPOLLIN, select.EPOLLIN | select.EPOLLOUT


class Link:
    """What is said to a worker stands in a queue where its socket takes no more."""

    def __init__(self, cluster, sock):
        self.cluster, self.sock = cluster, sock
        self.reader = wire.Reader(sock, wire.MAX_HELLO, shared=False)
        self.shared = False
        self.worker = None
        self.queue = deque()
        self.queued = 0
        cluster._register(sock.fileno(), self, _READ)

    def known(self, worker, shared, limit):
        """From now on this is a worker's."""
        self.worker, self.shared = worker, shared
        self.reader.limit = limit
        if shared:
            self.reader.take_descriptors()

    def send(self, parts, segment=None):
        if not self.queue:
            try:
                if segment is None and len(parts) == 1:
                    n = self.sock.send(parts[0])
                    if n == len(parts[0]):
                        return
                else:
                    n = self.sock.sendmsg(parts[:512], wire.rights(segment))
                    segment = None
            except BlockingIOError:
                n = 0
            except OSError:
                return  # its end is read
            parts = _rest(parts, n)
            if not parts:
                return
            self.cluster._modify(self.sock.fileno(), _BOTH)
        self.queue.append([deque(memoryview(p).cast("B") for p in parts), segment])
        self.queued += sum(len(p) for p in parts)
        self.cluster._stir()

    def writable(self):
        while self.queue:
            parts, segment = self.queue[0]
            try:
                n = self.sock.sendmsg([parts[i] for i in range(min(len(parts), 64))], wire.rights(segment))
            except BlockingIOError:
                return
            except OSError:
                self.queue.clear()
                self.queued = 0
                break
            self.queue[0][1] = None
            self.queued -= n
            while n:
                if n < len(parts[0]):
                    parts[0] = parts[0][n:]
                    n = 0
                else:
                    n -= len(parts.popleft())
            if not parts:
                self.queue.popleft()
        self.cluster._modify(self.sock.fileno(), _READ)

    def readable(self):
        """Yields the frames that have come, and None when the worker says no more."""
        try:
            alive = self.reader.fill()
        except BlockingIOError:
            return
        except OSError:
            alive = False
        while True:
            frame = self.reader.next()
            if frame is None:
                break
            yield frame
        if not alive:
            yield None

    def close(self):
        if self.sock.fileno() >= 0:
            self.cluster._unregister(self.sock.fileno())
            self.sock.close()
            self.reader.close()
            self.queue.clear()
            self.queued = 0


def _rest(parts, n):
    """What is left of parts when n bytes were sent."""
    left = []
    for p in parts:
        if n >= len(p):
            n -= len(p)
        elif n:
            left.append(memoryview(p).cast("B")[n:])
            n = 0
        else:
            left.append(p)
    return left
