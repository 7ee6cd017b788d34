"""The results of a generator, as they come."""

import threading
from collections import deque

from . import exceptions as errors


class ObjectRefGenerator:
    """References to the items of a remote generator, in order."""

    def __init__(self, core, task):
        self._core, self._task = core, task
        self._items, self._over, self.came_so_far = deque(), False, 0
        self._changed = threading.Condition()
        self._watching = []

    def __bool__(self):
        return True

    # called in the thread that receives

    def came(self, ref):
        with self._changed:
            self._items.append(ref)
            self.came_so_far += 1
            self._changed.notify_all()
            watching, self._watching = self._watching, []
        for watch in watching:
            watch()

    def over(self):
        with self._changed:
            self._over = True
            self._changed.notify_all()
            watching, self._watching = self._watching, []
        for watch in watching:
            watch()

    # called by the reader

    def __iter__(self):
        return self

    def __next__(self):
        return self._next_sync()

    def _next_sync(self, timeout_s=None):
        with self._changed:
            if not self._items and not self._over:
                self._core.wait_apart(self._changed.wait_for, lambda: self._items or self._over, timeout_s if timeout_s is not None and timeout_s >= 0 else None)
            if self._items:
                return self._items.popleft()
            if self._over:
                raise StopIteration
        raise errors.GetTimeoutError(f"no item within {timeout_s} s")

    def __aiter__(self):
        return self

    async def __anext__(self):
        import asyncio

        loop = asyncio.get_running_loop()
        while True:
            with self._changed:
                if self._items:
                    return self._items.popleft()
                if self._over:
                    raise StopAsyncIteration
                came = loop.create_future()
                self._watching.append(lambda: loop.call_soon_threadsafe(lambda: came.done() or came.set_result(None)))
            await came

    def completed(self):
        raise NotImplementedError("golaunch does not serve ObjectRefGenerator.completed; iterate to the end")

    def next_ready(self):
        with self._changed:
            return bool(self._items) or self._over

    def is_finished(self):
        with self._changed:
            return self._over and not self._items

    def task_id(self):
        from ._ids import TaskID

        return TaskID(self._task.id)

    def close(self):
        self._core.cancel(self, False, True)

    @property
    def _id(self):
        return self._task.id + b"\1\0\0\0"

    @property
    def _owner(self):
        return self._core.address

    def __reduce__(self):
        raise TypeError("You cannot return or pass a generator to other task. Serializing a ObjectRefGenerator is not allowed.")

    def __repr__(self):
        return f"ObjectRefGenerator({self._id.hex()})"


DynamicObjectRefGenerator = ObjectRefGenerator
