"""A controller's connection to a worker, which never waits."""

import _socket
import os
import select
from collections import deque

from . import wire

_READ, _BOTH = select.EPOLLIN, select.EPOLLIN | select.EPOLLOUT


class Link:
    """Frames to a worker wait in a queue if its socket takes no more.

    The socket of a worker on another machine leads to the helper, which forwards segments one after
    another. Segments wait in the queue, which is bounded, and not in the socket, which counts no
    more than their frames: the next segment is sent when the helper has read nearly everything
    before it.
    """

    def __init__(self, cluster, sock):
        self.cluster, self.sock = cluster, sock
        self.reader = wire.Reader(sock, wire.MAX_HELLO, shared=False)
        self.shared = False
        self._room = sock.getsockopt(_socket.SOL_SOCKET, _socket.SO_SNDBUF) // 2  # the kernel doubles the value
        self.worker = None
        self.queue = deque()
        self.queued = 0
        cluster._register(sock.fileno(), self, _READ)

    def known(self, worker, shared, limit):
        """Makes this the link of a worker. With shared, the worker is here and gets segments."""
        self.worker, self.shared = worker, shared
        self.reader.limit = limit
        if shared:
            self.reader.take_descriptors()

    def _narrow(self, segment):
        """Bounds the bytes that may be unread when the next part is sent. The next part may have a
        segment, so for a worker on another machine the bound is the minimum.
        """
        if not self.shared:
            self.sock.setsockopt(_socket.SOL_SOCKET, _socket.SO_SNDBUF, self._room if segment is None else 0)

    def send(self, parts, segment=None):
        if not self.queue:
            try:
                if segment is None and len(parts) == 1:
                    n = self.sock.send(parts[0])
                    if n == len(parts[0]):
                        return
                else:
                    self._narrow(segment)
                    n = self.sock.sendmsg(parts[:512], wire.rights(segment))
                    segment = None
                    self._narrow(None)
            except BlockingIOError:
                n = 0
            except OSError:
                return  # its end is read
            parts = _rest(parts, n)
            if not parts:
                return
            self.cluster._modify(self.sock.fileno(), _BOTH)
        self.queue.append([deque(memoryview(p).cast("B") for p in parts), segment])
        self.queued += sum(len(p) for p in parts) + _size(segment)
        self.cluster._stir()

    def writable(self):
        while self.queue:
            parts, segment = self.queue[0]
            try:
                self._narrow(segment)
                n = self.sock.sendmsg([parts[i] for i in range(min(len(parts), 64))], wire.rights(segment))
            except BlockingIOError:
                return
            except OSError:
                self.queue.clear()
                self.queued = 0
                break
            self.queue[0][1] = None
            self.queued -= n + _size(segment)
            while n:
                if n < len(parts[0]):
                    parts[0] = parts[0][n:]
                    n = 0
                else:
                    n -= len(parts.popleft())
            if not parts:
                self.queue.popleft()
        self._narrow(None)
        self.cluster._modify(self.sock.fileno(), _READ)

    def readable(self):
        """Yields the received frames, and None at the end."""
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


def _size(segment):
    return 0 if segment is None else os.fstat(segment.fd).st_size


def _rest(parts, n):
    """The parts after the first n bytes."""
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
