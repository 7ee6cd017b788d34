"""Connections between the processes of a session: messages, questions with answers, descriptors.

A message is a pickled tuple behind its length. A connection within a machine is an abstract Unix
socket, whose peer the kernel names; one between machines is TLS with the session's certificate on
both ends. Both are the session's alone, so that what is unpickled comes from the same program.
"""

import _pickle
import array
import heapq
import os
import select
import socket
import struct
import threading
import time
from collections import deque

_HEAD = struct.Struct("<IB")  # bytes, descriptors
_CREDENTIALS = struct.Struct("3i")
NAME = 64  # bytes of the name of a process
MAX_MESSAGE = 1 << 30
_WANT = (BlockingIOError,)  # raised where a connection would have to wait; ssl's exceptions are added once a connection needs ssl
CONNECT = 10.0  # seconds in which a process of the session must answer a connection
STRANGERS = 256  # connections from other nodes to a process that have not shown the session's certificate yet; more are refused
# The kernel ends a connection to a machine that says nothing for 60 s: it has lost power, or its network.
_ALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30), (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3), (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 60_000),
)


class Loop:
    """One thread's epoll and timers, and the functions that other threads want called in that
    thread.
    """

    def __init__(self):
        self._epoll = select.epoll()
        self._handlers, self._timers, self._soon = {}, [], deque()
        self._made = 0
        self._asleep = False
        self.strangers = 0  # connections that have not shown the session's certificate yet
        self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.register(self._wake[0], self._woken)
        self.stopped = False
        self.lock = threading.RLock()  # reentrant: a finalizer that runs while its thread holds the lock may want a timer too

    def register(self, fd, handler, mask=select.EPOLLIN):
        self._handlers[fd] = handler
        self._epoll.register(fd, mask)

    def modify(self, fd, mask):
        try:
            self._epoll.modify(fd, mask)
        except (OSError, ValueError):
            pass  # the loop has just been closed

    def unregister(self, fd):
        if self._handlers.pop(fd, None) is not None:
            try:
                self._epoll.unregister(fd)
            except (OSError, ValueError):
                pass

    def soon(self, do):
        self._soon.append(do)
        self._rouse()

    def later(self, seconds, do):
        with self.lock:
            self._made += 1
            timer = [time.monotonic() + seconds, self._made, do]
            heapq.heappush(self._timers, timer)
            first = self._timers[0] is timer
        if first:
            self._rouse()
        return timer

    def _rouse(self):
        if self._asleep:
            self._asleep = False
            try:
                os.write(self._wake[1], b"x")
            except (BlockingIOError, OSError):
                pass

    def _woken(self, _):
        try:
            os.read(self._wake[0], 4096)
        except BlockingIOError:
            pass

    def stop(self):
        self.stopped = True
        self._asleep = True
        self._rouse()

    def run(self):
        while not self.stopped:
            self._asleep = True
            timeout = 0 if self._soon else -1
            with self.lock:
                while self._timers and self._timers[0][2] is None:
                    heapq.heappop(self._timers)
                if self._timers and timeout:
                    timeout = max(0.0, self._timers[0][0] - time.monotonic())
            events = [(fd, mask, self._handlers.get(fd)) for fd, mask in self._epoll.poll(timeout)]
            self._asleep = False
            for fd, mask, handler in events:
                if handler is not None and self._handlers.get(fd) is handler:  # the number may already belong to another file
                    handler(mask)
            for _ in range(len(self._soon)):
                self._soon.popleft()()
            while True:
                with self.lock:
                    if not self._timers or self._timers[0][0] > time.monotonic():
                        break
                    do = heapq.heappop(self._timers)[2]
                if do is not None:
                    do()

    def close(self):
        self._epoll.close()
        for fd in self._wake:
            os.close(fd)


class Connection:
    """One peer. Any thread may send; the loop's thread receives, and calls on_message(connection,
    message, descriptors) and, once, on_close(connection).
    """

    def __init__(self, loop, sock, on_message, on_close, tls=None, server=False):
        self.loop, self.on_message, self.on_close = loop, on_message, on_close
        self.peer = None  # what on_message notes about the connection
        self._lock = threading.RLock() if tls else threading.Lock()
        self._in, self._fds, self._out = bytearray(), deque(), deque()
        self._asked, self._answers = 0, {}
        self.closed = False
        self._unix = sock.family == socket.AF_UNIX
        self.far = not self._unix
        self._tls = tls is not None
        self._shaking = False
        if tls is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for level, option, value in _ALIVE:
                sock.setsockopt(level, option, value)
            if server:
                sock.setblocking(False)
                self._shaking = True
                loop.strangers += 1
            else:
                sock.settimeout(CONNECT)
            sock = tls.wrap_socket(sock, server_side=server, do_handshake_on_connect=not server)
        sock.setblocking(False)
        self.sock = sock
        self._fd = sock.fileno()
        loop.register(self._fd, self._event)
        if self._shaking:
            loop.later(CONNECT, lambda: self._shaking and self.close())

    # Sending

    def send(self, *message, fds=()):
        """Queues a message; False if the connection has ended."""
        body = _pickle.dumps(message, 5)
        return self.send_bytes(_HEAD.pack(len(body), len(fds)) + body, fds)

    @staticmethod
    def frame(*message):
        body = _pickle.dumps(message, 5)
        return _HEAD.pack(len(body), 0) + body

    def send_bytes(self, frame, fds=()):
        with self._lock:
            if self.closed:
                return False
            if not self._out and not self._shaking:
                n = self._write(frame, fds)
                if n == len(frame):
                    return True
                if n:
                    frame, fds = memoryview(frame)[n:], ()
            self._out.append((frame, [os.dup(fd) for fd in fds]))
            self.loop.modify(self._fd, select.EPOLLIN | select.EPOLLOUT)
            return True

    def _write(self, frame, fds):
        try:
            if fds:
                return self.sock.sendmsg([frame], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
            return self.sock.send(frame)
        except _WANT:
            return 0
        except OSError:
            try:
                self.sock.shutdown(socket.SHUT_RDWR)  # the reader sees the end of the connection, also after another error
            except OSError:
                pass
            return len(frame)

    def _flush(self):
        with self._lock:
            while self._out:
                frame, fds = self._out[0]
                n = self._write(frame, fds)
                if n:
                    for fd in fds:
                        os.close(fd)
                if n < len(frame):
                    self._out[0] = memoryview(frame)[n:] if n else frame, () if n else fds
                    return
                self._out.popleft()
            self.loop.modify(self._fd, select.EPOLLIN)

    def ask(self, then, op, *args, fds=()):
        """Asks a question; then(value, error, descriptors) is called in the loop's thread."""
        with self._lock:
            self._asked += 1
            number = self._asked
            self._answers[number] = then
        if not self.send("?", number, op, *args, fds=fds) and self._answers.pop(number, None) is not None:
            then(None, ConnectionError("the connection has ended"), ())

    def answer(self, number, value=None, error=None, fds=()):
        self.send("=", number, value, error, fds=fds)

    # Receiving

    def drain(self):
        """Receives the messages that the peer sent before it ended. It is called in the loop's
        thread.
        """
        if not self.closed:
            self._event(select.EPOLLIN)

    def _event(self, mask):
        if self._shaking:
            try:
                self.sock.do_handshake()
            except _WANT:
                return
            except (OSError, ValueError):
                self.close()
                return
            self._shaking = False
            self.loop.strangers -= 1
            if self._out:
                self._flush()
        if mask & select.EPOLLOUT:
            self._flush()
        if not mask & ~select.EPOLLOUT and not self._tls:
            return
        while not self.closed:
            try:
                if self._unix:
                    data, beside, _, _ = self.sock.recvmsg(1 << 18, 1024, socket.MSG_CMSG_CLOEXEC)
                    for level, kind, text in beside:
                        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                            fds = array.array("i")
                            fds.frombytes(text[:len(text) - len(text) % fds.itemsize])
                            self._fds.extend(fds)
                else:
                    with self._lock:
                        data = self.sock.recv(1 << 18)
            except _WANT:
                return
            except (OSError, ValueError):
                data = b""
            if not data:
                self.close()
                return
            self._in += data
            self._parse()
            if not self._tls and len(data) < 1 << 17:
                return

    def _parse(self):
        buf, at, end = self._in, 0, len(self._in)
        with memoryview(buf) as view:
            while end - at >= _HEAD.size:
                size, count = _HEAD.unpack_from(view, at)
                if size > MAX_MESSAGE:
                    self.close()
                    return
                if end - at - _HEAD.size < size:
                    break
                at += _HEAD.size
                message = _pickle.loads(view[at:at + size])
                at += size
                fds = [self._fds.popleft() for _ in range(count)] if count else ()
                if message[0] == "=":
                    then = self._answers.pop(message[1], None)
                    if then is not None:
                        then(message[2], message[3], fds)
                else:
                    self.on_message(self, message, fds)
                if self.closed:
                    return
        if at:
            del buf[:at]

    def close(self):
        with self._lock:
            if self.closed:
                return
            self.closed = True
            if self._shaking:
                self._shaking = False
                self.loop.strangers -= 1
            self.loop.unregister(self._fd)
            self.sock.close()
            for _, fds in self._out:
                for fd in fds:
                    os.close(fd)
            self._out.clear()
            for fd in self._fds:
                os.close(fd)
            answers, self._answers = self._answers, {}
        for then in answers.values():
            then(None, ConnectionError("the connection has ended"), ())
        self.on_close(self)


def listen(name):
    """A listening abstract socket, which leaves no file behind."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    sock.bind("\0" + name)
    sock.listen(4096)
    sock.setblocking(False)
    return sock


def same_user(sock):
    _, uid, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return uid == os.geteuid()


def connect(name):
    """A connected socket to a process of this machine."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        sock.settimeout(CONNECT)
        sock.connect("\0" + name)
        if not same_user(sock):
            raise PermissionError("it is another user's")
    except BaseException:
        sock.close()
        raise
    return sock


def connect_far(host, port, proc):
    """A connected socket to a process of another node. That node's host passes the connection to
    the process.
    """
    sock = socket.create_connection((host, port), CONNECT)
    sock.sendall(proc.encode().ljust(NAME))
    return sock


def certificates(pem, server):
    """The session's TLS contexts: both ends have the session's one certificate, and accept no
    other.
    """
    import ssl

    global _WANT
    _WANT = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    fd = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        os.write(fd, pem.encode())
        context.load_cert_chain(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)
    context.load_verify_locations(cadata=pem[:pem.index("-----END CERTIFICATE-----")] + "-----END CERTIFICATE-----\n")
    return context
