"""Nodes of a cluster that this program holds, and the connections to the workers there."""

import _socket
import asyncio
import atexit
import heapq
import hmac
import itertools
import json
import logging
import os
import secrets
import select
import shutil
import struct
import sys
import tempfile
import threading
import time
import weakref
from collections import deque

from . import future as futures
from . import wire
from .errors import GolaunchError
from .helper import Helper
from .interrupts import Lock
from .link import Link
from .memory import AGE, POOL
from .turns import Turns

_log = logging.getLogger("golaunch")
_CREDENTIALS = struct.Struct("3i")
_GREETING = 10.0  # seconds in which a connection must name its worker
_STRANGERS = 4096  # connections that have not named a worker
_FULL = 0.5  # seconds until the next accept, after an accept found no free descriptor
_IDLE = 0.02  # a background thread reads after this many seconds without a waiting caller


# The clusters of this process; in a forked child, also those of its parent.
_CLUSTERS = weakref.WeakSet()


def _forked():
    for cluster in list(_CLUSTERS):
        cluster._forked()


os.register_at_fork(after_in_child=_forked)


class VirtualCluster:
    """Bundles on the nodes of a cluster, one for each worker: bundles_per_node is a number for each
    node, such as [4, 8, 2].

    Without an address (HOST:PORT of a coordinator, or GOLAUNCH_COORDINATOR), or with "none", it is
    a cluster on this machine, which starts for this program and ends with it; each number then
    stands for a node of this cluster. With use_gpus, each bundle is a GPU, or half of one with
    gpus_per_worker=0.5. gpu_ids limits the GPUs of each node to these indexes, and colocate is the
    number of groups that may share a GPU. strategy is a strategy of placement groups: STRICT_PACK,
    PACK, SPREAD or STRICT_SPREAD. priority (or GOLAUNCH_PRIORITY) is production, interactive or
    batch, as for jobs: the bundles may preempt jobs of a lower one, and are never preempted. The
    constructor waits for the bundles, for at most placement_timeout seconds. Use it with `with`, or
    call close(); it ends with the program in any case.
    """

    def __init__(self, bundles_per_node, *, address=None, token_file=None, use_gpus=False, gpus_per_worker=1, gpu_ids=None, colocate=1,
                 strategy="STRICT_PACK", name=None, placement_timeout=None, lease=15.0, backfill=False, priority=None, declare_gpus=False,
                 preload=None, log_dir=None, binary=None):
        self.bundles_per_node = _sizes(bundles_per_node)
        self._per_gpu = _per_gpu(gpus_per_worker)
        if self._per_gpu > 1 and not use_gpus:
            raise ValueError(f"gpus_per_worker={gpus_per_worker!r}: with use_gpus=True")
        address = address or os.environ.get("GOLAUNCH_COORDINATOR")
        address = None if address in ("", "none") else address  # golaunch reads these values in the same way
        if colocate < 1:
            raise ValueError(f"colocate={colocate}: 1 or more groups share a bundle")
        if address is None and use_gpus and len(self.bundles_per_node) > 1 and not declare_gpus:
            raise ValueError("a cluster on this machine has its GPUs on one node: give one number, or the address of a cluster")
        self._local = address is None
        self.use_gpus, self.colocate, self.log_dir = use_gpus, colocate, log_dir
        self.name = name or "cluster-" + secrets.token_hex(4)
        self.groups = []
        self._turns = Turns(self)
        self._lock = Lock()
        self._leading = False
        self._epoll = select.epoll()
        self._handlers = {}
        self._timers = []
        self._tidying = False
        self._timed = self._cancelled = 0
        self._due = deque()
        self._calls = itertools.count(1)
        self._by_job = {}
        self._strangers = set()
        self._loops = {}
        self._closed = False
        self._idle = threading.Condition(self._lock.raw)
        self._tender, self._stirred, self._tending, self._waiting, self._steps = None, False, False, 0, 0
        self._nudges = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._register(self._nudges[0], "nudge", select.EPOLLIN)
        self._pid = os.getpid()
        _CLUSTERS.add(self)
        self._key = secrets.token_hex(32)
        self._dir = _directory()
        self._helper = None
        try:
            self._listen()
            self._helper = Helper(self, binary)
            opening = {"coordinator": address or "", "token_file": token_file or "", "lease": lease, "preload": preload or "", "log_dir": log_dir or "",
                       "socket": self.socket_path}
            if address is None:
                declared = [-(-n // self._per_gpu) if use_gpus else 0 for n in self.bundles_per_node]
                opening["local"] = [{} if use_gpus and not declare_gpus else {"gpus": n} for n in declared]
            opened = self._helper.ask("open", **opening)
            self.address, self.version = opened["coordinator"], opened["version"]
            self.nodes = self._helper.ask(
                "reserve", id=self.name, per_node=self.bundles_per_node, gpu=use_gpus, per_gpu=self._per_gpu if use_gpus else 0,
                gpu_ids=list(gpu_ids or []), colocate=colocate, strategy=strategy, timeout=placement_timeout or 0, backfill=backfill,
                priority=priority or os.environ.get("GOLAUNCH_PRIORITY", ""))
        except BaseException:
            try:
                self.close()
            except GolaunchError as error:
                _log.warning("%s", error)
            raise
        atexit.register(self.close)

    @property
    def size(self):
        """The number of bundles."""
        return sum(self.bundles_per_node)

    def world_size(self):
        return self.size

    def node_count(self):
        return len(self.bundles_per_node)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __repr__(self):
        return f"<VirtualCluster {self.name}: {self.bundles_per_node}>"

    def close(self):
        """Ends all groups, gives the bundles back and, if it was started for this program, ends the
        cluster. When it returns, no process is left.
        """
        if self._pid != os.getpid():
            return  # a fork of the program
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for group in list(self.groups):
                group._ended("the cluster was closed")
        try:
            if self._helper is not None:
                self._helper.close()
        finally:
            atexit.unregister(self.close)
            with self._lock:
                for handler in list(self._handlers.values()):
                    if isinstance(handler, Link):
                        handler.close()
                self._listener.close()
                self._lock.notify_all()
                self._idle.notify_all()
                if self._tending or self._leading:
                    self._nudge()
            if self._tender not in (None, threading.current_thread()):
                self._tender.join()
            with self._lock:
                self._handlers.clear()  # a thread whose wait ends now handles nothing any more
                self._epoll.close()
                for fd in self._nudges:
                    os.close(fd)
            shutil.rmtree(self._dir, ignore_errors=True)
            POOL.clear()

    shutdown = close

    def _forked(self):
        """In a child after a fork: the connections belong to the parent."""
        self._lock, self._closed, self._due = Lock(), True, deque()
        for handler in list(self._handlers.values()):
            if isinstance(handler, Link):
                handler.sock.close()  # without a change to the parent's epoll
        self._listener.close()
        self._epoll.close()
        if self._helper is not None:
            self._helper.gone = "the cluster belongs to the process that made it, and this process is a fork of that one"
            self._helper.sock.close()

    # Connections of workers

    def _listen(self):
        self._listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC | _socket.SOCK_NONBLOCK)
        self.socket_path = os.path.join(self._dir, "controller")
        self._listener.bind(self.socket_path)
        os.chmod(self.socket_path, 0o600)
        self._listener.listen(4096)
        self._register(self._listener.fileno(), self._listener, select.EPOLLIN)

    def _accept(self):
        for _ in range(64):
            try:
                fd, _ = self._listener._accept()
            except BlockingIOError:
                return
            except OSError as error:  # there is no event for a free descriptor
                _log.warning("no worker can be let in for the moment: %s; raise the limit of open files (ulimit -n)", error.strerror)
                self._modify(self._listener.fileno(), 0)
                self._after(_FULL, lambda: self._modify(self._listener.fileno(), select.EPOLLIN))
                return
            sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, fd)
            sock.setblocking(False)
            _, uid, _ = _CREDENTIALS.unpack(sock.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, _CREDENTIALS.size))
            if uid != os.geteuid() or len(self._strangers) >= _STRANGERS:
                sock.close()
                continue
            link = Link(self, sock)
            self._strangers.add(link)
            self._after(_GREETING, lambda link=link: self._stranger(link))

    def _stranger(self, link):
        if link in self._strangers:
            self._strangers.discard(link)
            link.close()

    def _greeted(self, link, frame):
        """A connection names its worker. Until it has shown the key, nothing is unpickled."""
        self._strangers.discard(link)
        try:
            facts = json.loads(bytes(frame.body)) if frame.kind == wire.HELLO and frame.codec == wire.JSON else {}
            known = hmac.compare_digest(str(facts.get("key", "")).encode(), self._key.encode())
            group = self._by_job.get(facts.get("job")) if known else None
        except (ValueError, AttributeError, TypeError, RecursionError):  # the input may be anything
            group = None
        if group is None or not group._hello(link, facts):
            link.close()

    # Waiting: a waiting caller reads for all

    def _register(self, fd, handler, mask):
        self._handlers[fd] = handler
        self._epoll.register(fd, mask)

    def _modify(self, fd, mask):
        if fd in self._handlers:
            self._epoll.modify(fd, mask)

    def _unregister(self, fd):
        if self._handlers.pop(fd, None) is not None and not self._epoll.closed:
            self._epoll.unregister(fd)

    def _after(self, seconds, do):
        """Calls a function later, unless the returned timer is cancelled."""
        self._timed += 1
        entry = [time.monotonic() + seconds, self._timed, do]
        heapq.heappush(self._timers, entry)
        if self._leading and self._timers[0] is entry:
            self._nudge()  # waiting callers do not know of the new timer
        return entry

    def _cancel_timer(self, entry):
        """Drops the function at once. The timer's place in the heap goes later, once many timers are cancelled."""
        if entry[2] is None:
            return
        entry[2] = None
        self._cancelled += 1
        if self._cancelled > 64 and 2 * self._cancelled > len(self._timers):
            self._timers = [e for e in self._timers if e[2] is not None]
            heapq.heapify(self._timers)
            self._cancelled = 0

    def _tidy(self):
        """Gives back memory that no call has needed for a while. A waiting caller calls this, and
        holds the lock.
        """
        if POOL.files and not self._tidying:
            self._tidying = True
            self._after(AGE, self._trim)

    def _trim(self):
        self._tidying = False
        POOL.tidy()
        self._tidy()

    def _wait(self, ready, timeout, future):
        end = None if timeout is None else time.monotonic() + timeout
        done = False
        while not done:
            try:
                with self._lock:
                    self._waiting += 1
                    try:
                        done = self._wait_for(ready, end, timeout, future)
                    finally:
                        self._waiting -= 1
                        if not self._waiting and not self._stirred and not self._closed and self._busy():
                            self._stir()
            finally:
                self._call_back()

    def _wait_for(self, ready, end, timeout, future):
        """Returns True when the result is ready. It returns False if a signal has arrived, or if
        there is a callback, for which the caller must release the lock.
        """
        while not ready():
            if self._due:
                return False
            if self._closed:
                raise GolaunchError("the cluster is closed")
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                # Input that has already arrived counts, even with a timeout of 0.
                if not self._leading:
                    self._step(0)
                    if ready():
                        return True
                what = "golaunch" if future is None else repr(future)
                raise TimeoutError(f"not within {timeout} s: {what}")
            if not self._leading:
                going = self._step(left)
            else:
                if self._tending:
                    self._nudge()
                going = self._lock.wait(left)
            if not going:
                return False
        return True

    def _turn(self):
        """Reads the available input."""
        with self._lock:
            if not self._leading and not self._closed:
                self._step(0)
        self._call_back()

    def _call_back(self):
        """Runs the callbacks of answered calls. The lock is not held."""
        while self._due:
            try:
                callback, future = self._due.popleft()
            except IndexError:  # another thread runs them
                return
            try:
                callback(future)
            except Exception:
                _log.exception("%r, which was to be called back, has raised", callback)

    def _step(self, left):
        """Waits for an event, a timer, the end of the timeout, or a signal. It returns False for a
        signal.
        """
        timeout = -1 if left is None else left
        if self._timers:
            until = max(0, self._timers[0][0] - time.monotonic())
            timeout = until if timeout < 0 else min(timeout, until)
        if timeout > 0:
            timeout += 0.0005  # epoll counts in milliseconds, and would return early
        self._leading = True
        self._steps += 1
        try:
            events = self._lock.apart(self._epoll.poll, timeout, 256)
        finally:
            self._leading = False
            self._lock.notify_all()
        if events is None:
            return False
        for fd, mask in events:
            handler = self._handlers.get(fd)
            if handler is None:
                continue
            if type(handler) is Link:
                if mask & select.EPOLLOUT:
                    handler.writable()
                if mask & ~select.EPOLLOUT:
                    self._read(handler)
            elif handler is self._listener:
                self._accept()
            elif handler == "nudge":
                os.read(fd, 64)
            elif handler is self._helper:
                if mask & select.EPOLLOUT:
                    handler.writable()
                if mask & ~select.EPOLLOUT:
                    for told in handler.events():
                        self._told(told)
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            entry = heapq.heappop(self._timers)
            do, entry[2] = entry[2], None
            if do is None:
                self._cancelled -= 1
            else:
                do()
        self._lock.notify_all()
        return True

    def _read(self, link):
        try:
            for frame in link.readable():
                if link.worker is not None:
                    link.worker._frame(link, frame)
                elif frame is not None:
                    self._greeted(link, frame)
                else:
                    self._stranger(link)
        except wire.ProtocolError as error:
            if link.worker is not None:
                link.worker._broken(link, error)
            else:
                self._stranger(link)

    def _told(self, told):
        if told is None:
            for group in list(self.groups):
                group._ended(self._helper.gone)
            return
        if told["event"] == "warning":
            _log.warning("%s", told["text"])
        elif told["event"] == "lost":
            for group in list(self.groups):
                group._ended("the cluster was lost: " + told["reason"])
        else:
            group = self._by_job.get(told["job"])
            if group is not None:
                group._told(told)

    # Without a waiting caller

    def _stir(self):
        """A call is pending. If no caller waits, a thread reads and writes. The lock is held."""
        if not self._stirred:
            self._stirred = True
            if self._tender is None:
                self._tender = threading.Thread(target=self._tend, name="golaunch", daemon=True)
                self._tender.start()
            else:
                self._idle.notify()

    def _tend(self):
        with self._lock:
            while not self._closed:
                steps = self._steps
                self._idle.wait(_IDLE if self._stirred else None)
                if not self._stirred or self._closed or steps != self._steps and not self._waiting:
                    continue
                while not self._waiting and not self._closed and self._busy():
                    self._tending = True
                    try:
                        self._step(None)
                    except (ValueError, OSError):
                        if self._closed:
                            return
                        raise
                    finally:
                        self._tending = False
                    if self._due:
                        self._lock.raw.release()
                        try:
                            self._call_back()
                        finally:
                            self._lock.raw.acquire()
                self._stirred = False

    def _busy(self):
        return any(w._pending or w._streams or w._link is not None and w._link.queue for g in self.groups for w in g.workers)

    def _nudge(self):
        """Makes the thread leave reading to a caller that waits."""
        try:
            os.write(self._nudges[1], b"x")
        except BlockingIOError:
            pass

    # Futures

    def _finished(self, future):
        self._due.extend((callback, future) for callback in future._callbacks)
        future._callbacks = []
        if future._expiry is not None:
            self._cancel_timer(future._expiry)

    def _cancel(self, future, error):
        with self._lock:
            some = False
            for worker, slot in future._slots.items():
                if slot.state == futures._WAITS:
                    some = True
                    self._group(future)._forget(worker, future)
                    future._settle(worker, futures._ERROR, error)
            self._lock.notify_all()
        return some

    @staticmethod
    def _group(future):
        return future._group

    def _expire(self, future):
        if future._left:
            self._cancel(future, futures.deadline_exceeded(future))

    def _credit(self, future, worker):
        with self._lock:
            self._group(future).workers[worker]._say(future._call, wire.CREDIT)

    def _close_generator(self, future, worker):
        with self._lock:
            if not self._closed:
                self._group(future)._forget(worker, future)

    async def _awaited(self, future):
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()

        def wake():
            if not waiter.done():
                waiter.set_result(None)

        with self._lock:
            attended = bool(future._left) and future._first_error() is None and not self._closed
            if attended:
                future._wakers.append(lambda: loop.call_soon_threadsafe(wake))
                self._attend(loop, 1)
        if attended:
            try:
                await waiter
            except asyncio.CancelledError:
                future.cancel()
                raise
            finally:
                with self._lock:
                    self._attend(loop, -1)
        return future.result(0)

    def _attend(self, loop, more):
        """Makes an event loop read while a future is awaited in it. Only that loop's thread calls
        this method, and it holds the lock.
        """
        reading = self._loops.get(loop)
        if reading is None:
            reading = self._loops[loop] = _Reading(loop, os.dup(self._epoll.fileno()))
            loop.add_reader(reading.fd, self._on_loop, reading)
        reading.count += more
        if reading.count:
            self._alarm(reading)
            return
        del self._loops[loop]
        reading.end()

    def _on_loop(self, reading):
        self._turn()
        with self._lock:
            self._alarm(reading)

    def _alarm(self, reading):
        """Wakes the loop for the next timer."""
        at = self._timers[0][0] if self._timers and reading.count and not self._closed else None
        if at == reading.at:
            return
        if reading.alarm is not None:
            reading.alarm.cancel()
        reading.at, reading.alarm = at, None
        if at is not None:
            reading.alarm = reading.loop.call_later(max(0.001, at - time.monotonic()), self._rung, reading)

    def _rung(self, reading):
        reading.at = reading.alarm = None
        self._on_loop(reading)


class _Reading:
    """An event loop that reads. The loop has a descriptor of its own for as long as it needs one,
    even after the cluster was closed.
    """

    def __init__(self, loop, fd):
        self.loop, self.fd, self.count = loop, fd, 0
        self.at = self.alarm = None

    def end(self):
        if self.alarm is not None:
            self.alarm.cancel()
        self.loop.remove_reader(self.fd)
        os.close(self.fd)


def _directory():
    """A directory that only this user can enter, with a path short enough for a socket (108 bytes,
    unix(7)).
    """
    parent = tempfile.gettempdir()
    return tempfile.mkdtemp(prefix="golaunch-controller-", dir=parent if len(os.fsencode(parent)) < 70 else "/tmp")


def _sizes(numbers):
    sizes = [numbers] if isinstance(numbers, int) else list(numbers)
    if not sizes or any(not isinstance(n, int) or n < 1 for n in sizes):
        raise ValueError(f"{numbers!r}: a number of bundles, 1 or more, for each node, such as [4, 8, 2]")
    return sizes


def _per_gpu(part):
    """How many workers share a GPU if each worker has this part of it."""
    workers = round(1 / part) if isinstance(part, (int, float)) and 0 < part <= 1 else 0
    if not 1 <= workers <= 48 or abs(workers * part - 1) > 1e-9:
        raise ValueError(f"gpus_per_worker={part!r}: 1, or an equal part of a GPU for each worker, from 1/2 to 1/48")
    return workers


def main_program():
    """The facts by which a worker finds this program's own module, as in
    multiprocessing.spawn.get_preparation_data.
    """
    main = sys.modules["__main__"]
    name = getattr(getattr(main, "__spec__", None), "name", None)
    if name is not None:
        return {"module": name}
    path = getattr(main, "__file__", None)
    return {"path": os.path.abspath(path)} if path else None
