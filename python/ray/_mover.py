"""Carries objects between nodes: a process beside the host, with a thread for each transfer."""

import mmap
import os
import socket
import struct
import threading
import time

from golaunch.memory import AGE, POOL, write

from . import _wire

_ASKED = struct.Struct("<28sQ")
_STEP = 1 << 20
_BUFFER = 256 << 10  # bytes that are received at once: they stay in the processor's cache until they are copied
_LIMIT = 60.0  # seconds without a byte, or between two objects
_IDLE = 4  # connections that are kept to each node for the next objects


class Mover:
    def __init__(self, sock, certificate):
        self.client, self.server = _wire.certificates(certificate, False), _wire.certificates(certificate, True)
        self.loop = _wire.Loop()
        self.strangers = threading.Semaphore(_wire.STRANGERS)
        self.idle, self.lock = {}, threading.Lock()
        self.tidying = False
        self.host = _wire.Connection(self.loop, sock, self._asked, lambda _: os._exit(0))

    def run(self):
        self.loop.run()

    def _asked(self, link, message, fds):
        _, number, op, *args = message
        threading.Thread(target=self._do, args=(number, getattr(self, op), args, fds), daemon=True).start()

    def _do(self, number, do, args, fds):
        try:
            made = do(*args, *fds)
            fds = [*fds, *made]
            self.host.answer(number, fds=made)
        except Exception as error:
            self.host.answer(number, error=f"{type(error).__name__}: {error}")
        finally:
            for fd in fds:
                try:
                    os.close(fd)
                except OSError:
                    pass

    # Receiving

    def pull(self, oid, size, hosts, fd=None):
        """Receives an object from the first host that has it: into a file, or into memory, whose
        descriptor is returned.
        """
        if fd is not None:
            self._from_any(oid, size, hosts, lambda at, view: write(fd, at, view))
            return ()
        segment, fill = POOL.lend(size)
        self._from_any(oid, size, hosts, fill)
        self._tidy_later()
        return [os.dup(segment.fd)]

    def _from_any(self, oid, size, hosts, fill):
        last = None
        for address, port in hosts:
            try:
                self._from(oid, size, address, port, fill)
                return
            except OSError as error:
                last = error
        raise last

    def _from(self, oid, size, address, port, fill):
        while True:
            sock, again = self._connection(address, port)
            try:
                try:
                    sock.sendall(_ASKED.pack(oid, size))
                    said = sock.recv(1)
                except OSError:
                    said = b""
                    if not again:
                        raise
                if said == b"" and again:  # the connection had ended while nothing was asked
                    continue
                if said != b"\1":
                    raise OSError(f"{address} does not have it any more")
                self._fill(sock, size, address, fill)
                with self.lock:
                    kept = self.idle.setdefault((address, port), [])
                    if len(kept) < _IDLE:
                        kept.append((time.monotonic(), sock))
                        sock = None
                return
            finally:
                if sock is not None:
                    sock.close()

    @staticmethod
    def _fill(sock, size, address, fill):
        at, buffer = 0, memoryview(bytearray(min(_BUFFER, size)))
        while at < size:
            have, want = 0, min(len(buffer), size - at)
            while have < want:
                n = sock.recv_into(buffer[have:want])
                if not n:
                    raise OSError(f"{address} has ended the transfer after {at + have} of {size} bytes")
                have += n
            fill(at, buffer[:want])
            at += want

    def _connection(self, address, port):
        """A connection to the mover of a node, and whether it was used before."""
        with self.lock:
            kept = self.idle.get((address, port))
            if kept:
                return kept.pop()[1], True
        sock = self.client.wrap_socket(_wire.connect_far(address, port, "move"))
        sock.settimeout(_LIMIT)
        return sock, False

    def _tidy_later(self):
        with self.lock:
            if self.tidying:
                return
            self.tidying = True
        self.loop.later(AGE, self._tidy)

    def _tidy(self):
        """Gives back memory and connections that were unused for a while."""
        POOL.tidy()
        before = time.monotonic() - _LIMIT / 2
        with self.lock:
            self.tidying = False
            for kept in self.idle.values():
                while kept and kept[0][0] < before:
                    kept.pop(0)[1].close()
            left = any(self.idle.values())
        if left or POOL.files:
            self._tidy_later()

    # Sending

    def serve(self, fd):
        with socket.socket(fileno=os.dup(fd)) as raw:
            raw.settimeout(_wire.CONNECT)
            if not self.strangers.acquire(False):
                return ()
            try:
                sock = self.server.wrap_socket(raw, server_side=True)
            finally:
                self.strangers.release()
            with sock:
                sock.settimeout(_LIMIT)
                while self._serve(sock):
                    pass
        return ()

    def _serve(self, sock):
        """Sends the object that is asked for. Returns whether more requests may follow."""
        asked = b""
        while len(asked) < _ASKED.size:
            more = sock.recv(_ASKED.size - len(asked))
            if not more:
                return False
            asked += more
        oid, size = _ASKED.unpack(asked)
        there = threading.Event()
        got = []

        def then(value, error, fds):
            got.extend(fds)
            there.set()

        self.host.ask(then, "object", oid, size, [])
        there.wait()
        if not got:
            sock.sendall(b"\0")
            return True
        try:
            sock.sendall(b"\1")
            with mmap.mmap(got[0], size, prot=mmap.PROT_READ) as memory, memoryview(memory) as view:
                for at in range(0, size, _STEP):
                    sock.sendall(view[at:at + _STEP])
        finally:
            os.close(got[0])
        return True
