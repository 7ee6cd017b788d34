"""Frames between a controller and its workers.

A frame is a header, a name, a body, the sizes of its buffers, and the buffers. It may have a
segment: a file in memory with the large parts, whose descriptor comes with the frame. No byte of a
segment passes the socket, and all workers of a machine map the same pages. For workers on another
machine, the agent of their node makes such a file; frames from them have no segment. Everything is
little-endian.
"""

import _socket
import array
import mmap
import os
import struct
from collections import deque

from .memory import POOL

# kind, flags, number of buffers, length of the name, number of the call, length of the body
HEADER = struct.Struct("<BBHIQQ")
SIZE = struct.Struct("<Q")

HELLO, MAKE, READY, CALL, RESULT, ERROR, ITEM, END, CANCEL, CREDIT, BYE, ACK = range(1, 13)

# Flags: how the body is written, and which parts are in the segment.
PICKLE, JSON, RAW = 0, 1, 2
CODEC = 0x0F
SEGMENT = 0x80  # a descriptor comes with the frame
BODY_APART = 0x40  # the body is the first part of the segment
LARGE = 1 << 63  # in a buffer's size: the buffer is in the segment

# Parts smaller than SMALL go through the socket. A segment costs some 50 microseconds, as much as
# 64 KiB in the socket.
SMALL = 64 << 10
ALIGN = 64
MAX_BUFFERS = 1 << 14
MAX_NAME = 64 << 10
MAX_HELLO = 64 << 10
# After this number of frames, or of bytes, the receiver acknowledges them.
ACK_FRAMES, ACK_BYTES = 64, 64 << 10


class ProtocolError(Exception):
    """The other end breaks the protocol."""


class Frame:
    __slots__ = ("kind", "codec", "call", "name", "body", "buffers")

    def __init__(self, kind, codec, call, name, body, buffers):
        self.kind, self.codec, self.call, self.name, self.body, self.buffers = kind, codec, call, name, body, buffers


def encode(kind, call, name=b"", body=b"", buffers=(), codec=PICKLE, shared=True):
    """The parts of a frame in order, and its segment or None. With shared, large parts go into a
    segment.
    """
    if not buffers and (len(body) < SMALL or not shared):
        return [HEADER.pack(kind, codec, 0, len(name), call, len(body)) + name + bytes(body)], None
    if len(buffers) > MAX_BUFFERS:
        raise ProtocolError(f"{len(buffers)} buffers in one call, {MAX_BUFFERS} at most")
    flags, apart, inline, sizes = codec, [], [], []
    if shared and len(body) >= SMALL:
        flags |= BODY_APART
        apart.append(body)
    else:
        inline.append(body)
    for b in buffers:
        size = len(b)
        if shared and size >= SMALL:
            apart.append(b)
            size |= LARGE
        else:
            inline.append(b)
        sizes.append(SIZE.pack(size))
    if apart:
        flags |= SEGMENT
    head = HEADER.pack(kind, flags, len(buffers), len(name), call, len(body)) + name + b"".join(sizes)
    return [head] + [p for p in inline if len(p)], POOL.share(apart, ALIGN) if apart else None


def size_of(body, buffers):
    return len(body) + sum(len(b) for b in buffers)


class Replay:
    """The state that one end needs to resume after a connection has ended: the sent frames that the
    other end may not have, and the number of frames that this end has received.

    Each end counts the frames of the other end, without HELLO and ACK, over all connections of a
    worker's life. A worker's HELLO has the worker's count, and the controller answers with its own
    count in an ACK. Then each end repeats the frames that the other end lacks, and every frame is
    received exactly once.
    """

    def __init__(self):
        self.acked = self.received = 0
        self.unacked = deque()
        self._frames = self._bytes = 0

    def sent(self, parts, segment=None):
        """Keeps a frame, and returns its number."""
        self.unacked.append((parts, segment))
        return self.acked + len(self.unacked)

    def acknowledge(self, count):
        """Forgets the frames that the other end has received."""
        if not self.acked <= count <= self.acked + len(self.unacked):
            raise ProtocolError(f"the other end says that it received {count} frames, and {self.acked} to {self.acked + len(self.unacked)} were sent")
        while self.acked < count:
            self.unacked.popleft()
            self.acked += 1

    def take(self, frame):
        """Counts a frame of the other end, and returns the ACK that is due."""
        self.received += 1
        self._frames += 1
        self._bytes += size_of(frame.body, frame.buffers)
        return self.ack() if self._frames >= ACK_FRAMES or self._bytes >= ACK_BYTES else None

    def ack(self):
        self._frames = self._bytes = 0
        return encode(ACK, self.received)[0]


class Reader:
    """Takes frames out of a socket. limit bounds the bytes of a frame; shared says whether
    descriptors are taken."""

    def __init__(self, sock, limit, shared=True):
        self.sock, self.limit, self.shared = sock, limit, shared
        self._recvmsg_into = sock.recvmsg_into
        self._room = _socket.CMSG_SPACE(16 * 4) if shared else 0
        self._buf = bytearray(SMALL)
        self._view = memoryview(self._buf)
        self._start = self._end = 0
        self._fds = []
        # The frame that is being read into memory of its own: the part of its header that was read,
        # the memory, and the length of the filled part.
        self._large = None

    def take_descriptors(self):
        self.shared, self._room = True, _socket.CMSG_SPACE(16 * 4)

    def close(self):
        for fd in self._fds:
            os.close(fd)
        self._fds = []

    def fill(self, flags=0):
        """Reads once. Returns False at the end of the stream, and raises BlockingIOError if there
        is no input and it must not wait.
        """
        if self._large is not None:
            memory, have = self._large[1], self._large[2]
            n = self._receive(memoryview(memory)[have:], flags)
            self._large[2] += n
            return n > 0
        if self._start == self._end:
            self._start = self._end = 0
        elif self._end == len(self._buf):
            rest = self._end - self._start
            self._buf[:rest] = self._buf[self._start:self._end]
            self._start, self._end = 0, rest
        n = self._receive(self._view[self._end:], flags)
        self._end += n
        return n > 0

    def _receive(self, into, flags):
        n, beside, flags, _ = self._recvmsg_into([into], self._room, flags | _socket.MSG_CMSG_CLOEXEC)
        for level, kind, data in beside:
            if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
                fds = array.array("i")
                fds.frombytes(data[:len(data) - len(data) % fds.itemsize])
                self._fds.extend(fds)
        if flags & _socket.MSG_CTRUNC:
            raise ProtocolError("more descriptors than a frame may have")
        return n

    def next(self):
        """The next frame, or None if it is incomplete."""
        if self._large is not None:
            head, memory, have = self._large
            if have < len(memory):
                return None
            self._large = None
            return self._frame(head, memoryview(memory))
        have = self._end - self._start
        if have < HEADER.size:
            return None
        head = HEADER.unpack_from(self._buf, self._start)
        _, flags, buffers, name, _, body = head
        if name > MAX_NAME or buffers > MAX_BUFFERS:
            raise ProtocolError("malformed frame")
        rest = name + buffers * SIZE.size
        if not buffers:
            inline = 0 if flags & BODY_APART else body
        else:
            if have < HEADER.size + rest:
                if HEADER.size + rest > len(self._buf):
                    self._grow(HEADER.size + rest)
                return None
            inline = 0 if flags & BODY_APART else body
            at = self._start + HEADER.size + name
            for i in range(buffers):
                size, = SIZE.unpack_from(self._buf, at + i * SIZE.size)
                if not size & LARGE:
                    inline += size
        total = rest + inline
        if total > self.limit:
            raise ProtocolError(f"a frame of {total} bytes, {self.limit} at most")
        begin = self._start + HEADER.size
        if have >= HEADER.size + total:
            self._start = begin + total
            # The next frame must not overwrite parts of this frame that are kept, and the receiver
            # of a buffer may write to the buffer.
            return self._frame(head, memoryview((bytearray if buffers else bytes)(self._view[begin:begin + total])))
        if HEADER.size + total > len(self._buf):
            memory = bytearray(total)
            got = have - HEADER.size
            memory[:got] = self._view[begin:self._end]
            self._start = self._end = 0
            self._large = [head, memory, got]
        return None

    def _grow(self, size):
        buf = bytearray(2 * size)
        have = self._end - self._start
        buf[:have] = self._view[self._start:self._end]
        self._buf, self._view, self._start, self._end = buf, memoryview(buf), 0, have

    def _frame(self, head, data):
        kind, flags, count, name, call, body = head
        if not count and not flags & ~CODEC:
            return Frame(kind, flags, call, bytes(data[:name]), data[name:name + body], [])
        at = name + count * SIZE.size
        sizes = [SIZE.unpack_from(data, name + i * SIZE.size)[0] for i in range(count)]
        segment, inside = memoryview(b""), 0
        if flags & SEGMENT:
            large = [size & ~LARGE for size in sizes if size & LARGE]
            segment = self._map(sum(-(-size // ALIGN) * ALIGN for size in ([body] if flags & BODY_APART else []) + large))

        def take(size, apart):
            nonlocal at, inside
            if not apart:
                at += size
                return data[at - size:at]
            if inside + size > len(segment):
                raise ProtocolError("a frame without its segment")
            part = segment[inside:inside + size]
            inside += -(-size // ALIGN) * ALIGN
            return part

        content = take(body, flags & BODY_APART)
        return Frame(kind, flags & CODEC, call, bytes(data[:name]), content, [take(size & ~LARGE, size & LARGE) for size in sizes])

    def _map(self, size):
        if not self._fds:
            raise ProtocolError("a frame without its segment")
        fd = self._fds.pop(0)
        try:
            if size > self.limit:
                raise ProtocolError(f"a frame of {size} bytes, {self.limit} at most")
            if not 0 < size <= os.fstat(fd).st_size:
                raise ProtocolError("a frame without its segment")
            # Private: a writer gets pages of its own.
            return memoryview(mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE))
        finally:
            os.close(fd)


def rights(segment):
    """The ancillary data of a frame's first byte."""
    return [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, array.array("i", [segment.fd]))] if segment is not None else []


def send_all(sock, parts, segment):
    """Sends a frame on a blocking socket."""
    beside = rights(segment)
    if len(parts) == 1 and not beside:
        sock.sendall(parts[0])
        return
    views = [memoryview(p).cast("B") for p in parts]
    while views:
        n = sock.sendmsg(views[:512], beside)
        beside = []
        while n and views:
            if n < len(views[0]):
                views[0] = views[0][n:]
                n = 0
            else:
                n -= len(views.pop(0))
