"""A queue that processes share: an actor."""

import asyncio
from queue import Empty as _Empty
from queue import Full as _Full

import ray


class Empty(_Empty):
    pass


class Full(_Full):
    pass


class Queue:
    """Like queue.Queue. maxsize 0 is no limit."""

    def __init__(self, maxsize=0, actor_options=None):
        self.maxsize = maxsize
        self.actor = ray.remote(_QueueActor).options(**{"max_concurrency": 1000, **(actor_options or {})}).remote(maxsize)

    def __len__(self):
        return self.size()

    def size(self):
        return ray.get(self.actor.qsize.remote())

    qsize = size

    def empty(self):
        return ray.get(self.actor.empty.remote())

    def full(self):
        return ray.get(self.actor.full.remote())

    def put(self, item, block=True, timeout=None):
        if not block:
            if not ray.get(self.actor.put_nowait.remote(item)):
                raise Full
            return
        if timeout is not None and timeout < 0:
            raise ValueError("'timeout' must be a non-negative number")
        if not ray.get(self.actor.put.remote(item, timeout)):
            raise Full

    async def put_async(self, item, block=True, timeout=None):
        if not block:
            if not await self.actor.put_nowait.remote(item):
                raise Full
            return
        if timeout is not None and timeout < 0:
            raise ValueError("'timeout' must be a non-negative number")
        if not await self.actor.put.remote(item, timeout):
            raise Full

    def get(self, block=True, timeout=None):
        if not block:
            return self._got(ray.get(self.actor.get_nowait.remote()))
        if timeout is not None and timeout < 0:
            raise ValueError("'timeout' must be a non-negative number")
        return self._got(ray.get(self.actor.get.remote(timeout)))

    async def get_async(self, block=True, timeout=None):
        if not block:
            return self._got(await self.actor.get_nowait.remote())
        if timeout is not None and timeout < 0:
            raise ValueError("'timeout' must be a non-negative number")
        return self._got(await self.actor.get.remote(timeout))

    @staticmethod
    def _got(answer):
        there, item = answer
        if not there:
            raise Empty
        return item

    def put_nowait(self, item):
        self.put(item, block=False)

    def get_nowait(self):
        return self.get(block=False)

    def put_nowait_batch(self, items):
        if not ray.get(self.actor.put_batch.remote(list(items))):
            raise Full(f"Cannot add {len(list(items))} items to queue of size {self.qsize()} and maxsize {self.maxsize}.")

    def get_nowait_batch(self, num_items):
        if not isinstance(num_items, int):
            raise TypeError("Argument 'num_items' must be an int")
        if num_items < 0:
            raise ValueError("'num_items' must be nonnegative")
        there, items = ray.get(self.actor.get_batch.remote(num_items))
        if not there:
            raise Empty(f"Cannot get {num_items} items from queue of size {items}.")
        return items

    def shutdown(self, force=False, grace_period_s=5):
        """Ends the queue's actor. Without force, the calls that wait may end first, for at most the
        given time.
        """
        if self.actor is not None and not force:
            ray.wait([self.actor.__ray_terminate__.remote()], timeout=grace_period_s)
        if self.actor is not None:
            ray.kill(self.actor)
        self.actor = None


class _QueueActor:
    def __init__(self, maxsize):
        self.maxsize, self.queue = maxsize, asyncio.Queue(maxsize)

    async def qsize(self):
        return self.queue.qsize()

    async def empty(self):
        return self.queue.empty()

    async def full(self):
        return self.queue.full()

    async def put(self, item, timeout=None):
        try:
            await asyncio.wait_for(self.queue.put(item), timeout)
            return True
        except asyncio.TimeoutError:
            return False

    async def get(self, timeout=None):
        try:
            return True, await asyncio.wait_for(self.queue.get(), timeout)
        except asyncio.TimeoutError:
            return False, None

    async def put_nowait(self, item):
        try:
            self.queue.put_nowait(item)
            return True
        except asyncio.QueueFull:
            return False

    async def get_nowait(self):
        try:
            return True, self.queue.get_nowait()
        except asyncio.QueueEmpty:
            return False, None

    async def put_batch(self, items):
        if self.maxsize > 0 and len(items) + self.queue.qsize() > self.maxsize:
            return False
        for item in items:
            self.queue.put_nowait(item)
        return True

    async def get_batch(self, count):
        if count > self.queue.qsize():
            return False, self.queue.qsize()
        return True, [self.queue.get_nowait() for _ in range(count)]
