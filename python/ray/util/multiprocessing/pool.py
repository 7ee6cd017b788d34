"""multiprocessing.Pool over actors. A call is sent to an actor as a chunk: a list of arguments."""

import itertools
import logging
import os
import queue
import threading
import time
from collections import deque
from multiprocessing import TimeoutError

import ray

from ... import _cluster
from ...exceptions import RayError


class PoolTaskError(Exception):
    """The exception of a call."""

    def __init__(self, underlying):
        self.underlying = underlying


class PoolActor:
    def __init__(self, initializer=None, initargs=None):
        if initializer:
            initializer(*(initargs or ()))

    def ping(self):
        pass

    def run_batch(self, function, batch):
        return [self._result(function, args or (), kwargs or {}) for args, kwargs in batch]

    @staticmethod
    def _result(function, args, kwargs):
        try:
            return function(*args, **kwargs)
        except Exception as error:
            return PoolTaskError(error)


def _results(ref):
    """The results of a finished chunk."""
    try:
        return ray.get(ref)
    except RayError as error:  # the actor has died, or its result cannot be sent
        return [error]


class AsyncResult:
    """The results of chunks, once all are done."""

    def __init__(self, refs, callback=None, error_callback=None, single_result=False):
        self._refs, self._single, self._made, self._failed = refs, single_result, None, None
        self._thread = None
        if callback is not None or error_callback is not None:
            self._thread = threading.Thread(target=self._call_back, args=(callback, error_callback), daemon=True)
            self._thread.start()

    def _call_back(self, callback, error_callback):
        """Calls error_callback with the first exception as soon as it exists, or callback with all
        results if there is no exception.
        """
        done, failed = queue.SimpleQueue(), False
        for ref in self._refs:
            ref._core.when_ready(ref, lambda _, ref=ref: done.put(ref))
        for _ in self._refs:
            error = next((r for r in _results(done.get()) if isinstance(r, Exception)), None)
            if error is not None and not failed:
                failed = True
                if error_callback is not None:
                    error_callback(error)
        if not failed and callback is not None:
            results = self._all()
            callback(results[0] if self._single else results)

    def _all(self):
        if self._made is None:
            self._made = [result for ref in self._refs for result in _results(ref)]
        return self._made

    def wait(self, timeout=None):
        """Returns when the results are there and the callback was called, or after timeout seconds."""
        if self._thread is not None:
            self._thread.join(timeout)
        elif self._refs:
            ray.wait(self._refs, num_returns=len(self._refs), timeout=None if timeout is None else max(0, timeout))

    def get(self, timeout=None):
        self.wait(timeout)
        if not self.ready():
            raise TimeoutError
        results = self._all()
        for result in results:
            if isinstance(result, PoolTaskError):
                raise result.underlying
            if isinstance(result, Exception):
                raise result
        return results[0] if self._single else list(results)

    def ready(self):
        if self._thread is not None:
            return not self._thread.is_alive()
        return not self._refs or not ray.wait(self._refs, num_returns=len(self._refs), timeout=0)[1]

    def successful(self):
        if not self.ready():
            raise ValueError(f"{self!r} not ready")
        return not any(isinstance(result, Exception) for result in self._all())


class IMapIterator:
    """The results for an iterable's items. Each actor has one chunk at a time: a further chunk is
    sent when a result is asked for.
    """

    def __init__(self, pool, func, iterable, chunksize=None):
        self._pool, self._func, self._items = pool, func, iter(iterable)
        self._chunksize = chunksize or (1 if self._items is iterable else pool._chunksize(iterable))
        self._sent, self._all_sent = 0, False
        self._waiting, self._ready = {}, deque()  # the numbers of the chunks that run, and the results to return
        for _ in range(len(pool._actors)):
            self._send()

    def _send(self):
        chunk = [((item,), {}) for item in itertools.islice(self._items, self._chunksize)] if not self._all_sent else ()
        self._all_sent = len(chunk) < self._chunksize
        if chunk:
            self._waiting[self._pool._run(self._sent % len(self._pool._actors), self._func, chunk)] = self._sent
            self._sent += 1

    def _next_done(self, until):
        """The number and the results of a finished chunk."""
        done, _ = ray.wait(list(self._waiting), timeout=None if until is None else max(0, until - time.monotonic()))
        if not done:
            raise TimeoutError
        self._send()
        return self._waiting.pop(done[0]), _results(done[0])

    def __iter__(self):
        return self

    def __next__(self):
        return self.next()

    def next(self, timeout=None):
        if not self._ready:
            until = None if timeout is None else time.monotonic() + timeout
            if not self._more(until):
                raise StopIteration
        return self._ready.popleft()


class OrderedIMapIterator(IMapIterator):
    _next, _early = 0, None  # the number of the chunk whose results are next, and the results of later chunks

    def _more(self, until):
        self._early = self._early or {}
        if not self._waiting and not self._early:
            return False
        while self._next not in self._early:
            number, results = self._next_done(until)
            self._early[number] = results
        while self._next in self._early:
            self._ready.extend(self._early.pop(self._next))
            self._next += 1
        return True


class UnorderedIMapIterator(IMapIterator):
    def _more(self, until):
        if not self._waiting:
            return False
        self._ready.extend(self._next_done(until)[1])
        return True


class Pool:
    """Like multiprocessing.Pool, with an actor for each process, on any node. processes is at most
    the number of the cluster's CPUs, which is the default.
    """

    def __init__(self, processes=None, initializer=None, initargs=None, maxtasksperchild=None, context=None, ray_address=None, ray_remote_args=None):
        if context:
            logging.getLogger(__name__).warning("Pool(context=...) changes nothing: its processes are actors, which ray.init and ray_remote_args describe.")
        self._closed, self._stopping, self._turn = False, [], 0
        self._most = maxtasksperchild or -1
        self._new = lambda: ray.remote(PoolActor).options(**{"num_cpus": 0, **(ray_remote_args or {})}).remote(initializer, initargs)
        if not ray.is_initialized():
            address = ray_address or os.environ.get("RAY_ADDRESS") or _cluster.started_here()
            ray.init(address, num_cpus=processes if address in (None, "local") else None)
        cpus = int(ray.cluster_resources().get("CPU", 0))
        processes = cpus if processes is None else processes
        if processes <= 0:
            raise ValueError("Processes in the pool must be >0.")
        if cpus < processes:
            raise ValueError(f"Tried to start a pool with {processes} processes on an existing ray cluster, but there are only {cpus} CPUs in the ray cluster.")
        self._actors = [(self._new(), 0) for _ in range(processes)]  # with the number of chunks that each actor was sent
        ray.get([actor.ping.remote() for actor, _ in self._actors])

    def _run(self, index, func, batch):
        actor, count = self._actors[index]
        ref = actor.run_batch.remote(func, batch)
        if count + 1 == self._most:
            self._stop(actor)
            self._actors[index] = self._new(), 0
        else:
            self._actors[index] = actor, count + 1
        return ref

    def _stop(self, actor):
        """Ends an actor after its calls."""
        if self._stopping:
            _, self._stopping = ray.wait(self._stopping, num_returns=len(self._stopping), timeout=0)
        self._stopping.append(actor.__ray_terminate__.remote())

    def _chunksize(self, iterable):
        return -(-len(iterable) // (len(self._actors) * 4))

    def _check_running(self):
        if self._closed:
            raise ValueError("Pool not running")

    def apply(self, func, args=None, kwargs=None):
        return self.apply_async(func, args, kwargs).get()

    def apply_async(self, func, args=None, kwargs=None, callback=None, error_callback=None):
        self._check_running()
        self._turn = (self._turn + 1) % len(self._actors)
        return AsyncResult([self._run(self._turn, func, [(args, kwargs)])], callback, error_callback, single_result=True)

    def map(self, func, iterable, chunksize=None):
        return self.map_async(func, iterable, chunksize).get()

    def map_async(self, func, iterable, chunksize=None, callback=None, error_callback=None):
        return self._start(func, ((item,) for item in iterable), chunksize, callback, error_callback)

    def starmap(self, func, iterable, chunksize=None):
        return self._start(func, iterable, chunksize).get()

    def starmap_async(self, func, iterable, callback=None, error_callback=None):
        return self._start(func, iterable, None, callback, error_callback)

    def _start(self, func, arguments, chunksize, callback=None, error_callback=None):
        self._check_running()
        calls = [(args, {}) for args in arguments]
        chunksize = max(1, self._chunksize(calls)) if chunksize is None else chunksize
        if chunksize < 1:
            raise ValueError(f"chunksize={chunksize}: 1 or more")
        refs = [self._run(i % len(self._actors), func, calls[at:at + chunksize]) for i, at in enumerate(range(0, len(calls), chunksize))]
        return AsyncResult(refs, callback, error_callback)

    def imap(self, func, iterable, chunksize=1):
        """An iterator over the results, in order. As in Ray, the result of a call that raised is a
        PoolTaskError.
        """
        self._check_running()
        return OrderedIMapIterator(self, func, iterable, chunksize)

    def imap_unordered(self, func, iterable, chunksize=1):
        self._check_running()
        return UnorderedIMapIterator(self, func, iterable, chunksize)

    def __enter__(self):
        self._check_running()
        return self

    def __exit__(self, *_):
        self.terminate()

    def close(self):
        """Takes no more calls, and lets the calls that were sent end."""
        for actor, _ in self._actors:
            self._stop(actor)
        self._closed = True

    def terminate(self):
        """Takes no more calls, and kills the actors."""
        if not self._closed:
            self.close()
        for actor, _ in self._actors:
            ray.kill(actor)

    def join(self):
        """Waits until the actors have ended."""
        if not self._closed:
            raise ValueError("Pool is still running")
        if self._stopping:
            _, self._stopping = ray.wait(self._stopping, num_returns=len(self._stopping))
