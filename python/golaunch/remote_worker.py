"""A worker, as the controller sees it."""

import time
import weakref

from . import future as futures
from . import wire
from .errors import ResultTooLarge, WorkerFailureError
from .future import RemoteGenerator
from .pickling import loads

# How long pending calls wait for golaunch's verdict after a worker's connection has ended, in
# seconds. The verdict usually takes milliseconds for a failure, and up to two seconds for an exit
# with code 0; more on a busy machine. The wait is worthwhile, because the next action depends on
# the reason. A worker on another machine may connect again: its calls wait for as long as golaunch
# reports that the worker is alive.
_VERDICT = 10.0
# What golaunch says about a worker that exited as if it were done.
DONE = "exited with code 0"
# An exception of one of several workers may be an echo of the end of another worker. These are the
# times, in seconds, that the exception waits for such an end, and for an end that has begun.
_ECHO, _EXIT = 0.02, 10.0


class Worker:
    """One worker of a group: rank, node, local_rank, gpu (UUID or None), pid, attempt, and state:
    starting, ready, lost, ended."""

    def __init__(self, group, rank):
        self.group, self.rank = group, rank
        self.node = self.local_rank = self.gpu = self.pid = None
        self.attempt = -1
        self.state = "starting"
        self._link = None
        # The state that both ends need to resume on a new connection, which a worker on this
        # machine never makes; and whether the worker has reported that it is ready.
        self._replay, self._is_ready = None, False
        # Calls without a result, and unfinished generators, which only their readers keep alive.
        self._pending = {}
        self._streams = {}
        self._held = []
        self._since = {}
        # By attempt, until golaunch says why the connection ended: the calls that were pending
        # then, the streams, and the time until which an exception of another worker may be an echo.
        # The next attempt may come first.
        self._unclear = {}
        # The reason why no call will be answered any more; None while the worker may restart.
        self._end = None
        # The methods for turns of the worker's object.
        self._methods = ()

    def call(self, method, *args, **kwargs):
        """Calls a method of this worker alone."""
        return self.group.run_single_worker_single_data(method, self.rank, *args, **kwargs)

    def __repr__(self):
        return f"<Worker {self.rank} of {self.group.name} on {self.node}: {self.state}>"

    def _frame(self, link, frame):
        if link is not self._link:
            return
        if frame is None:
            self._lost(link)
            return
        kind, call = frame.kind, frame.call
        if self._replay is not None:
            if kind == wire.ACK:
                self._replay.acknowledge(call)
                return
            due = self._replay.take(frame)
            if due is not None:
                link.send(due)
        if kind != wire.ITEM:
            self._since.pop(call, None)
        if kind == wire.READY:
            self._methods, self._is_ready = loads(frame.body, frame.buffers), True
            self.group._made(self)
            return
        if kind == wire.ERROR and call == 0:
            self.group._unmade(self, self._failure(loads(frame.body, frame.buffers), "__init__"))
            return
        future = self._pending.get(call)
        if future is None:
            self._streamed(frame)
            return
        if kind == wire.RESULT:
            del self._pending[call]
            try:
                value = loads(frame.body, frame.buffers)
            except Exception as error:
                future._settle(self.rank, futures._ERROR, self._unread(error, future.method))
                return
            future._settle(self.rank, futures._VALUE, value)
        elif kind == wire.ERROR:
            self._raised(call, future, self._failure(loads(frame.body, frame.buffers), future.method), len(future._slots) > 1, time.monotonic() + _EXIT)
        elif kind in (wire.ITEM, wire.END):
            del self._pending[call]
            items = RemoteGenerator(future, self.rank)
            self._streams[call] = weakref.ref(items)
            future._settle(self.rank, futures._VALUE, items)
            self._streamed(frame)
        else:
            raise wire.ProtocolError(f"a worker says {kind}")

    def _raised(self, call, future, error, wait, until):
        """A method has raised an exception. If another worker has just ended, that end is the
        cause, and the exception may be an echo.
        """
        if self._pending.get(call) is not future:
            return  # the cause is known
        now = time.monotonic()
        others = [w for w in self.group.workers if w is not self]
        if wait or any(end > now for w in self.group.workers for _, _, end in w._unclear.values()) or until > now and any(w._exits() for w in others):
            self.group.cluster._after(_ECHO, lambda: self._raised(call, future, error, False, until))
            return
        del self._pending[call]
        future._settle(self.rank, futures._ERROR, error)

    def _exits(self):
        """Whether the worker is on this machine and its process ends: on a busy machine, its
        connections to other workers may end long before its connection to this process.
        """
        if self._link is None or self._replay is not None:
            return False
        try:
            with open(f"/proc/{self.pid}/stat", "rb") as f:
                state, _, _, _, _, _, flags = f.read().rpartition(b")")[2].split()[:7]
        except (OSError, ValueError):
            return False  # the worker may have another /proc
        return state in (b"Z", b"X") or bool(int(flags) & 4)  # PF_EXITING

    def _streamed(self, frame):
        """An item of a generator. It is dropped if the call was cancelled."""
        items = self._streams.get(frame.call, _nothing)()
        if items is None:
            return
        error = None
        if frame.kind == wire.ITEM:
            try:
                items._add(loads(frame.body, frame.buffers))
                return
            except Exception as cause:
                self._say(frame.call, wire.CANCEL)
                error = self._unread(cause, items._future.method)
        elif frame.kind == wire.ERROR:
            error = self._failure(loads(frame.body, frame.buffers), items._future.method)
        del self._streams[frame.call]
        items._end(error)

    def _say(self, call, kind):
        self._send(*wire.encode(kind, call))

    def _send(self, parts, segment=None):
        if self._replay is not None:
            self._replay.sent(parts, segment)
        if self._link is not None:
            self._link.send(parts, segment)

    def _greeted(self, link, facts, limit):
        """A process connects as this worker for the first time."""
        self.node, self.gpu, self.local_rank, self.pid, self.attempt = facts["node"], facts.get("gpu"), facts["local_rank"], facts["pid"], facts["attempt"]
        self._link, self.state, self._end, self._is_ready = link, "making", None, False
        link.known(self, bool(facts.get("direct")), limit)
        self._replay = None
        if not facts.get("direct") and "received" in facts:
            self._replay = wire.Replay()
            link.send(self._replay.ack())

    def _resumed(self, link, facts, limit):
        """The same process connects again. A mistake of the process is a ProtocolError."""
        if self._replay is None or not isinstance(facts.get("received"), int):
            raise wire.ProtocolError("its connection had ended")
        self._replay.acknowledge(facts["received"])
        if self._link is not None:
            self._link.close()  # the other end is closed
        self._unclear.pop(self.attempt, None)
        self._link, self.state = link, "ready" if self._is_ready else "making"
        link.known(self, False, limit)
        link.send(self._replay.ack())
        for frame in list(self._replay.unacked):
            link.send(*frame)
        if self._is_ready:
            self._take_held()

    def _take_held(self):
        """Sends the worker the calls that were made while it was not connected."""
        held, self._held = self._held, []
        for call, future, frame in held:
            self._pending[call] = future
            self._since[call] = future.method, time.monotonic()
            self._send(*frame)

    def _where(self):
        gpu = "" if self.gpu is None else f" (gpu {self.gpu})"
        return f"worker {self.rank} of {self.group.name} on {self.node}{gpu}"

    def _failure(self, told, method):
        kind = ResultTooLarge if told["too_large"] else WorkerFailureError
        error = kind(
            f"{self._where()}: {method} raised {told['type']}: {told['message']}", rank=self.rank, node=self.node, gpu=self.gpu, cause="exception",
            remote_traceback=told["traceback"], method=method)
        if told["exception"] is not None:
            try:
                error.__cause__ = loads(told["exception"], ())
            except Exception:  # the class is unknown here: the text is enough
                pass
        return error

    def _unread(self, cause, method):
        error = WorkerFailureError(
            f"{self._where()}: the result of {method} cannot be unpickled here: {type(cause).__name__}: {cause}", rank=self.rank, node=self.node,
            gpu=self.gpu, cause="exception", method=method)
        error.__cause__ = cause
        return error

    def _broken(self, link, error):
        """The worker has sent a malformed frame."""
        failure = WorkerFailureError(f"{self._where()} sent a malformed frame: {error}", rank=self.rank, node=self.node, gpu=self.gpu, cause="protocol")
        link.close()
        self._link, self.state = None, "lost"
        self._fail(failure)

    def _lost(self, link):
        link.close()
        self._link = None
        if self.state == "ended" or self.group._closing:
            return
        self.state = "lost"
        known = self.group._failures.get((self.rank, self.attempt)) or self.group._failures.get((None, self.attempt))
        if known is not None:
            self._fail(known)
            return
        self._unclear[self.attempt] = dict(self._pending), dict(self._streams), time.monotonic() + _VERDICT
        self.group.cluster._after(_VERDICT, lambda attempt=self.attempt: self._unknown(attempt))
        self.group._look()

    def _unknown(self, attempt):
        """The time limit has passed without a verdict on an attempt."""
        _, _, until = self._unclear.get(attempt, (None, None, 0.0))
        if self._replay is not None and attempt == self.attempt or until > time.monotonic():
            return  # the worker may connect again, or that connection has also ended
        self._explained(attempt, WorkerFailureError(
            f"{self._where()} is gone: the connection to it ended, and the coordinator has not said why within {_VERDICT} s", rank=self.rank, node=self.node,
            gpu=self.gpu, cause="unknown"))

    def _explained(self, attempt, error):
        """Fails the pending calls of an attempt that has not ended yet."""
        pending, streams, _ = self._unclear.pop(attempt, ({}, {}, 0.0))
        for call, future in pending.items():
            if self._pending.get(call) is future:
                del self._pending[call]
                self._since.pop(call, None)
                future._settle(self.rank, futures._ERROR, error)
        for call, ref in streams.items():
            if self._streams.get(call) is ref:
                del self._streams[call]
                items = ref()
                if items is not None:
                    items._end(error)

    def _done(self):
        """The worker has exited as if it were done, and is not started again."""
        self.state = "ended"
        self._end = WorkerFailureError(
            f"{self._where()} has {DONE} in a call: it is not started again", rank=self.rank, node=self.node, gpu=self.gpu, cause="exited", exit_code=0)
        self._fail(self._end)
        self._fail_held(self._end)

    def _untold(self):
        """Whether the worker's connection has ended without a verdict."""
        return self.state == "lost" and (self.rank, self.attempt) not in self.group._failures

    def _fail(self, error):
        self._unclear, self._replay, self._since = {}, None, {}
        pending, self._pending = self._pending, {}
        for future in pending.values():
            future._settle(self.rank, futures._ERROR, error)
        streams, self._streams = self._streams, {}
        for items in [ref() for ref in streams.values()]:
            if items is not None:
                items._end(error)

    def _fail_held(self, error):
        held, self._held = self._held, []
        for call, future, _ in held:
            future._settle(self.rank, futures._ERROR, error)


def _nothing():
    return None
