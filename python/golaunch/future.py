"""The return value of calls: a future that is also a sequence of its results."""

import time
from collections import deque
from collections.abc import Sequence

from .errors import CallCancelled, DeadlineExceeded

_WAITS, _VALUE, _ERROR = range(3)


class Slot:
    """One worker's part of a call."""

    __slots__ = ("worker", "state", "value")

    def __init__(self, worker):
        self.worker, self.state, self.value = worker, _WAITS, None


class Future(Sequence):
    """The results of a call, one for each worker that returns a result, in the order of workers.

    Indexing, iterating, comparing and result() wait, and raise the WorkerFailureError of a worker
    that fails. Awaiting the future gives the list.
    """

    def __init__(self, cluster, call, method, workers, returned=None, deadline=None, single=False):
        self._cluster, self._call, self.method, self._deadline = cluster, call, method, deadline
        self._slots = {w: Slot(w) for w in workers}
        self.called_workers = list(workers)
        self.return_from_workers = self.called_workers if returned is None else [w for w in returned if w in self._slots]
        self._order = [self._slots[w] for w in self.return_from_workers]
        self._left = len(self._slots)
        self._single = single
        self._callbacks, self._wakers = [], []
        self._finished = []
        self._expiry = None  # the timer of its deadline

    # Methods for the cluster, which holds the lock.

    def _settle(self, worker, state, value):
        slot = self._slots[worker]
        if slot.state != _WAITS:
            return
        slot.state, slot.value = state, value
        self._finished.append(slot)
        self._left -= 1
        if self._left == 0:
            self._cluster._finished(self)
        if self._wakers and (self._left == 0 or state == _ERROR):
            wakers, self._wakers = self._wakers, []
            for wake in wakers:
                wake()

    # Methods for users

    def done(self):
        """Whether all workers have answered."""
        self._cluster._turn()
        return self._left == 0

    def _first_error(self):
        for slot in self._finished:
            if slot.state == _ERROR:
                return slot.value
        return None

    def result(self, timeout=None):
        """The list of results, or the single result of a call of a single worker. timeout is in
        seconds.

        The first failure is raised at once, even if other workers have not answered.
        """
        self._cluster._wait(lambda: self._left == 0 or self._first_error() is not None, timeout, self)
        error = self._first_error()
        if error is not None:
            raise _raised(error)
        values = [slot.value for slot in self._order]
        return values[0] if self._single else values

    def exception(self, timeout=None):
        """The first failure, or None when all workers have answered without one."""
        self._cluster._wait(lambda: self._left == 0 or self._first_error() is not None, timeout, self)
        return self._first_error()

    def exceptions(self, timeout=None):
        """All failures, by worker, once all workers have answered."""
        self._cluster._wait(lambda: self._left == 0, timeout, self)
        return {w: s.value for w, s in self._slots.items() if s.state == _ERROR}

    def cancel(self):
        """Asks the workers to end the call, which then raises CallCancelled. It returns whether a
        worker had not answered.
        """
        return self._cluster._cancel(self, CallCancelled(f"the call of {self.method} was cancelled"))

    def as_completed(self, timeout=None):
        """Yields (worker, result) for each worker that returns a result, as the results come."""
        end = None if timeout is None else time.monotonic() + timeout
        at, wanted = 0, set(self.return_from_workers)
        while at < len(self._slots):
            left = None if end is None else max(0, end - time.monotonic())
            self._cluster._wait(lambda: len(self._finished) > at, left, self)
            slot = self._finished[at]
            at += 1
            if slot.state == _ERROR:
                raise _raised(slot.value)
            if slot.worker in wanted:
                yield slot.worker, slot.value

    def add_done_callback(self, callback):
        """Calls a function with this future when all workers have answered, in the thread that
        waits for any of the cluster's calls.
        """
        with self._cluster._lock:
            if self._left:
                self._callbacks.append(callback)
                return
        callback(self)

    def __len__(self):
        return len(self._order)

    def _at(self, slot):
        self._cluster._wait(lambda: slot.state != _WAITS, None, self)
        if slot.state == _ERROR:
            raise _raised(slot.value)
        return slot.value

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self._at(slot) for slot in self._order[index]]
        return self._at(self._order[index])

    def __eq__(self, other):
        if isinstance(other, Future):
            return self is other
        if isinstance(other, (list, tuple)):
            return list(self) == list(other)
        return NotImplemented

    __hash__ = object.__hash__

    def __await__(self):
        return self._cluster._awaited(self).__await__()

    def __repr__(self):
        return f"<Future of {self.method}: {len(self._slots) - self._left} of {len(self._slots)} workers have answered>"


class RemoteGenerator:
    """The items of a worker's generator, as they come. The worker is at most 16 items ahead of the
    reader, and does nothing else until the generator was read to its end or closed.
    """

    def __init__(self, future, worker):
        self._future, self._worker = future, worker
        self._items = deque()
        self._over, self._error = False, None

    def _add(self, item):
        self._items.append(item)

    def _end(self, error):
        self._over, self._error = True, error

    def __iter__(self):
        return self

    def __next__(self):
        cluster = self._future._cluster
        cluster._wait(lambda: self._items or self._over, None, None)
        took = False
        try:
            with cluster._lock:
                if self._items:
                    item = self._items.popleft()
                    took = True
                    cluster._credit(self._future, self._worker)
        except BaseException:  # an exception of a signal's handler
            if took:
                self._items.appendleft(item)
            raise
        if took:
            return item
        if self._error is not None:
            error, self._error = self._error, None
            raise _raised(error)
        raise StopIteration

    def close(self):
        if not self._over:
            self._over = True
            self._future._cluster._close_generator(self._future, self._worker)

    def __del__(self):
        try:
            self.close()
        except Exception:
            pass


def _raised(error):
    again = getattr(error, "again", None)
    return again() if again else error


def deadline_exceeded(future):
    late = [w for w, s in future._slots.items() if s.state == _WAITS]
    names = ", ".join(map(str, late[:16])) + (", ..." if len(late) > 16 else "")
    return DeadlineExceeded(f"{future.method} was not answered by its deadline by {len(late)} of {len(future._slots)} workers: {names}", late)
