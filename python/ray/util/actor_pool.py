"""Calls spread over actors."""

import ray


class ActorPool:
    """Calls a function of an actor and a value for each value, with an idle actor."""

    def __init__(self, actors):
        self._idle = list(actors)
        self._running, self._by_index, self._waiting = {}, {}, []
        self._next, self._returned = 0, 0

    def map(self, fn, values):
        self._drain()
        for value in values:
            self.submit(fn, value)

        def results():
            while self.has_next():
                yield self.get_next()

        return results()

    def map_unordered(self, fn, values):
        self._drain()
        for value in values:
            self.submit(fn, value)

        def results():
            while self.has_next():
                yield self.get_next_unordered()

        return results()

    def _drain(self):
        """Drops the results that an earlier map has not read, as in Ray."""
        while self.has_next():
            try:
                self.get_next_unordered(timeout=0)
            except TimeoutError:
                pass

    def submit(self, fn, value):
        if self._idle:
            actor = self._idle.pop()
            ref = fn(actor, value)
            self._running[ref] = self._next, actor
            self._by_index[self._next] = ref
            self._next += 1
        else:
            self._waiting.append((fn, value))

    def has_next(self):
        return bool(self._running)

    def get_next(self, timeout=None, ignore_if_timedout=False):
        if not self.has_next():
            raise StopIteration("No more results to get")
        if self._returned >= self._next:
            raise ValueError("It is not allowed to call get_next() after get_next_unordered().")
        ref = self._by_index[self._returned]
        if timeout is not None and not ray.wait([ref], timeout=timeout)[0]:
            if not ignore_if_timedout:
                raise TimeoutError("Timed out waiting for result")
        else:
            ray.wait([ref])
        del self._by_index[self._returned]
        self._returned += 1
        self._free(self._running.pop(ref)[1])
        return ray.get(ref)

    def get_next_unordered(self, timeout=None, ignore_if_timedout=False):
        if not self.has_next():
            raise StopIteration("No more results to get")
        ready, _ = ray.wait(list(self._running), num_returns=1, timeout=timeout)
        if not ready:
            raise TimeoutError("Timed out waiting for result")
        index, actor = self._running.pop(ready[0])
        self._free(actor)
        del self._by_index[index]
        self._returned = max(self._returned, index + 1)
        return ray.get(ready[0])

    def _free(self, actor):
        self._idle.append(actor)
        if self._waiting:
            self.submit(*self._waiting.pop(0))

    def has_free(self):
        return bool(self._idle) and not self._waiting

    def pop_idle(self):
        return self._idle.pop() if self.has_free() else None

    def push(self, actor):
        if actor in self._idle or actor in [a for _, a in self._running.values()]:
            raise ValueError("Actor already belongs to current ActorPool")
        self._free(actor)
