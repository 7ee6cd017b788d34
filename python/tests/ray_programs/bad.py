"""What goes wrong."""

import os
import threading
import time

import ray


def say(*words):
    print("=", *words, flush=True)


def error_of(ref):
    try:
        ray.get(ref)
    except Exception as error:
        return error


ray.init(num_cpus=2, log_to_driver=False)


class Odd(Exception):
    def __init__(self):
        super().__init__("odd")
        self.lock = threading.Lock()


@ray.remote
def raises():
    raise Odd


@ray.remote
def returns():
    return threading.Lock()


error = error_of(raises.remote())
say("raises what cannot be pickled", isinstance(error, ray.exceptions.RayTaskError), isinstance(error, Odd), "odd" in str(error))
error = error_of(returns.remote())
say("returns what cannot be pickled", isinstance(error, ray.exceptions.RayTaskError), isinstance(error, TypeError), "lock" in str(error))


@ray.remote(num_cpus=0)
class Signal:
    def __init__(self):
        import asyncio

        self.event, self.began, self.any = asyncio.Event(), 0, asyncio.Event()

    async def wait(self):
        self.began += 1
        self.any.set()
        await self.event.wait()

    async def waits(self):
        await self.any.wait()

    async def set(self):
        self.event.set()


@ray.remote(num_cpus=2)
def hold(signal):
    ray.get(signal.wait.remote())
    return "held"


@ray.remote(num_cpus=2)
def after(value):
    return value


@ray.remote(num_cpus=3)
def never():
    pass


@ray.remote
def boom():
    os._exit(1)


signal = Signal.remote()
held = hold.remote(signal)
ray.get(signal.waits.remote())
queued, infeasible = never.remote(), never.options(resources={"none": 1}).remote()
for name, ref in (("for CPUs", queued), ("for what there is not", infeasible)):
    ray.cancel(ref)
    say("cancelled while it waits", name, type(error_of(ref)).__name__)
ray.get(signal.set.remote())
say("what has waited", ray.get(held))
done = after.remote(1)
ray.get(done)
ray.cancel(done)
say("cancelled too late", ray.get(done))
say("a task that dies", type(error_of(boom.options(max_retries=0).remote())).__name__)


@ray.remote
class Dies:
    def hello(self):
        return 1

    def die(self):
        os._exit(1)

    @staticmethod
    def shared(value):
        return value


actor = Dies.options(name="dies").remote()
ray.get(actor.hello.remote())
calls = [actor.hello.remote(), actor.die.remote()] + [actor.hello.remote() for _ in range(10)]
kinds = [type(error_of(call)).__name__ for call in calls]
say("pending calls", kinds[0], set(kinds[1:]))
say("a call of a dead actor", type(error_of(actor.hello.remote())).__name__)
del actor
while True:
    try:
        again = Dies.options(name="dies").remote()
        break
    except ValueError:  # Ray takes a while
        time.sleep(0.1)
say("another one has its name", ray.get(again.hello.remote()), ray.get(again.shared.remote(2)))
say("a result with a dead argument", type(error_of(after.remote(boom.options(max_retries=0).remote()))).__name__)
other = Signal.remote()
held = hold.remote(other)
ray.get(other.waits.remote())
ray.cancel(held)
say("cancelled while it waits in get", type(error_of(held)).__name__)


def raised(do):
    try:
        do()
    except Exception as error:
        return error


say("a name that is taken", isinstance(raised(lambda: Dies.options(name="dies").remote()), ValueError), ray.get(again.hello.remote()))
for what, do in (
    ("an argument that cannot be pickled", lambda: after.remote(threading.Lock())), ("one of a method", lambda: again.hello.remote(threading.Lock())),
    ("too many arguments", lambda: after.remote(1, 2)), ("too few", after.remote), ("an unknown one", lambda: after.remote(1, value=2)),
    ("too many of a class", lambda: Dies.remote(1)), ("too many of a method", lambda: again.hello.remote(1)),
    ("an unknown one of a method", lambda: ray.get_actor("dies").hello.remote(value=1)), ("too few of a static one", again.shared.remote), ("no such method", lambda: again.none.remote()), ("no such actor", lambda: ray.get_actor("none")),
    ("fewer results", lambda: ray.get(after.options(num_returns=2).remote([1])[0])), ("a result that is none of several", lambda: ray.get(after.options(num_returns=2).remote(1)[0])),
    ("get of no reference", lambda: ray.get(1)), ("wait for the same twice", lambda: ray.wait([done, done])), ("wait for too many", lambda: ray.wait([done], num_returns=2)),
):
    error = raised(do)
    say(what, [kind.__name__ for kind in (TypeError, ValueError, AttributeError) if isinstance(error, kind)])
ray.shutdown()
ray.init(num_cpus=2, object_store_memory=80 << 20, log_to_driver=False)


@ray.remote
def big(size):
    return b"x" * size


say("more than memory, returned and put", len(ray.get(big.remote(100 << 20))), len(ray.get(ray.put(b"x" * (100 << 20)))))
for what, do in (("a reference of a cluster that is gone", lambda: ray.get(done, timeout=10)), ("an actor of it", lambda: ray.get(again.hello.remote(), timeout=10))):
    say(what, isinstance(raised(do), ray.exceptions.GetTimeoutError), isinstance(raised(do), Exception))
ray.shutdown()
