"""Carries objects between nodes: a process beside the host, with a thread for each transfer."""

import mmap
import os
import socket
import struct
import threading

from . import _wire

_ASKED = struct.Struct("<28sQ")
_STEP = 1 << 20


class Mover:
    def __init__(self, sock, certificate):
        self.client, self.server = _wire.certificates(certificate, False), _wire.certificates(certificate, True)
        self.loop = _wire.Loop()
        self.strangers = threading.Semaphore(_wire.STRANGERS)
        self.host = _wire.Connection(self.loop, sock, self._asked, lambda _: os._exit(0))

    def run(self):
        self.loop.run()

    def _asked(self, link, message, fds):
        _, number, op, *args = message
        threading.Thread(target=self._do, args=(number, getattr(self, op), args, fds), daemon=True).start()

    def _do(self, number, do, args, fds):
        try:
            do(*args, fds[0])
            self.host.answer(number)
        except Exception as error:
            self.host.answer(number, error=f"{type(error).__name__}: {error}")
        finally:
            for fd in fds:
                try:
                    os.close(fd)
                except OSError:
                    pass

    def pull(self, oid, size, hosts, fd):
        """Fills a file in memory from the first host that has the object."""
        last = None
        for address, port in hosts:
            try:
                with self.client.wrap_socket(_wire.connect_far(address, port, "move")) as sock:
                    sock.settimeout(_LIMIT)
                    os.posix_fallocate(fd, 0, size)  # a write to a mapping must not find the disk full
                    sock.sendall(_ASKED.pack(oid, size))
                    if sock.recv(1) != b"\1":
                        raise OSError(f"{address} does not have it any more")
                    with mmap.mmap(fd, size) as memory, memoryview(memory) as view:
                        at = 0
                        while at < size:
                            n = sock.recv_into(view[at:at + _STEP])
                            if not n:
                                raise OSError(f"{address} has ended the transfer after {at} of {size} bytes")
                            at += n
                return
            except OSError as error:
                last = error
        raise last

    def serve(self, fd):
        with socket.socket(fileno=os.dup(fd)) as raw:
            raw.settimeout(_wire.CONNECT)
            if not self.strangers.acquire(False):
                return
            try:
                sock = self.server.wrap_socket(raw, server_side=True)
            finally:
                self.strangers.release()
            with sock:
                sock.settimeout(_LIMIT)
                asked = b""
                while len(asked) < _ASKED.size:
                    more = sock.recv(_ASKED.size - len(asked))
                    if not more:
                        return
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
                    return
                try:
                    sock.sendall(b"\1")
                    with mmap.mmap(got[0], size, prot=mmap.PROT_READ) as memory, memoryview(memory) as view:
                        for at in range(0, size, _STEP):
                            sock.sendall(view[at:at + _STEP])
                finally:
                    os.close(got[0])


_LIMIT = 60.0  # seconds without a byte
