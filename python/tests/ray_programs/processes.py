"""ray.util.multiprocessing: pools of processes."""

import os
import threading
import time

import ray
from ray.util.multiprocessing import Pool, TimeoutError


def say(*what):
    print("=", *what, flush=True)


def fails(do):
    try:
        do()
    except Exception as e:
        return type(e).__name__, str(e).splitlines()[0] if str(e) else ""


def square(x):
    return x * x


def odd(x):
    if x % 2:
        raise ValueError(f"{x} is odd")
    return x


def begin(directory):
    os.environ["BEGUN"] = directory


def begun(_):
    return os.environ["BEGUN"], os.getpid()


def slow(x):
    time.sleep(x)
    return x


pool = Pool(3)
say(ray.is_initialized(), ray.cluster_resources()["CPU"])
say(pool.map(square, range(10)), pool.map(square, []), pool.map(square, iter([2, 3]), chunksize=1))
say(pool.starmap(pow, [(2, 3), (3, 2)]), pool.starmap_async(divmod, [(7, 2)]).get())
say(pool.apply(pow, (2, 5)), pool.apply(dict, kwargs={"a": 1}), pool.apply(sorted, ([2, 1],), {"reverse": True}))
say(list(pool.imap(square, range(7))), list(pool.imap(square, (i for i in range(7)), chunksize=3)), list(pool.imap(square, [])))
say(sorted(pool.imap_unordered(square, range(7), chunksize=2)))

# results and callbacks
called, there = [], threading.Semaphore(0)


def call(result):
    called.append((type(result).__name__, str(sorted(result) if type(result) is list else result)))
    there.release()


result = pool.map_async(square, range(5), callback=call, error_callback=call)
say(result.get(), result.ready(), result.successful(), called.pop())
result = pool.apply_async(square, (3,), callback=call)
result.wait()
say(result.get(timeout=60), called.pop())
result = pool.map_async(odd, range(4), chunksize=1, callback=call, error_callback=call)
say(fails(result.get), result.successful(), len(called), called.pop()[0])
result = pool.apply_async(odd, (3,), error_callback=call)
result.wait()
say(fails(result.get), called.pop())
say(fails(lambda: pool.apply(odd, (1,))), fails(lambda: pool.map(odd, [2, 3, 5])))
say([type(r).__name__ for r in pool.imap(odd, range(3))], next(pool.imap(odd, [1])).underlying.args)

# limits of time
result = pool.apply_async(slow, (1000,))
say(result.ready(), fails(result.successful)[0], fails(lambda: result.get(timeout=0.05)), result.wait(0.05))
try:
    result.get(0)
except TimeoutError:
    say("in time")
pool.terminate()
pool.join()
say(fails(lambda: pool.map(square, [1])), fails(pool.__enter__), fails(result.get)[0])

# each process begins, and ends after its calls
with Pool(2, initializer=begin, initargs=("there",)) as pool:
    results = pool.map(begun, range(8), chunksize=1)
    say({r[0] for r in results}, len({r[1] for r in results}))
    say(fails(pool.join))
with Pool(1, maxtasksperchild=2) as pool:
    say(len({pool.apply(os.getpid) for _ in range(5)}))
pool = Pool(2, ray_remote_args={"num_cpus": 1})
say(ray.available_resources().get("CPU"))
late = [pool.apply_async(slow, (0.2,)) for _ in range(4)]
pool.close()
pool.join()
say([r.get() for r in late], fails(lambda: pool.apply(square, (1,))))
say(fails(lambda: Pool(0)), fails(lambda: Pool(100)), fails(lambda: Pool(1, initializer=odd, initargs=(1,)))[0])

# what dies, and what cannot travel
with Pool(1) as pool:
    say(fails(lambda: pool.apply(threading.Lock))[0])
    say(fails(lambda: pool.apply(os._exit, (1,)))[0])
refs = [ray.put(4), ray.put(5)]
with Pool(2) as pool:
    say(pool.map(lambda ref: ray.get(ref) + 1, refs))
    items = pool.imap(slow, [1000, 0])
    say(fails(lambda: items.next(timeout=0.1))[0])
ray.shutdown()
