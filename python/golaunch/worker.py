"""A worker of a group: it makes its object once, and runs its controller's calls.

golaunch starts it as a rank of a job: python -m golaunch.worker. It imports only the modules that
it needs, because a group is not ready before the imports are done.
"""

import _signal
import _socket
import _thread
import errno
import fcntl
import os
import struct
import sys
from collections import deque

from . import wire
from .memory import AGE, POOL
from .pickling import dumps, loads

# The number of items of a generator that the worker may be ahead of the reader.
AHEAD = 16
_CREDENTIALS = struct.Struct("3i")
_TAIL = 16 << 10
# The shortest and the longest pause, in seconds, between attempts to connect to a controller: no
# event shows that a node's agent is back, or that golaunch is about to end a worker that the
# controller refuses.
_PAUSES = 0.05, 1.0
# Buffers of a result up to this size, in bytes, are copied, so that the next call need not wait for
# the controller.
_COPIED = 1 << 20


class _Cancelled(BaseException):
    """Ends a running method: the call was cancelled."""


class _Bye(BaseException):
    """The controller no longer needs this worker, or refuses it; the argument is for sys.exit."""


class Worker:
    """The connection to a controller. If it breaks, the worker connects again, and both ends
    resume; golaunch ends the workers of a dead controller.
    """

    def __init__(self, path, sock, direct, hello):
        self.path, self.sock, self.direct, self.hello = path, sock, direct, hello
        self.replay = None  # None for a controller on this machine
        # Whether frames wait for an acknowledgement; and during a reconnect, a lock that is
        # released when it is done.
        self.resuming, self.reconnected, self.fresh = False, None, None
        self.pause = 0.0  # the pause before the next attempt to connect
        self.lent = 0  # the number of the newest frame that has memory of the user's objects
        self.flags = fcntl.fcntl(sock.fileno(), fcntl.F_GETFL)
        self.reader = wire.Reader(sock, 1 << 62)  # this node's agent sends segments too
        self.calls = deque()
        self.cancelled = set()
        # The number of items of each generator that may still be sent.
        self.credit = {}
        self.running = None
        # The user's code is running. It may be interrupted, unlike the code of this file.
        self.entered = self.inside = self.signalled = False
        self.object = self.coming = None
        self.max_result = 1 << 62
        self.watch()

    # Input

    def take(self, frame):
        if frame.kind == wire.CALL:
            self.calls.append(frame)
        elif frame.kind == wire.CANCEL:
            if frame.call == self.running or any(f.call == frame.call for f in self.calls):
                self.cancelled.add(frame.call)
        elif frame.kind == wire.CREDIT:
            if frame.call in self.credit:
                self.credit[frame.call] += 1
        elif frame.kind == wire.BYE:
            raise _Bye(0)
        elif frame.kind == wire.ERROR:
            raise _Bye(f"golaunch.worker: the controller does not resume this worker: {str(frame.body, 'utf-8', 'replace')}")
        else:
            raise wire.ProtocolError(f"the controller says {frame.kind}")

    def fill(self, flags=0):
        """Reads. During a reconnect there is nothing to read: a caller then waits, if it may wait.
        """
        if self.reconnected is not None and not self.rejoin(not flags):
            raise BlockingIOError
        try:
            if self.reader.fill(flags):
                return
        except ConnectionError:
            pass
        self.lose()

    def received(self):
        """A complete frame, or None. Frames about the connection itself are handled here."""
        while True:
            frame = self.reader.next() if self.reconnected is None else None
            if frame is None:
                return None
            self.pause = 0.0
            if frame.kind != wire.ACK:
                due = self.replay.take(frame) if self.replay is not None else None
                if due is not None and not self.resuming:
                    self.acknowledge(due)
                return frame
            if self.replay is None:
                self.replay = wire.Replay()
            self.replay.acknowledge(frame.call)
            if self.resuming:
                self.resuming = False
                for parts, _ in list(self.replay.unacked):
                    if not self.resuming:
                        self.transmit(parts)

    def acknowledge(self, due):
        """Sends an ACK. If the controller does not read now, a later ACK says the same."""
        try:
            self.sock.send(due[0], _socket.MSG_DONTWAIT)
        except BlockingIOError:
            pass
        except ConnectionError:
            self.lose()

    def next(self):
        """Waits for the next frame."""
        frame = self.received()
        while frame is None:
            if POOL.files:
                self.rest()
            self.fill()
            frame = self.received()
        return frame

    # The connection

    def greet(self):
        import json

        text = json.dumps(dict(self.hello, received=self.replay.received if self.replay is not None else 0)).encode()
        self.transmit(wire.encode(wire.HELLO, 0, body=text, codec=wire.JSON, shared=False)[0])

    def lose(self):
        """The connection has ended. A thread connects again, since a method may be running
        meanwhile.
        """
        if self.reconnected is None:
            self.resuming = True
            self.reconnected = _thread.allocate_lock()
            self.reconnected.acquire()
            _thread.start_new_thread(self.reconnect, (_thread.get_ident(),))

    def reconnect(self, main):
        import time

        lock = self.reconnected
        while True:
            time.sleep(self.pause)
            self.pause = min(max(2 * self.pause, _PAUSES[0]), _PAUSES[1])
            try:
                self.fresh = _come(self.path, self.direct)
                break
            except OSError:
                pass
        lock.release()
        again = 0.0
        # a signal may come just before a method waits in the kernel, after Python has looked for
        # signals
        while self.reconnected is lock:
            _signal.pthread_kill(main, _signal.SIGURG)  # as if a frame had arrived
            again = min(max(2 * again, _PAUSES[0]), _PAUSES[1])
            time.sleep(again)

    def rejoin(self, wait):
        """Uses the new connection, if there is a new one."""
        if not self.reconnected.acquire(wait):
            return False
        self.reconnected = None
        os.dup2(self.fresh.fileno(), self.sock.fileno(), inheritable=False)
        self.fresh.close()
        self.reader.close()
        self.reader = wire.Reader(self.sock, 1 << 62)
        self.watch()
        self.greet()
        return True

    def watch(self):
        """Makes the kernel signal input while a method runs."""
        fd = self.sock.fileno()
        fcntl.fcntl(fd, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(fd, _F_SETSIG, _signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETFL, self.flags | (os.O_ASYNC if self.entered else 0))

    def rest(self):
        """Gives unused memory back, when there is no input, and now and then."""
        if self.coming is None:
            from select import POLLIN, poll

            self.coming = poll()
            self.coming.register(self.sock, POLLIN)
        POOL.tidy()
        while POOL.files and not self.coming.poll(AGE * 1000):
            POOL.tidy()

    def drain(self):
        """Handles the input that has already arrived."""
        while True:
            frame = self.received()
            if frame is not None:
                self.take(frame)
                continue
            try:
                self.fill(_socket.MSG_DONTWAIT)
            except BlockingIOError:
                return

    def interrupt(self, *_):
        """Input has arrived: it may end the running method, but not this file's own code."""
        if self.inside:
            self.inside = False
            self.look()
        else:
            self.signalled = True

    def look(self):
        """Handles the input, and lets the user's code run unless it is cancelled. No signal is lost
        in between.
        """
        while True:
            self.signalled = False
            self.drain()
            if self.running in self.cancelled:
                raise _Cancelled()
            self.inside = True
            if not self.signalled:
                return
            self.inside = False

    def enter(self, do, *args, **kwargs):
        """Runs the user's code, which a cancel ends."""
        # the code may write to memory that is being sent
        while self.replay is not None and self.replay.acked < self.lent:
            frame = self.received()
            if frame is not None:
                self.take(frame)
            elif self.replay.acked < self.lent:
                self.fill()
        fd = self.sock.fileno()
        try:
            self.entered = True
            fcntl.fcntl(fd, fcntl.F_SETFL, self.flags | os.O_ASYNC)
            self.look()
            return do(*args, **kwargs)
        finally:
            self.entered = self.inside = False
            fcntl.fcntl(fd, fcntl.F_SETFL, self.flags)

    # Output

    def send(self, kind, call, value=None, name=b""):
        body, buffers = dumps(value)
        size = wire.size_of(body, buffers)
        if size > self.max_result:
            raise _TooLarge(size, self.max_result)
        parts, segment = wire.encode(kind, call, name, body, buffers, shared=self.direct)
        lent = self.replay is not None and bool(buffers)
        if lent and size <= _COPIED:
            parts, lent = [b"".join(parts)], False
        self.put(parts, segment)
        if lent:
            self.lent = self.replay.acked + len(self.replay.unacked)

    def put(self, parts, segment=None):
        if self.replay is not None:
            self.replay.sent(parts)
        if not self.resuming:
            self.transmit(parts, segment)

    def transmit(self, parts, segment=None):
        try:
            wire.send_all(self.sock, parts, segment)
        except ConnectionError:
            self.lose()

    def fail(self, call, error, name=b""):
        """Sends an exception, as text if it cannot be pickled."""
        import traceback

        kind = type(error)
        tail = "".join(traceback.format_exception(kind, error, _beyond(error.__traceback__)))
        if len(tail) > _TAIL:
            tail = "...\n" + tail[-_TAIL:]
        told = {
            "type": f"{kind.__module__}.{kind.__qualname__}", "message": _text(error)[:_TAIL], "traceback": tail,
            "too_large": isinstance(error, _TooLarge), "exception": None,
        }
        try:
            body, buffers = dumps(error)
            loads(body, buffers)  # some exceptions can be pickled, but not unpickled
            if not buffers and len(body) < wire.SMALL:
                told["exception"] = bytes(body)
        except Exception:
            pass
        body, _ = dumps(told)
        self.put(*wire.encode(wire.ERROR, call, name, body, shared=self.direct))

    # Life cycle

    def make(self):
        """Makes the object that the controller asks for."""
        frame = self.next()
        if frame.kind != wire.MAKE:
            self.take(frame)
            raise wire.ProtocolError(f"the controller says {frame.kind} before it has said what to make")
        try:
            import json

            how = json.loads(frame.name)
            self.max_result = how["max_result_bytes"]
            _prepare(how)
            cls = _find(how["target"], how["main"])
            args, kwargs = loads(frame.body, frame.buffers)
            self.object = cls(*args, **kwargs)
            found = [name for name in how["turns"] if callable(getattr(self.object, name, None))]
        except BaseException as error:
            self.fail(0, error)
            raise
        self.send(wire.READY, 0, found)

    def serve(self):
        # The kernel signals input while a method runs. SIGURG does nothing to a process without a
        # handler, such as a child.
        _signal.signal(_signal.SIGURG, self.interrupt)
        while True:
            while not self.calls:
                self.take(self.next())
            frame = self.calls.popleft()
            if frame.call in self.cancelled:
                self.cancelled.discard(frame.call)
            else:
                self.call(frame)

    def call(self, frame):
        call = self.running = frame.call
        try:
            value = self.enter(self.do, frame)
            if _is_generator(value):
                self.stream(call, value)
            else:
                self.send(wire.RESULT, call, value)
        except _Cancelled:
            pass
        except _Bye:
            raise
        except BaseException as error:
            self.fail(call, error, frame.name)
        finally:
            self.running = None
            self.cancelled.discard(call)
            self.credit.pop(call, None)

    def do(self, frame):
        args, kwargs = loads(frame.body, frame.buffers)
        frame.body = frame.buffers = None
        name = frame.name.decode()
        method = getattr(self.object, name, None)
        if method is None or name.startswith("__"):
            raise AttributeError(f"{type(self.object).__module__}.{type(self.object).__qualname__} has no method {name!r}")
        return method(*args, **kwargs)

    def stream(self, call, items):
        """Sends the items of a generator, at most AHEAD beyond the reader."""
        self.credit[call] = AHEAD
        try:
            while call not in self.cancelled:
                item = self.enter(next, items, _END)
                if item is _END:
                    self.send(wire.END, call)
                    return
                self.send(wire.ITEM, call, item)
                self.credit[call] -= 1
                while self.credit[call] <= 0 and call not in self.cancelled:
                    self.take(self.next())
        finally:
            items.close()


_END = object()
_F_SETSIG = 10  # a constant of Linux; the module fcntl lacks it


class _TooLarge(Exception):
    def __init__(self, size, limit):
        super().__init__(f"the result has {size} bytes, and max_result_bytes of the group is {limit}")


def _is_generator(value):
    import types

    return isinstance(value, types.GeneratorType)


def _text(error):
    try:
        return str(error)
    except Exception:
        return "(its text cannot be had)"


def _beyond(tb):
    """A traceback without this file's frames at its beginning."""
    while tb is not None and tb.tb_frame.f_code.co_filename == __file__ and tb.tb_next is not None:
        tb = tb.tb_next
    return tb


def _prepare(how):
    if how["version"] != list(sys.version_info[:2]):
        here, there = ".".join(map(str, sys.version_info[:3])), ".".join(map(str, how["version"]))
        raise RuntimeError(
            f"the controller runs Python {there}, and node {os.environ.get('GOLAUNCH_NODE')} has {here} ({sys.executable}): objects of one are not "
            "those of the other; name an interpreter that all nodes have (WorkerGroup(python=...))")
    for path in how["path"]:
        if path not in sys.path:
            sys.path.append(path)
    if how["memory"]:
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (how["memory"], most))


def _find(target, main):
    """The class that "module:Class" names, which may be in the controller's own program."""
    module_name, _, name = target.partition(":")
    try:
        if module_name == "__main__":
            module = _main(main)
        else:
            from importlib import import_module

            module = import_module(module_name)
        found = module
        for part in name.split("."):
            found = getattr(found, part)
        return found
    except Exception as error:
        raise ImportError(
            f"{target} cannot be imported on node {os.environ.get('GOLAUNCH_NODE')}: {type(error).__name__}: {error}; sys.path there is {sys.path}") from error


def _main(main):
    """The controller's own program as a module, as in multiprocessing: its `if __name__ ==
    "__main__"` does not run.
    """
    import runpy
    import types

    if main is None:
        raise ImportError("the class is defined in an interactive session, which workers cannot import: put it into a file")
    module = types.ModuleType("__mp_main__")
    if main.get("module"):
        content = runpy.run_module(main["module"], run_name="__mp_main__", alter_sys=True)
    else:
        sys.path.insert(0, os.path.dirname(main["path"]))
        content = runpy.run_path(main["path"], run_name="__mp_main__")
    module.__dict__.update(content)
    sys.modules["__main__"] = sys.modules["__mp_main__"] = module
    return module


def _come(path, direct):
    """A connection to the socket of the controller, or of this node's agent."""
    sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
    try:
        if direct and os.stat(path).st_uid != os.geteuid():
            raise PermissionError(errno.EACCES, "it is not this user's")
        sock.connect(path)
        if direct:
            _, uid, _ = _CREDENTIALS.unpack(sock.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, _CREDENTIALS.size))
            if uid != os.geteuid():
                raise PermissionError(errno.EACCES, "it is held by another user")
    except BaseException:
        sock.close()
        raise
    return sock


def _connect():
    """The path and the connection to the controller if it is on this machine and belongs to this
    user, and otherwise to this node's agent; and which of the two it is.
    """
    path, endpoint = os.environ.get("GOLAUNCH_CONTROLLER"), os.environ.get("GOLAUNCH_ENDPOINT")
    why = "GOLAUNCH_CONTROLLER is not set"
    for at, direct in ((path, True), (endpoint, False)):
        if not at:
            continue
        try:
            return at, _come(at, direct), direct
        except OSError as error:
            why = f"{at}: {error.strerror}"
    raise SystemExit(f"golaunch.worker: the controller cannot be reached: {why}; this program is started by golaunch's WorkerGroup")


def main():
    path, sock, direct = _connect()
    env = os.environ
    worker = Worker(path, sock, direct, {
        "key": env.pop("GOLAUNCH_CONTROLLER_KEY", ""), "job": env.get("GOLAUNCH_JOB"), "rank": int(env["RANK"]), "local_rank": int(env["LOCAL_RANK"]),
        "attempt": int(env["GOLAUNCH_ATTEMPT"]), "node": env.get("GOLAUNCH_NODE"), "gpu": env.get("GOLAUNCH_GPU_UUID"), "pid": os.getpid(), "direct": direct,
    })
    os.register_at_fork(after_in_child=sock.close)  # otherwise a child would hide the worker's end from the controller
    try:
        worker.greet()
        worker.make()
        worker.serve()
    except _Bye as bye:
        return bye.args[0]


if __name__ == "__main__":
    # Objects pickled under this module's name must be the objects that others import.
    from golaunch.worker import main as _run

    sys.exit(_run())
