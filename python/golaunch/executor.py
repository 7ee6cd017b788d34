"""A concurrent.futures.Executor whose processes are on the nodes of a cluster."""

import concurrent.futures
import itertools
import os
import pickle
import sys
import threading
import types
import weakref
from collections import deque

from .cluster import VirtualCluster, main_program
from .errors import GolaunchError, GroupDeadError, WorkerFailureError
from .group import WorkerGroup

# Calls that wait for a worker; submit waits while there are more.
_QUEUED = 10_000
# The number of restarts of workers that died, for all workers together.
_RESTARTS = 1000
_OPEN = weakref.WeakSet()


class _RemoteTraceback(Exception):
    """The traceback in the worker, as the cause of the exception of a call."""

    def __init__(self, text):
        super().__init__(text)
        self.text = text

    def __str__(self):
        return "\n" + self.text.rstrip()


class _Worker:
    """The object that each worker makes: it runs any function."""

    def __init__(self, main, started):
        if main is not None:
            from .worker import _main
            _main(main)
        initializer, initargs = pickle.loads(started)
        if initializer is not None:
            initializer(*initargs)

    def run(self, fn, args, kwargs):
        result = fn(*args, **kwargs)
        if isinstance(result, types.GeneratorType):
            raise TypeError(f"{fn!r} returned a generator, which cannot be sent; return a list")
        return result


class _Group(WorkerGroup):
    """Workers that tell their executor when one of them is ready, and when all have ended."""

    def __init__(self, executor, *args, **options):
        self._executor = executor
        super().__init__(*args, **options)

    def _made(self, worker):
        super()._made(worker)
        self.cluster._due.append((self._executor._worker_ready, worker))

    def _end(self, error):
        super()._end(error)
        self.cluster._due.append((self._executor._group_ended, error))


class _Item:
    __slots__ = ("future", "call", "running", "deaths")

    def __init__(self, future, call):
        self.future, self.call, self.running, self.deaths = future, call, False, 0


class Executor(concurrent.futures.Executor):
    """Runs functions on the workers of a VirtualCluster, or without one on max_workers processes of
    this machine (os.cpu_count() when None). Each worker runs one call at a time; calls go to nodes
    in turn.

    Functions, arguments and results are pickled, as by ProcessPoolExecutor. initializer(*initargs)
    runs once in each worker. A call whose worker or node dies runs again, on another worker, at
    most max_retries times; then its future has a WorkerFailureError with the node and the cause. So
    a function may run more than once. env has variables of the workers. Further keyword arguments
    are passed to WorkerGroup.
    """

    def __init__(self, cluster=None, max_workers=None, *, initializer=None, initargs=(), max_retries=3, **options):
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        if max_workers is not None and max_workers <= 0:
            raise ValueError("max_workers must be greater than 0")
        if max_retries < 0:
            raise ValueError(f"max_retries={max_retries}: 0 or more")
        if cluster is not None and max_workers is not None:
            raise ValueError("max_workers is for this machine; the cluster's bundles are the workers")
        self._mutex = threading.Lock()
        self._room = threading.Condition(self._mutex)
        self._queue, self._idle, self._running = deque(), deque(), 0
        self._retries, self._broken, self._shut, self._over = max_retries, None, False, False
        self._owned = cluster is None
        sys.modules.setdefault("__mp_main__", sys.modules["__main__"])
        started = pickle.dumps((initializer, tuple(initargs)), 5)
        options.setdefault("max_restarts", _RESTARTS)
        cluster = self.cluster = cluster or VirtualCluster([max_workers or os.cpu_count() or 1])
        try:
            self._group = _Group(self, cluster, _Worker, main_program(), started, restart="worker", **options)
        except WorkerFailureError as error:
            if self._owned:
                cluster.close()
            raise concurrent.futures.BrokenExecutor(f"no worker is ready: {error}") from error
        except BaseException:
            if self._owned:
                cluster.close()
            raise
        with self._mutex:
            self._idle.extend(_in_turn(self._group.per_node))
        _OPEN.add(self)
        self._thread = threading.Thread(target=self._attend, name="golaunch-executor", daemon=True)
        self._thread.start()

    def submit(self, fn, /, *args, **kwargs):
        item = _Item(concurrent.futures.Future(), (fn, args, kwargs))
        with self._mutex:
            while len(self._queue) >= _QUEUED and not self._shut and self._broken is None and threading.current_thread() is not self._thread:
                self._room.wait()
            if self._broken is not None:
                raise concurrent.futures.BrokenExecutor(self._broken)
            if self._shut:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._queue.append(item)
        self._dispatch()
        return item.future

    submit.__doc__ = concurrent.futures.Executor.submit.__doc__

    def shutdown(self, wait=True, *, cancel_futures=False):
        cancelled = []
        with self._mutex:
            self._shut = True
            if cancel_futures:
                cancelled = [i for i in self._queue if not i.running]
                self._queue = deque(i for i in self._queue if i.running)
            self._room.notify_all()
        for item in cancelled:
            item.future.cancel()
            item.future.set_running_or_notify_cancel()
        self._look()
        if wait and threading.current_thread() is not self._thread:
            self._thread.join()

    shutdown.__doc__ = concurrent.futures.Executor.shutdown.__doc__

    # The thread, which reads the answers of workers, and ends the workers

    def _attend(self):
        try:
            self.cluster._wait(lambda: self._over, None, None)
        except GolaunchError as error:  # the cluster was closed
            self._break(str(error))
        try:
            # A worker whose node is gone cannot leave, and the group would wait for that worker.
            self._group.shutdown(force=any(w.state != "ready" for w in self._group.workers))
        finally:
            if self._owned:
                self.cluster.close()

    def _look(self):
        """Ends the thread once everything is done after a shutdown."""
        with self._mutex:
            over = self._shut and not self._queue and not self._running
        if over and not self._over:
            self._over = True
            with self.cluster._lock:
                if not self.cluster._closed:
                    self.cluster._after(0, lambda: None)

    # Calls

    def _dispatch(self):
        """Gives waiting calls to idle workers."""
        while True:
            with self._mutex:
                rank = self._free() if self._queue and self._broken is None else None
                if rank is None:
                    return
                item = self._queue.popleft()
                self._running += 1
                self._room.notify()
            if item.running or item.future.set_running_or_notify_cancel():
                item.running = True
                try:
                    call = self._group.run_single_worker_single_data("run", rank, *item.call)
                    call.add_done_callback(lambda call, rank=rank, item=item: self._answered(rank, item, call))
                    continue
                except BaseException as error:  # the call cannot be pickled, or the group has ended
                    item.future.set_exception(_own(error))
            self._release(rank)

    def _free(self):
        """An idle worker that is ready, or None."""
        for _ in range(len(self._idle)):
            rank = self._idle.popleft()
            if self._group.workers[rank].state == "ready":
                return rank
            self._idle.append(rank)
        return None

    def _release(self, rank):
        with self._mutex:
            self._running -= 1
            self._idle.append(rank)
        self._look()

    def _answered(self, rank, item, call):
        error = call.exception(0)
        again = error is not None and not isinstance(error, GroupDeadError) and getattr(error, "cause", "exception") not in ("exception", "protocol")
        if again:
            item.deaths += 1
            again = item.deaths <= self._retries
        with self._mutex:
            again = again and self._broken is None
            if again:
                self._queue.appendleft(item)
        self._release(rank)
        if again:
            pass
        elif error is None:
            item.future.set_result(call.result(0))
        else:
            item.future.set_exception(_own(error))
        self._dispatch()

    def _worker_ready(self, _):
        self._dispatch()

    def _group_ended(self, error):
        if not self._over:
            self._break(f"the workers have ended: {error}")

    def _break(self, why):
        with self._mutex:
            self._broken = why
            queue, self._queue = self._queue, deque()
            self._shut = True
            self._room.notify_all()
        for item in queue:
            if item.running or item.future.set_running_or_notify_cancel():
                item.future.set_exception(concurrent.futures.BrokenExecutor(why))
        self._look()


def _own(error):
    """The exception that a call raised, with the traceback in the worker as its cause."""
    if isinstance(error, GroupDeadError):
        return concurrent.futures.BrokenExecutor(str(error))
    raised = error.__cause__
    if not isinstance(error, WorkerFailureError) or error.cause != "exception" or raised is None:
        return error
    raised.__cause__ = _RemoteTraceback(error.remote_traceback or "")
    return raised


def _in_turn(per_node):
    """The ranks of all nodes, in an order that takes one rank of each node in turn."""
    starts = [0, *itertools.accumulate(per_node)]
    return [starts[n] + i for i in range(max(per_node)) for n, count in enumerate(per_node) if i < count]


def _end_all():
    for executor in list(_OPEN):
        executor.shutdown(wait=True)


threading._register_atexit(_end_all)  # as concurrent.futures does: before threads are joined
