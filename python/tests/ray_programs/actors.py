"""Actors: state, names, concurrency, failures, restarts, handles."""

import asyncio
import os
import time

import ray


def say(*what):
    print("=", *what, flush=True)


ray.init(num_cpus=4, log_to_driver=False, namespace="space")


@ray.remote
class Counter:
    def __init__(self, start=0):
        self.value = start

    def add(self, n=1):
        self.value += n
        return self.value

    def fail(self):
        raise KeyError("no such")

    def pid(self):
        return os.getpid()

    def die(self):
        os._exit(1)

    @ray.method(num_returns=2)
    def both(self):
        return self.value, -self.value

    def items(self, n):
        for i in range(n):
            yield i * self.value

    def me(self):
        return ray.get_runtime_context().current_actor

    def sleep(self, seconds):
        time.sleep(seconds)

    def leave(self):
        ray.actor.exit_actor()


c = Counter.remote(10)
say(ray.get([c.add.remote() for _ in range(5)]))
say(ray.get(list(c.both.remote())), [ray.get(r) for r in c.items.remote(3)])
try:
    ray.get(c.fail.remote())
except KeyError as error:
    say(type(error).__name__, isinstance(error, ray.exceptions.RayTaskError), "Counter.fail" in str(error))
say(ray.get(c.add.remote(ray.put(5))))


@ray.remote
def use(counter, n):
    return ray.get(counter.add.remote(n))


say(ray.get(use.remote(c, 100)))
say(ray.get(ray.get(c.me.remote()).add.remote(0)) == ray.get(c.add.remote(0)))
say(ray.get(c.__ray_call__.remote(lambda self, k: self.value * k, 2)))


@ray.remote
class Parent:
    def __init__(self):
        self.child = Counter.remote(1)

    def grow(self):
        return ray.get(self.child.add.remote())

    def give(self):
        return self.child


p = Parent.remote()
say(ray.get(p.grow.remote()))
child = ray.get(p.give.remote())
say(ray.get(child.add.remote(10)))

# names
named = Counter.options(name="the one").remote(7)
say(ray.get(ray.get_actor("the one").add.remote()), ray.util.list_named_actors())
try:
    Counter.options(name="the one").remote()
except ValueError as error:
    say("taken", type(error).__name__)
again = Counter.options(name="the one", get_if_exists=True).remote()
say(ray.get(again.add.remote()), again == named)
try:
    ray.get_actor("nobody")
except ValueError:
    say("nobody")
far = Counter.options(name="far", namespace="other", lifetime="detached").remote()
say(ray.get(far.add.remote()), ray.util.list_named_actors(), sorted(n["namespace"] for n in ray.util.list_named_actors(all_namespaces=True)))
say(ray.get(ray.get_actor("far", namespace="other").add.remote()))

# deaths
k = Counter.remote()
ray.get(k.add.remote())
ray.kill(k)
try:
    ray.get(k.add.remote())
except ray.exceptions.RayActorError as error:
    say(type(error).__name__, "ray.kill" in str(error))
d = Counter.remote()
say(ray.get(d.sleep.remote(0.1)))
for ref in [d.sleep.remote(0.1), d.die.remote(), d.add.remote()][1:]:
    try:
        ray.get(ref)
    except ray.exceptions.RayActorError as error:
        say(type(error).__name__, isinstance(error, ray.exceptions.ActorDiedError))
e = Counter.remote()
try:
    ray.get(e.leave.remote())
except ray.exceptions.RayActorError as error:
    say(type(error).__name__)


@ray.remote
class Broken:
    def __init__(self):
        raise RuntimeError("cannot begin")

    def hello(self):
        return 1


try:
    ray.get(Broken.remote().hello.remote())
except ray.exceptions.RayActorError as error:
    say(type(error).__name__, "cannot begin" in str(error), "creation task" in str(error))

r = Counter.options(max_restarts=1, max_task_retries=-1).remote(50)
first = ray.get(r.pid.remote())
ray.get(r.add.remote())
os.kill(first, 9)
say(ray.get(r.add.remote()), ray.get(r.pid.remote()) != first)

# an actor ends with its last handle
short = Counter.options(name="short").remote()
ray.get(short.add.remote())
del short
for _ in range(600):
    if "short" not in ray.util.list_named_actors():
        break
    time.sleep(0.1)
say("short" in ray.util.list_named_actors())

# asynchronous actors


@ray.remote
class Async:
    def __init__(self):
        self.event = asyncio.Event()
        self.n = 0

    async def wait(self):
        self.n += 1
        await self.event.wait()
        return self.n

    async def waiting(self):
        return self.n

    async def open(self):
        self.event.set()

    async def ask(self, other):
        return await other.add.remote(1000)

    async def stream(self, n):
        for i in range(n):
            await asyncio.sleep(0)
            yield i


a = Async.remote()
waiting = [a.wait.remote() for _ in range(5)]
while ray.get(a.waiting.remote()) < 5:
    pass
say(len(ray.wait(waiting, timeout=0.2)[0]))
ray.get(a.open.remote())
say(ray.get(waiting), ray.get(a.ask.remote(c)))
say([ray.get(x) for x in a.stream.remote(3)])
b = Async.remote()
stuck = b.wait.remote()
ray.wait([stuck], timeout=0.2)
ray.cancel(stuck)
try:
    ray.get(stuck)
except ray.exceptions.TaskCancelledError as error:
    say(type(error).__name__)


async def main():
    return await c.add.remote(0) > 0, await asyncio.gather(*[c.add.remote(0) for _ in range(2)]) is not None


say(asyncio.run(main()))


@ray.remote
class Begins:
    async def __init__(self, value):
        await asyncio.sleep(0)
        self.value = 1 // value

    def get(self):
        return self.value


say(ray.get(Begins.remote(1).get.remote()))
try:
    ray.get(Begins.remote(0).get.remote())
except ray.exceptions.RayActorError as error:
    say("ZeroDivisionError" in str(error))


@ray.remote(max_concurrency=3)
class Threads:
    def __init__(self):
        import threading

        self.barrier = threading.Barrier(3)

    def meet(self):
        self.barrier.wait(60)
        return True


t = Threads.remote()
say(ray.get([t.meet.remote() for _ in range(3)]))

# wrong uses
for wrong in (lambda: Counter(), lambda: c.add(), lambda: c.nothing, lambda: Counter.options(nonsense=1), lambda: ray.kill(1), lambda: ray.get_actor(""),
              lambda: Counter.options(lifetime="forever").remote()):
    try:
        wrong()
        say("no error")
    except Exception as error:
        say(type(error).__name__)
say(repr(c).startswith("Actor(Counter, "), len(c._actor_id.hex()))
ray.shutdown()
try:
    ray.get(c.add.remote())
except Exception as error:
    say("after shutdown", isinstance(error, Exception))
