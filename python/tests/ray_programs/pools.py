"""ray.util: queues and pools of actors; objects in shared memory."""

import ray
from ray.util import ActorPool
from ray.util.queue import Empty, Full, Queue


def say(*what):
    print("=", *what, flush=True)


ray.init(num_cpus=4, log_to_driver=False)

queue = Queue(maxsize=2)
queue.put(1)
queue.put(2)
say(queue.full(), queue.qsize(), len(queue))
try:
    queue.put(3, block=False)
except Full:
    say("full")
try:
    queue.put(3, timeout=0.1)
except Full:
    say("full in time")
say(queue.get(), queue.get())
try:
    queue.get_nowait()
except Empty:
    say("empty")
queue.put_nowait_batch([5, 6])
say(queue.get_nowait_batch(2))


@ray.remote
def produce(q, n):
    for i in range(n):
        q.put(i)


done = produce.remote(queue, 5)
say([queue.get(timeout=60) for _ in range(5)], ray.get(done))
queue.shutdown()


@ray.remote
class Doubler:
    def double(self, v):
        return 2 * v


pool = ActorPool([Doubler.remote(), Doubler.remote()])
say(list(pool.map(lambda a, v: a.double.remote(v), range(6))))
say(sorted(pool.map_unordered(lambda a, v: a.double.remote(v), range(6))))
pool.submit(lambda a, v: a.double.remote(v), 21)
say(pool.has_next(), pool.get_next(), pool.has_next(), pool.has_free())

# large values
data = bytes(range(256)) * 4096
ref = ray.put(data)


@ray.remote
def size(value):
    return len(value)


@ray.remote
def large(n):
    return bytearray(n)


say(ray.get(ref) == data, ray.get(size.remote(ref)), ray.get(size.remote(data)), ray.get(size.remote(large.remote(1 << 20))))
say(len(ray.get(large.remote(300000))))


@ray.remote
class Keeper:
    def keep(self, refs):
        self.refs = refs

    def read(self):
        return len(ray.get(self.refs[0]))

    def make(self):
        return [ray.put(b"x" * 200000)]


k = Keeper.remote()
ray.get(k.keep.remote([ray.put(b"y" * 150000)]))
say(ray.get(k.read.remote()))
inner = ray.get(k.make.remote())[0]
say(len(ray.get(inner)))
ray.kill(k)
ray.shutdown()
